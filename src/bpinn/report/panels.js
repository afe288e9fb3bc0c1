// Panels: a figure that can be pointed at or walked through with the arrow keys, with a line that says what is there.

const HEIGHT = 300;
const NEAR = 16; // pixels from a reading at which it is taken

/** Redraws a panel when its width has changed. */
const widths = new ResizeObserver((changes) => changes.forEach(({ target }) => {
  if (Math.round(target.clientWidth) !== target.drawnWidth) target.redraw();
}));

/**
 * A panel. `content(width)` gives {frame, layers, pick(x, y), step(place, key), tell(place)}: a place is whatever `pick`
 * and `step` return, and `tell` gives {x, y, text} of it, in pixels.
 */
function panel(label, hint, content, backdrop = null) {
  let [shown, place] = [null, null];
  const cursor = svg("g", { class: "cursor", "aria-hidden": "true" });
  const picture = svg("svg", {
    class: backdrop ? "chart over" : "chart", tabindex: 0, role: "application", "aria-roledescription": "figure", "aria-label": label,
  });
  const said = html("output", { class: "said", "aria-live": "polite" }, hint);
  const node = html("div", { class: "panel" }, html("div", { class: "stage" }, backdrop, picture), said);

  function mark() {
    cursor.replaceChildren();
    if (place === null) return void (said.textContent = hint);
    const { x, y, text } = shown.tell(place);
    cursor.append(
      svg("path", { d: `M${x} ${shown.frame.top}V${shown.frame.base}` }),
      svg("path", { d: y === null ? "" : `M${shown.frame.left} ${y}H${shown.frame.right}` }),
      y === null ? "" : svg("circle", { cx: x, cy: y, r: 5 }),
    );
    said.textContent = text;
  }

  node.redraw = () => {
    const width = Math.round(node.clientWidth);
    if (!width) return; // not on the page yet
    node.drawnWidth = width;
    shown = content(width);
    place = place !== null && shown.holds?.(place) === false ? null : place;
    fill(picture, { width, height: shown.frame.height, viewBox: `0 0 ${width} ${shown.frame.height}` }, []);
    picture.replaceChildren(shown.frame.axes, ...shown.layers.flat(Infinity), cursor);
    mark();
  };
  const move = (event) => {
    const box = picture.getBoundingClientRect();
    place = shown.pick(event.clientX - box.left, event.clientY - box.top);
    mark();
    if (event.type === "pointerdown") shown.choose?.(place);
  };
  fill(picture, {
    pointermove: move,
    pointerdown: move,
    pointerleave: () => {
      if (document.activeElement !== picture) place = null;
      mark();
    },
    keydown: (event) => {
      const next = event.key === "Escape" ? null : shown.step(place, event.key);
      if (next === undefined) return;
      event.preventDefault();
      place = next;
      mark();
    },
  }, []);
  widths.observe(node);
  return node;
}

/** The index of what is nearest, and its distance. */
function nearest(list, distance) {
  let [best, least] = [0, Infinity];
  list.forEach((one, i) => {
    const far = distance(one);
    if (far < least) [best, least] = [i, far];
  });
  return [best, least];
}

/** Stepping through points along one coordinate (left, right) and through readings (up, down); nearest to a pixel. */
function alongPoints(frame, stops, marks) {
  const lists = { stops, marks };
  const order = marks.map((_, i) => i).sort((a, b) => marks[a].x - marks[b].x);
  const within = (i, list) => Math.min(Math.max(i, 0), list.length - 1);
  function walk(place, name, by) {
    const list = lists[name];
    const path = name === "marks" ? order : list.map((_, i) => i);
    if (!list.length) return undefined;
    if (!Number.isFinite(by)) return { name, i: path[by > 0 ? path.length - 1 : 0] };
    if (place?.name === name) return { name, i: path[within(path.indexOf(place.i) + by, path)] };
    const x = place ? lists[place.name][place.i].x : by > 0 ? -Infinity : Infinity;
    const next = by > 0 ? path.find((i) => list[i].x >= x) : path.findLast((i) => list[i].x <= x);
    return { name, i: next ?? path[by > 0 ? path.length - 1 : 0] };
  }
  return {
    holds: (place) => place.i < lists[place.name].length,
    pick(x, y) {
      const [mark, far] = nearest(marks, (one) => Math.hypot(frame.px(one.x) - x, frame.py(one.y) - y));
      if (far < NEAR || (marks.length && !stops.length)) return { name: "marks", i: mark };
      return stops.length ? { name: "stops", i: nearest(stops, (one) => Math.abs(frame.px(one.x) - x))[0] } : null;
    },
    step(place, key) {
      const main = stops.length ? "stops" : "marks";
      const moves = {
        ArrowRight: [main, 1], ArrowLeft: [main, -1], PageDown: [main, 10], PageUp: [main, -10],
        Home: [main, -Infinity], End: [main, Infinity], ArrowUp: ["marks", 1], ArrowDown: ["marks", -1],
      };
      return key in moves ? walk(place, ...moves[key]) : undefined;
    },
    tell({ name, i }) {
      const { x, y, text } = lists[name][i];
      return { x: frame.px(x), y: y === null ? null : frame.py(y), text };
    },
  };
}

/** What a band is drawn of, with the words for each point. */
function bandContent(width, { quantity, axis, chosen, all, truth, marks, y }) {
  const xs = axis.points;
  const range = y ?? rangeOf([chosen.mean, chosen.low, chosen.high, all.mean, all.low, all.high, truth,
    marks.map((m) => m.y - (m.noise ?? 0)), marks.map((m) => m.y + (m.noise ?? 0))], 0.05);
  const frame = frameOf(width, HEIGHT, { range: rangeOf([xs], 0.02), math: axis.math }, { range, math: quantity.math });
  const others = chosen === all ? [] : [all.mean, all.low, all.high].filter(Boolean);
  const layers = others.map((values) => lineOf(frame, xs, values, "other"));
  if (chosen.low) layers.push(areaOf(frame, xs, chosen.low, chosen.high, "chosen"));
  layers.push(lineOf(frame, xs, chosen.mean, "chosen"));
  if (truth) layers.push(lineOf(frame, xs, truth, "truth"));
  layers.push(marks.map((mark) => markOf(frame, mark)));
  const number = (value) => format(value, quantity.decimals);
  const places = decimalsOf(xs);
  const stops = xs.map((x, i) => ({
    x,
    y: chosen.mean[i],
    text: `${axis.name} = ${format(x, places)}: mean ${number(chosen.mean[i])}` +
      (chosen.low ? `, 95% interval ${number(chosen.low[i])} to ${number(chosen.high[i])}` : "") +
      (truth ? `, truth ${number(truth[i])}` : ""),
  }));
  return { frame, layers, ...alongPoints(frame, stops, marks) };
}

/** A quantity's readings as marks along one of its axes; `keep` says which. */
function marksOf(quantity, along, keep = () => true) {
  const found = [];
  for (const group of quantity.marks)
    group.value.forEach((value, i) => {
      if (!keep(group, i)) return;
      const score = group.score?.[i] ?? null;
      const noise = group.noise[i];
      const places = quantity.axes.map(({ name, points }) => `${name} = ${format(group.at[name][i], decimalsOf(points))}`);
      found.push({
        x: group.at[along][i],
        y: value,
        noise,
        exact: group.unit === "point",
        text: `${group.name}, ${group.unit} ${group.number[i]} at ${places.join(", ")}: ` +
          `${format(value, quantity.decimals)}${noise ? ` ± ${format(noise, quantity.decimals)}` : ""}` +
          (score === null ? "" : `, ${format(Math.abs(score), 1)} sd ${score < 0 ? "below" : "above"} ` +
            "its leave-one-out prediction"),
      });
    });
  return found;
}

/** The entries of a legend: a class of its swatch, and words. */
const legend = (entries) =>
  html("p", { class: "legend" }, entries.map(([style, words]) => html("span", {}, html("i", { class: style }), words)));

function legendOf(quantity, chosen, all) {
  const units = new Set(quantity.marks.map((group) => group.unit));
  return legend([
    ["chosen line", chosen.low ? "posterior mean" : "solution"],
    ...(chosen.low ? [["chosen area", "95% interval"]] : []),
    ...(chosen === all ? [] : [["other line", "the same of all draws"]]),
    ...(quantity.truth ? [["truth line", "truth"]] : []),
    ...(units.has("reading") ? [["dot", "readings ± noise"]] : []),
    ...(units.has("point") ? [["cross", "points of an exact condition"]] : []),
  ]);
}

/** A quantity along one coordinate. */
function bandPanel(quantity, choice) {
  const [axis] = quantity.axes;
  const node = html("div", {});
  const part = () => quantity.shown[choice.index] ?? quantity.shown[0];
  const chart = panel(
    `${quantity.name} along ${axis.name}${quantity.fixed ? `, at ${quantity.fixed}` : ""}`,
    `Point at the figure, or focus it and press ← → to move along ${axis.name}` +
      (quantity.marks.length ? ", ↑ ↓ to go through the readings." : "."),
    (width) => bandContent(width, {
      quantity, axis, chosen: part(), all: quantity.shown[0], truth: quantity.truth, marks: marksOf(quantity, axis.name),
    }),
  );
  choice.follow(() => {
    node.replaceChildren(legendOf(quantity, part(), quantity.shown[0]), chart);
    chart.redraw();
  });
  return node;
}

/** Traces of one number: a line for each chain; chains that are not chosen are pale. */
function tracePanel(trace, unit, choice) {
  const names = trace.chains.map((_, i) => `${unit} ${i}`);
  const chart = panel(`trace of ${trace.name}`, "Point at the figure, or focus it and press ← →.",
    (width) => {
      const chosen = choice.chains;
      const [x, y] = [rangeOf([trace.draw], 0), rangeOf(trace.chains, 0.05)];
      const frame = frameOf(width, 240, { range: x, text: "draw" }, { range: y, math: trace.math });
      const order = names.map((_, i) => i).sort((a, b) => (chosen?.includes(a) ?? 0) - (chosen?.includes(b) ?? 0));
      const layers = order.map((i) =>
        lineOf(frame, trace.draw, trace.chains[i], `trace c${i % 7}${chosen && !chosen.includes(i) ? " pale" : ""}`));
      const stops = trace.draw.map((draw, i) => ({
        x: draw,
        y: null,
        text: `draw ${draw}: ` + trace.chains.map((c, k) => `${names[k]} ${format(c[i], trace.decimals)}`).join(", "),
      }));
      return { frame, layers, ...alongPoints(frame, stops, []) };
    });
  choice.follow(chart.redraw);
  const words = legend(names.map((name, i) => [`line trace c${i % 7}`, name]));
  if (trace.rhat !== null) words.append(html("span", {}, `R-hat ${format(trace.rhat, 3)}`));
  return html("div", {}, words, chart);
}

/** Residuals of all readings, against a coordinate, the prediction or their order. */
function residualPanel(groups) {
  const coordinates = [...new Set(groups.flatMap((group) => Object.keys(group.at)))];
  const against = html("select", { change: () => chart.redraw() },
    coordinates.map((c) => html("option", { value: `at ${c}` }, c)),
    html("option", { value: "expected" }, "the prediction"), html("option", { value: "number" }, "their order"));
  const hidden = new Set();
  const toggles = groups.map((group, i) =>
    html("label", {}, html("input", {
      type: "checkbox", checked: true,
      change: (event) => { hidden[event.target.checked ? "delete" : "add"](group); chart.redraw(); },
    }), html("i", { class: `dot c${i % 7}` }), group.name));
  const valuesOf = (group) => (against.value.startsWith("at ") ? group.at[against.value.slice(3)] : group[against.value]);
  const chart = panel("leave-one-out z-score of each reading",
    "Point at a reading, or focus the figure and press ← → to go through them.", (width) => {
      const shown = groups.filter((group) => !hidden.has(group) && valuesOf(group));
      const range = rangeOf(shown.map(valuesOf), 0.03);
      const reach = Math.max(4, rangeOf(shown.map((group) => group.score.map((s) => Math.min(8, Math.abs(s ?? 0)))), 0)[1]);
      const words = against.selectedOptions[0].textContent;
      const name = against.value.startsWith("at ") ? { math: [words, ""] } : { text: words };
      const frame = frameOf(width, HEIGHT, { range, ...name },
        { range: [-1.08 * reach, 1.08 * reach], text: "z-score" });
      const [marks, layers] = [[], [areaOf(frame, range, [-1.96, -1.96], [1.96, 1.96], "expected"),
        lineOf(frame, range, [0, 0], "zero")]];
      for (const group of shown)
        group.score.forEach((score, i) => {
          if (score === null) return;
          const places = Object.entries(group.at).map(([c, at]) => `${c} = ${at[i]}`.replaceAll("-", "−"));
          const number = (value) => format(value, group.decimals);
          const mark = {
            x: valuesOf(group)[i],
            y: Math.max(-8, Math.min(8, score)),
            exact: group.unit === "point",
            text: `${group.name}, ${group.unit} ${group.number[i]}${places.length ? ` at ${places.join(", ")}` : ""}: ` +
              `${number(group.value[i])}; leave-one-out prediction ${number(group.expected[i])} ± ${number(group.sd[i])}, ` +
              `z-score ${format(score, 1)}`,
          };
          marks.push(mark);
          layers.push(markOf(frame, mark, `c${groups.indexOf(group) % 7}`));
          if (group.surprising.includes(i))
            layers.push(svg("circle", { class: "ring", cx: frame.px(mark.x), cy: frame.py(mark.y), r: 8 }));
        });
      return { frame, layers, ...alongPoints(frame, [], marks) };
    });
  return html("div", {}, html("p", { class: "controls" }, html("label", {}, "z-scores against ", against), toggles), chart);
}
