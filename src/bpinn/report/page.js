// Maps, and where everything goes on the page.

const data = JSON.parse(document.getElementById("data").textContent);
const WHAT = { mean: "mean", sd: "sd", truth: "truth", error: "|mean − truth|" };
const CLOSE = 0.025; // part of a coordinate's range within which readings belong to a slice

/** Which draws are shown; every panel follows it. */
const choice = {
  index: 0,
  followers: [],
  follow(redraw) {
    this.followers.push(redraw);
    redraw();
  },
  set(index) {
    this.index = index;
    this.followers.forEach((redraw) => redraw());
  },
  get chains() {
    return data.choices[this.index]?.chains ?? null;
  },
};

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const COLOURS = { values: data.colours.values.map(rgb), errors: data.colours.errors.map(rgb) };

function colourOf(scale, part) {
  const at = Math.min(Math.max(part, 0), 1) * (scale.length - 1);
  const i = Math.min(Math.floor(at), scale.length - 2);
  return scale[i].map((low, k) => Math.round(low + (scale[i + 1][k] - low) * (at - i)));
}

/** The mean, sd, truth or error of a quantity over its first two coordinates, at `position()` of a third. */
function mapOf(quantity, first, part, slice) {
  const [xAxis, yAxis] = quantity.axes;
  const [columns, rows, depth] = quantity.axes.map((axis) => axis.points.length);
  const index = (i, j) => (depth ? (i * rows + j) * depth + slice.position() : i * rows + j);
  const errorsOf = (one) => quantity.truth && one.mean.map((v, i) => (v === null ? null : Math.abs(v - quantity.truth[i])));
  const valuesOf = (what) => (what === "truth" ? quantity.truth : what === "error" ? errorsOf(part()) : part()[what]);
  const kinds = Object.keys(WHAT).filter((what) => what in quantity.shown[0] || (quantity.truth && what !== "sd"));
  const values = rangeOf([...quantity.shown.map((one) => one.mean), quantity.truth], 0);
  const errors = [0, rangeOf([...quantity.shown.map((one) => one.sd), errorsOf(quantity.shown[0])], 0)[1]];

  const what = html("select", { change: () => map.redraw() },
    kinds.map((kind) => html("option", { value: kind, selected: kind === first }, WHAT[kind])));
  const canvas = html("canvas", { "aria-hidden": "true" });
  const bar = html("canvas", { width: 128, height: 1, "aria-hidden": "true" });
  const [least, most] = [html("span", {}), html("span", {})];

  function paint(frame) {
    const isValue = ["mean", "truth"].includes(what.value);
    const [scale, [low, high]] = isValue ? [COLOURS.values, values] : [COLOURS.errors, errors];
    const shown = valuesOf(what.value);
    const small = html("canvas", { width: columns, height: rows });
    const image = new ImageData(columns, rows);
    for (let i = 0; i < columns; i++)
      for (let j = 0; j < rows; j++) {
        const value = shown[index(i, j)];
        const colour = value === null ? [0, 0, 0, 0] : [...colourOf(scale, (value - low) / (high - low || 1)), 255];
        image.data.set(colour, 4 * ((rows - 1 - j) * columns + i));
      }
    small.getContext("2d").putImageData(image, 0, 0);
    const [width, height] = [frame.right - frame.left, frame.base - frame.top];
    fill(canvas, { width: Math.round(2 * width), height: Math.round(2 * height) }, []);
    const box = { left: frame.left, top: frame.top, width, height };
    for (const [side, pixels] of Object.entries(box)) canvas.style[side] = `${pixels}px`;
    // points are at the centres of the small picture's pixels, and on the edges of the large one
    canvas.getContext("2d").drawImage(small, 0.5, 0.5, columns - 1, rows - 1, 0, 0, canvas.width, canvas.height);
    const strip = new ImageData(128, 1);
    for (let i = 0; i < 128; i++) strip.data.set([...colourOf(scale, i / 127), 255], 4 * i);
    bar.getContext("2d").putImageData(strip, 0, 0);
    [least.textContent, most.textContent] = [low, high].map(brief);
  }

  const content = (width) => {
    const [x, y] = [xAxis, yAxis].map(({ points, math }) => ({ range: [points[0], points[points.length - 1]], math }));
    const frame = frameOf(width, Math.min(380, Math.max(280, 0.85 * width)), x, y);
    paint(frame);
    const layers = [slice.lineOf?.(frame) ?? []];
    for (const group of ["mean", "sd"].includes(what.value) ? quantity.marks : [])
      group.value.forEach((_, i) => {
        const at = { x: group.at[xAxis.name][i], y: group.at[yAxis.name][i], exact: group.unit === "point" };
        if (!depth || slice.isNear(group, i)) layers.push(markOf(frame, at, "onmap"));
      });
    const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const within = (i, size) => Math.min(Math.max(i, 0), size - 1);
    const nearest = (pixel, from, to, size) => within(Math.round(((pixel - from) / (to - from)) * (size - 1)), size);
    return {
      frame,
      layers,
      pick: (px, py) => [nearest(px, frame.left, frame.right, columns), nearest(py, frame.base, frame.top, rows)],
      choose: slice.choose,
      step: (place, key) => {
        if (!(key in moves)) return undefined;
        const [i, j] = place ?? [columns >> 1, rows >> 1];
        return [within(i + moves[key][0], columns), within(j + moves[key][1], rows)];
      },
      tell: ([i, j]) => {
        const here = [i, j, slice.position()];
        const places = quantity.axes.map(({ name, points }, a) => `${name} = ${format(points[here[a]], decimalsOf(points))}`);
        const told = kinds.map((kind) => `${WHAT[kind]} ${format(valuesOf(kind)[index(i, j)], quantity.decimals)}`);
        const text = `${places.join(", ")}: ${told.join(", ")}`;
        return { x: frame.px(xAxis.points[i]), y: frame.py(yAxis.points[j]), text };
      },
    };
  };
  const hint = `Point at the map, or focus it and press the arrow keys${depth ? "" : "; a click moves the slice there"}.`;
  const map = panel(`map of ${quantity.name} over ${xAxis.name} and ${yAxis.name}`, hint, content, canvas);
  const top = html("p", { class: "scale" }, html("label", {}, "Map of ", what), html("span", { class: "ends" }, least, bar, most));
  return [html("div", {}, top, map), map.redraw];
}

/** A quantity over two coordinates, with a slice through it; or over three, with maps for each value of the third. */
function mapPanel(quantity) {
  const axes = quantity.axes;
  const is3d = axes.length === 3;
  const all = quantity.shown[0];
  const part = () => quantity.shown[choice.index] ?? all;
  const sliced = html("select", { change: () => { aim(); redraw(); } },
    (is3d ? [2] : [1, 0]).map((i) => html("option", { value: i }, axes[i].name)));
  const slider = html("input", { type: "range", min: 0, step: 1, input: redraw });
  const shown = html("output", {});
  const across = () => Number(sliced.value);
  const position = () => Number(slider.value);
  const reach = () => {
    const { points } = axes[across()];
    return (is3d ? 0.5 / (points.length - 1) : CLOSE) * (points[points.length - 1] - points[0]);
  };
  const isNear = (group, i) =>
    Math.abs(group.at[axes[across()].name][i] - axes[across()].points[position()]) <= 1.001 * reach();
  function aim() {
    slider.max = axes[across()].points.length - 1;
    slider.value = Math.round(slider.max / 2);
    slider.setAttribute("aria-label", `${axes[across()].name}, position of the slice`);
  }

  aim();
  const slice = { position, isNear };
  if (!is3d) {
    slice.choose = (place) => {
      slider.value = place[across()];
      redraw();
    };
    slice.lineOf = (frame) => {
      const at = axes[across()].points[position()];
      const d = across() ? `M${frame.left} ${frame.py(at)}H${frame.right}` : `M${frame.px(at)} ${frame.top}V${frame.base}`;
      return [svg("path", { class: "slice edge", d }), svg("path", { class: "slice", d })];
    };
  }
  const kinds = is3d && "sd" in all ? ["mean", "sd"] : ["mean"];
  const maps = kinds.map((kind) => mapOf(quantity, kind, part, slice));

  // the numbers along the slice
  const along = () => axes[1 - across()];
  const rows = axes[1].points.length;
  const cut = (list) =>
    list && along().points.map((_, i) => list[across() ? i * rows + position() : position() * rows + i]);
  const cutPart = (one) => ({ mean: cut(one.mean), low: cut(one.low), high: cut(one.high) });
  const ends = rangeOf([...quantity.shown.flatMap((one) => [one.mean, one.low, one.high]), quantity.truth], 0.04);
  const profile = is3d ? null : panel(
    `${quantity.name} along the slice`, "Point at the slice, or focus it and press ← →, ↑ ↓ for readings near it.",
    (width) => {
      const whole = cutPart(all);
      const chosen = part() === all ? whole : cutPart(part());
      const marks = marksOf(quantity, along().name, isNear);
      return bandContent(width, { quantity, axis: along(), all: whole, chosen, truth: cut(quantity.truth), marks, y: ends });
    },
  );
  const aside = is3d ? [] : [html("div", {})];
  const caption = html("p", { class: "note" });

  function redraw() {
    const { name, points } = axes[across()];
    shown.textContent = `${name} = ${format(points[position()], decimalsOf(points))}`;
    slider.setAttribute("aria-valuetext", shown.textContent);
    const shownMarks = quantity.marks.length ? `, with readings and points within ${brief(reach())} of it` : "";
    caption.textContent = `${is3d ? "Maps" : "Slice"} at ${shown.textContent}${shownMarks}.`;
    aside[0]?.replaceChildren(legendOf(quantity, part(), all), profile, caption);
    maps.forEach(([, redrawMap]) => redrawMap());
    profile?.redraw();
  }

  const which = is3d ? null : html("label", {}, "Slice at a value of ", sliced);
  const controls = html("p", { class: "controls" }, which, html("label", { class: "slider" }, slider, shown));
  choice.follow(redraw);
  return html("div", {}, controls, html("div", { class: "pair" }, maps.map(([node]) => node), aside), is3d ? caption : null);
}

/** Radio buttons that choose the draws; several sets of them stay alike. */
function choices() {
  const name = `choice-${document.querySelectorAll(".choices").length}`;
  const buttons = data.choices.map((one, i) =>
    html("input", { type: "radio", name, checked: i === 0, change: () => choice.set(i) }));
  choice.follow(() => buttons.forEach((button, i) => { button.checked = i === choice.index; }));
  return html("fieldset", { class: "choices" }, html("legend", {}, "Show"),
    data.choices.map((one, i) => html("label", {}, buttons[i], one.name)));
}

/** Put panels before static figures, which are then closed; on paper it is the other way round. */
function before(details, ...nodes) {
  const live = html("div", { class: "live" }, nodes);
  details.before(live);
  details.open = false;
  let was = false;
  window.addEventListener("beforeprint", () => { was = details.open; details.open = true; });
  window.addEventListener("afterprint", () => { details.open = was; });
}

const usable = data.quantities.some((quantity) => quantity.kind !== "none");
if (data.choices.length && usable) document.querySelector("#fields h2").after(choices());
document.querySelectorAll("[data-quantity]").forEach((details) => {
  const quantity = data.quantities[details.dataset.quantity];
  if (quantity.kind === "band") before(details, bandPanel(quantity, choice));
  else if (quantity.kind !== "none") before(details, mapPanel(quantity));
});
const scores = document.querySelector("#readings details.static");
if (scores && data.readings.length) before(scores, residualPanel(data.readings));
const traces = document.querySelector("#health details.static");
if (traces && data.traces.length) {
  const panels = data.traces.map((trace) => tracePanel(trace, data.unit, choice));
  before(traces, choices(), html("div", { class: "pair" }, panels));
}

document.querySelectorAll(".panel").forEach((node) => node.redraw());

// figures are in the page, and can be saved from it
document.querySelectorAll("figure[data-file]").forEach((figure) => {
  const name = `${figure.dataset.file}.svg`;
  const link = html("a", { href: figure.querySelector("img").src, download: name, "aria-label": `save ${name}` }, "SVG");
  figure.querySelector("figcaption").append(" ", link);
});

document.querySelectorAll("button[data-copy]").forEach((button) => {
  const told = button.nextElementSibling;
  const text = () => [...document.getElementById(button.dataset.copy).rows].map((row) =>
    [...row.cells].map((cell) => (cell.dataset.name ?? cell.textContent.trim()).replaceAll("−", "-")).join("\t")).join("\n");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      told.textContent = "copied";
    } catch {
      told.textContent = "the browser does not allow copying; use the CSV file";
    }
  });
});
