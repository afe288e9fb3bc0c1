// Charts as SVG, drawn at the width that they have, so that their labels are readable on a phone.

import { h, number, s } from "./dom.js";

const LEFT = 52, RIGHT = 12, TOP = 12, BOTTOM = 38;
const finite = (values) => values.filter((value) => Number.isFinite(value));
const list = (values) => (Array.isArray(values) ? values : []);

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) found.push(Math.abs(at) < 1e-9 * step ? 0 : at);
  return found;
}

function range(values, padding) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!(high >= low)) [low, high] = [0, 1];
  if (high === low) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  return [low - padding * (high - low), high + padding * (high - low)];
}

function scales(width, height, xs, ys, padX = 0.02) {
  const [x0, x1] = range(xs, padX), [y0, y1] = range(ys, 0.06);
  return {
    x: (value) => LEFT + ((value - x0) / (x1 - x0)) * (width - LEFT - RIGHT),
    y: (value) => height - BOTTOM - ((value - y0) / (y1 - y0)) * (height - TOP - BOTTOM),
    xs: [x0, x1], ys: [y0, y1],
  };
}

function axes(width, height, scale, xlabel, ylabel) {
  const parts = [];
  for (const at of ticks(...scale.ys, Math.max(2, (height - TOP - BOTTOM) / 45))) {
    parts.push(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: scale.y(at), y2: scale.y(at) }));
    parts.push(s("text", { class: "tick", x: LEFT - 6, y: scale.y(at) + 4, "text-anchor": "end" }, number(at, 3)));
  }
  for (const at of ticks(...scale.xs, Math.max(2, (width - LEFT - RIGHT) / 90))) {
    parts.push(s("text", { class: "tick", x: scale.x(at), y: height - BOTTOM + 16, "text-anchor": "middle" }, number(at, 3)));
  }
  parts.push(s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM }));
  parts.push(s("text", { class: "label", x: (LEFT + width - RIGHT) / 2, y: height - 4, "text-anchor": "middle" }, xlabel));
  parts.push(s("text", { class: "label", x: 12, y: (height - BOTTOM + TOP) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(height - BOTTOM + TOP) / 2})` }, ylabel));
  return parts;
}

let windows = 0;
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** Series of kinds band {x, low, high}, line {x, y} and dots {x, y, sd} over one axis. */
export function plot({ title, xlabel, ylabel, series, height = 240, focus }) {
  const figure = h("figure", { class: "chart" });
  const draw = (width) => {
    const xs = [], ys = [];
    for (const one of series) {
      xs.push(...finite(list(one.x)));
      if (focus && one.kind === "line" && one.loose) continue; // draws of a prior may leave the window
      for (const key of ["y", "low", "high"]) ys.push(...finite(list(one[key])));
      if (one.kind === "dots") list(one.sd).forEach((sd, i) => sd > 0 && ys.push(...finite([one.y[i] - sd, one.y[i] + sd])));
    }
    const scale = scales(width, height, xs, ys);
    const window_ = `window-${(windows += 1)}`;
    const inner = s("g", { "clip-path": `url(#${window_})` });
    for (const one of series) drawn(inner, one, scale);
    return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title },
      s("clipPath", { id: window_ }, s("rect", { x: LEFT, y: 0, width: width - LEFT, height: height - BOTTOM + 3 })),
      axes(width, height, scale, xlabel, ylabel), inner);
  };
  sized(figure, draw);
  const named = series.filter((one) => one.name);
  const legend = named.length > 0 && h("span", { class: "legend" }, named.map((one) => h("span", {}, h("i", { class: `key ${one.kind} ${one.class ?? ""}` }), one.name)));
  figure.append(h("figcaption", {}, h("span", {}, title), legend));
  return figure;
}

function drawn(inner, one, scale) {
  const x = list(one.x);
  if (one.kind === "band") {
    const ends = x.map((at, i) => [at, one.low?.[i], one.high?.[i]]).filter((row) => row.every(Number.isFinite));
    const up = ends.map(([at, , high]) => [scale.x(at), scale.y(high)]);
    const down = ends.map(([at, low]) => [scale.x(at), scale.y(low)]).reverse();
    if (up.length) inner.append(s("path", { class: `band ${one.class ?? ""}`, d: `${path([...up, ...down])}Z` }));
  } else if (one.kind === "bars") {
    x.forEach((at, i) => [at, one.low?.[i], one.high?.[i]].every(Number.isFinite) && inner.append(s("line", { class: "bars", x1: scale.x(at), x2: scale.x(at), y1: scale.y(one.low[i]), y2: scale.y(one.high[i]) })));
  } else if (one.kind === "line") {
    const points = x.map((at, i) => [at, one.y?.[i]]).filter((row) => row.every(Number.isFinite));
    inner.append(s("path", { class: `line ${one.class ?? ""}`, d: path(points.map(([at, y]) => [scale.x(at), scale.y(y)])) }));
  } else {
    x.forEach((at, i) => {
      const y = one.y?.[i], sd = one.sd?.[i];
      if (!Number.isFinite(at) || !Number.isFinite(y)) return;
      if (sd > 0) inner.append(s("line", { class: `error ${one.class ?? ""}`, x1: scale.x(at), x2: scale.x(at), y1: scale.y(y - sd), y2: scale.y(y + sd) }));
      inner.append(s("circle", { class: `dot ${one.class ?? ""}`, cx: scale.x(at), cy: scale.y(y), r: x.length > 300 ? 1.5 : 3 },
        s("title", {}, `${number(at)}: ${number(y)}${sd > 0 ? ` ± ${number(sd, 2)}` : ""}`)));
    });
  }
}

/** Draws a chart at its width, and again when that changes. */
function sized(figure, draw) {
  const place = h("div", { class: "drawing" });
  figure.append(place);
  let before = 0;
  new ResizeObserver(() => {
    const width = Math.max(240, Math.floor(place.clientWidth));
    if (width === before) return;
    before = width;
    place.replaceChildren(draw(width));
  }).observe(place);
}

const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (SCALE.length - 1), i = Math.min(Math.floor(at), SCALE.length - 2);
  return `rgb(${SCALE[i].map((c, k) => Math.round(c + (at - i) * (SCALE[i + 1][k] - c))).join(" ")})`;
}

/** The sides of the cells of a mesh; null for points that form none. */
function mesh(x, y) {
  const xs = [...new Set(list(x))].sort((a, b) => a - b), ys = [...new Set(list(y))].sort((a, b) => a - b);
  return xs.length > 3 && ys.length > 3 && xs.length * ys.length === x.length ? [xs[1] - xs[0], ys[1] - ys[0]] : null;
}

/** Values at points of a plane, by colour. */
export function map({ title, xlabel, ylabel, x, y, values, height = 300 }) {
  const figure = h("figure", { class: "chart" });
  const [low, high] = range(finite(list(values)), 0);
  sized(figure, (width) => {
    const scale = scales(width, height, finite(list(x)), finite(list(y)), 0.04);
    const side = mesh(x, y);
    const wide = side && (scale.x(side[0]) - scale.x(0)), high_ = side && (scale.y(0) - scale.y(side[1]));
    const cell = (at, i) => s("rect", { x: scale.x(at) - wide / 2, y: scale.y(y[i]) - high_ / 2, width: wide + 0.6, height: high_ + 0.6, fill: colour((values[i] - low) / (high - low)) },
      s("title", {}, `${xlabel} ${number(at)}, ${ylabel} ${number(y[i])}: ${number(values[i])}`));
    const dots = list(x).map((at, i) => Number.isFinite(at) && Number.isFinite(y[i]) && Number.isFinite(values[i]) && (side ? cell(at, i) :
      s("circle", { class: "spot", cx: scale.x(at), cy: scale.y(y[i]), r: x.length > 200 ? 3 : 6, fill: colour((values[i] - low) / (high - low)) },
        s("title", {}, `${xlabel} ${number(at)}, ${ylabel} ${number(y[i])}: ${number(values[i])}`))));
    return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title },
      axes(width, height, scale, xlabel, ylabel), s("g", {}, dots.filter(Boolean)));
  });
  figure.append(h("figcaption", {}, h("span", {}, title),
    h("span", { class: "legend" }, number(low, 3), h("i", { class: "ramp" }), number(high, 3))));
  return figure;
}

/** A small chart of the draws of each chain. */
export function trace(name, chains) {
  const rows = list(chains).map((row) => list(row)).filter((row) => row.length > 1).slice(0, 12);
  const all = rows.flatMap(finite);
  if (!all.length) return null;
  const [low, high] = range(all, 0.05), width = 220, height = 46;
  return s("svg", { class: "trace", viewBox: `0 0 ${width} ${height}`, role: "img", preserveAspectRatio: "none", "aria-label": `${name}: draws of each chain` },
    rows.map((row, chain) => s("path", { class: `line chain-${chain % 6}`, "vector-effect": "non-scaling-stroke",
      d: path(row.map((value, i) => [(i / (row.length - 1)) * width, height - ((value - low) / (high - low)) * height]).filter((point) => point.every(Number.isFinite))) })));
}

/** The intervals of one unknown in several runs, over one axis. */
export function intervals(title, rows) {
  const known = rows.filter((row) => Number.isFinite(row.mean));
  const figure = h("figure", { class: "chart intervals" });
  const height = TOP + BOTTOM + 24 * known.length;
  sized(figure, (width) => {
    const scale = scales(width, height, known.flatMap((row) => finite([row.low, row.mean, row.high])), [0, 1], 0.08);
    const marks = ticks(...scale.xs, Math.max(2, (width - LEFT - RIGHT) / 90)).map((at) => [
      s("line", { class: "grid", x1: scale.x(at), x2: scale.x(at), y1: TOP, y2: height - BOTTOM }),
      s("text", { class: "tick", x: scale.x(at), y: height - BOTTOM + 16, "text-anchor": "middle" }, number(at, 3))]);
    const bars = known.map((row, i) => {
      const y = TOP + 12 + 24 * i;
      return [s("text", { class: "tick", x: LEFT - 8, y: y + 4, "text-anchor": "end" }, row.run),
        Number.isFinite(row.low) && s("line", { class: `bar run-${i % 6}`, x1: scale.x(row.low), x2: scale.x(row.high), y1: y, y2: y }),
        s("circle", { class: `dot run-${i % 6}`, cx: scale.x(row.mean), cy: y, r: 4 }, s("title", {}, `${row.run}: ${number(row.mean)} [${number(row.low)}, ${number(row.high)}]`))];
    });
    return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title }, ...marks.flat(), ...bars.flat().filter(Boolean),
      s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM }));
  });
  figure.append(h("figcaption", {}, title));
  return figure;
}

/** The readings of a group of sensors: over one coordinate, on a plane, or in the order of the file. */
export function readings(group) {
  const coordinates = Object.keys(group.at ?? {}), varying = coordinates.filter((c) => new Set(group.at[c]).size > 1);
  const what = group.quantity === group.name ? group.name : `${group.name}: ${group.quantity}`;
  const title = `${what}, ${group.size}${group.shown ? `, ${group.shown} of them drawn` : ""}`;
  if (varying.length === 2) return map({ title, xlabel: varying[0], ylabel: varying[1], x: group.at[varying[0]], y: group.at[varying[1]], values: group.values });
  const x = varying.length ? group.at[varying[0]] : group.values.map((_, i) => i + 1);
  return plot({ title, xlabel: varying[0] ?? "number", ylabel: group.quantity.length < 12 ? group.quantity : group.name,
    series: [{ kind: "dots", x, y: group.values, sd: group.sd, class: group.exact ? "exact" : "" }], height: 220 });
}

/** A field: mean and 95% interval with its readings, or the mean on a plane. A run that goes on knows it at few points. */
export function field(band, groups, so_far) {
  const coordinates = Object.keys(band.at ?? {}), along = coordinates[0], x = list(band.at?.[along]);
  const mine = list(groups).filter((group) => group.quantity === band.name);
  const title = `${band.name}${so_far ? " so far" : ""}: mean and 95% interval`;
  if (coordinates.length === 1) {
    const few = x.length < 40;
    const series = few
      ? [{ kind: "bars", x, low: band.low, high: band.high, name: "95% interval" }, { kind: "line", x, y: band.mean, class: "thin" }, { kind: "dots", x, y: band.mean, class: "mean", name: "mean" }]
      : [{ kind: "band", x, low: band.low, high: band.high, name: "95% interval" }, { kind: "line", x, y: band.mean, name: "mean" }];
    mine.forEach((group) => series.push({ kind: "dots", x: group.at[along], y: group.values, sd: group.sd, class: group.exact ? "exact" : "", name: group.exact ? "points" : "readings" }));
    return plot({ title, xlabel: along, ylabel: band.name, series });
  }
  if (coordinates.length !== 2) return null;
  const [xlabel, ylabel] = coordinates, half = list(band.high).map((high, i) => (high - band.low[i]) / 4);
  const plane = { xlabel, ylabel, x: band.at[xlabel], y: band.at[ylabel] };
  return [map({ title: `${band.name}${so_far ? " so far" : ""}: mean`, ...plane, values: band.mean }), map({ title: `${band.name}: sd, as a quarter of the 95% interval`, ...plane, values: half })];
}
