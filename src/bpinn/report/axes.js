// Elements, numbers and axes. What is shown is made of nodes and text, never of markup: names may hold anything.

const GREEK = {
  alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", zeta: "ζ", eta: "η", theta: "θ", kappa: "κ", mu: "μ",
  nu: "ν", xi: "ξ", rho: "ρ", sigma: "σ", tau: "τ", phi: "φ", chi: "χ", psi: "ψ", omega: "ω",
};

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== false && value !== null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

/** A letter with its subscript, for an axis. */
function symbol([letter, below]) {
  const single = letter.length === 1 || letter in GREEK;
  const name = svg("tspan", single ? { class: "symbol" } : {}, GREEK[letter] ?? letter);
  return below ? [name, svg("tspan", { dy: 4, class: "below" }, below)] : [name];
}

/** A number with so many decimals, as the page's own numbers are; long ones in scientific notation. */
function format(value, decimals) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = size > 0 ? Math.floor(Math.log10(size)) + 1 + decimals : 1;
  const plain = size < 1e6 && decimals <= 6;
  const text = plain ? value.toFixed(Math.max(0, decimals)) : value.toPrecision(Math.min(9, Math.max(1, digits)));
  return (Number(text) === 0 ? text.replace("-", "") : text).replaceAll("-", "−");
}

/** A number with three digits, for the ends of a scale. */
const brief = (value) => String(Number(value.toPrecision(3))).replaceAll("-", "−");

/** Decimals that tell neighbouring points of an axis apart. */
function decimalsOf(points) {
  const step = (points[points.length - 1] - points[0]) / Math.max(1, points.length - 1);
  return step > 0 ? Math.max(0, 1 - Math.floor(Math.log10(step))) : 3;
}

function ticksOf(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((multiple) => multiple * power >= rough);
  const decimals = -Math.floor(Math.log10(step) + 1e-9);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, i) => (first + i) * step).map((at) => [at, format(at, decimals)]);
}

/** The range of numbers, with some room; nulls are left out. */
function rangeOf(lists, room) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists)
    for (const value of list ?? [])
      if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) return [0, 1];
  const more = (high - low || Math.abs(high) || 1) * (high > low ? room : 0.5);
  return [low - more, high + more];
}

/** Axes with ticks and names; `px` and `py` map numbers to pixels. An axis is {range, math, text, ticks}. */
function frameOf(width, height, x, y) {
  const [top, right, bottom] = [10, 16, 46];
  const yTicks = y.ticks === false ? [] : ticksOf(...y.range, height / 45);
  const left = 34 + 7 * Math.max(0, ...yTicks.map(([, text]) => text.length));
  const xTicks = x.ticks === false ? [] : ticksOf(...x.range, (width - left) / 75);
  const part = (value, [low, high]) => (value - low) / (high - low);
  const px = (value) => left + part(value, x.range) * (width - left - right);
  const py = (value) => height - bottom - part(value, y.range) * (height - top - bottom);
  const base = height - bottom;
  const name = (axis, at) => svg("text", { class: "name", ...at }, axis.math ? symbol(axis.math) : axis.text);
  const axes = svg(
    "g",
    { class: "axes" },
    svg("path", { d: `M${left} ${top}V${base}H${width - right}` }),
    xTicks.map(([at, text]) => [
      svg("path", { d: `M${px(at)} ${base}v5` }),
      svg("text", { x: px(at), y: base + 19, "text-anchor": "middle" }, text),
    ]),
    yTicks.map(([at, text]) => [
      svg("path", { d: `M${left} ${py(at)}h-5` }),
      svg("text", { x: left - 9, y: py(at) + 4, "text-anchor": "end" }, text),
    ]),
    name(x, { x: (left + width - right) / 2, y: height - 7, "text-anchor": "middle" }),
    name(y, { transform: `translate(15 ${(top + base) / 2}) rotate(-90)`, "text-anchor": "middle" }),
  );
  return { width, height, left, top, right: width - right, base, px, py, axes };
}

/** A line through points; it is broken where there is no number. */
function lineOf(frame, xs, ys, style) {
  let d = "";
  let pen = "M";
  ys.forEach((value, i) => {
    if (value === null) pen = "M";
    else {
      d += `${pen}${frame.px(xs[i]).toFixed(1)} ${frame.py(value).toFixed(1)}`;
      pen = "L";
    }
  });
  return svg("path", { d, class: `line ${style}` });
}

function areaOf(frame, xs, low, high, style) {
  const known = xs.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
  const corner = (i, values) => `${frame.px(xs[i]).toFixed(1)} ${frame.py(values[i]).toFixed(1)}`;
  const there = known.map((i) => corner(i, high));
  const back = known.map((i) => corner(i, low)).reverse();
  return svg("path", { d: there.length ? `M${there.concat(back).join("L")}Z` : "", class: `area ${style}` });
}

/** Readings as dots with one sd of noise, points of exact conditions as crosses. */
function markOf(frame, mark, style = "") {
  const [x, y] = [frame.px(mark.x), frame.py(mark.y)];
  if (mark.exact) return svg("path", { d: `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`, class: `cross ${style}` });
  const bar = mark.noise ? `M${x} ${frame.py(mark.y - mark.noise)}V${frame.py(mark.y + mark.noise)}` : "";
  return [svg("path", { d: bar, class: `bar ${style}` }), svg("circle", { cx: x, cy: y, r: 3.2, class: `dot ${style}` })];
}
