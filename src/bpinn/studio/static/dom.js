// Elements, requests and numbers. Texts are set as text, never as HTML; formulas are checked element by element.

const SVG = "http://www.w3.org/2000/svg";
const MATH = "http://www.w3.org/1998/Math/MathML";
const MATH_ATTRIBUTES = new Set(["display", "alttext", "stretchy", "width", "mathvariant"]);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element) element.value = value;
    else if (name === "checked") element.checked = Boolean(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** A formula of the server: only elements of MathML, with attributes that are known. */
export function math(text) {
  const found = new DOMParser().parseFromString(String(text), "text/html").querySelector("math");
  if (!found) return h("code", {}, String(text));
  for (const element of [found, ...found.querySelectorAll("*")]) {
    if (element.namespaceURI !== MATH) return h("code", {}, found.getAttribute("alttext") ?? found.textContent);
    for (const { name } of [...element.attributes]) if (!MATH_ATTRIBUTES.has(name)) element.removeAttribute(name);
  }
  return document.importNode(found, true);
}

/** Replace what an element holds; the control that has the focus keeps it, with what was typed into it. */
export function fill(container, ...children) {
  const active = document.activeElement;
  const key = container.contains(active) ? active.dataset?.key : undefined;
  const open = new Set([...container.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key));
  const typed = key && (active.tagName === "TEXTAREA" || (active.tagName === "INPUT" && active.type !== "checkbox"));
  const kept = typed ? { value: active.value, dirty: active.dataset.dirty, selection: selectionOf(active) } : null;
  container.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const one of container.querySelectorAll("details[data-key]")) if (open.has(one.dataset.key)) one.open = true;
  if (key === undefined) return;
  const again = container.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!again) return;
  if (kept?.dirty) again.value = kept.value;
  again.focus({ preventScroll: true });
  if (kept?.selection) again.setSelectionRange(...kept.selection);
}

function selectionOf(input) {
  try {
    return input.selectionStart === null ? null : [input.selectionStart, input.selectionEnd];
  } catch {
    return null; // inputs of numbers have none
  }
}

export class Refused extends Error {}

/** A request to the studio; what it refuses is an error with its sentence. */
export async function api(path, body, bytes) {
  const post = body !== undefined || bytes !== undefined;
  const type = bytes === undefined ? "application/json" : "application/octet-stream";
  const request = post ? { method: "POST", headers: { "Content-Type": type }, body: bytes ?? JSON.stringify(body) } : {};
  let answer;
  try {
    answer = await fetch(`api/${path}`, request);
  } catch {
    throw new Refused("The studio does not answer. Is `bpinn studio` still running in its terminal?");
  }
  const content = await answer.json().catch(() => ({ error: `the studio answered ${answer.status}` }));
  if (!answer.ok) throw new Refused(content.error ?? `the studio answered ${answer.status}`);
  return content;
}

export const part = (text) => encodeURIComponent(text);

let hiding = 0;
export function say(message, kind = "bad") {
  const place = document.getElementById("said");
  place.replaceChildren(h("p", { class: kind }, message));
  clearTimeout(hiding);
  hiding = setTimeout(() => place.replaceChildren(), 12000);
}

/** A handler of an event that shows what is refused. */
export const doing = (act) => async (...given) => {
  given[0]?.preventDefault?.();
  try {
    await act(...given);
  } catch (error) {
    say(error.message);
    if (!(error instanceof Refused)) throw error;
  }
};

export function number(value, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  const text = Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-4)
    ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

/** Such as 0.805 ± 0.066: two digits of the error, and as many decimals of the value. */
export function withError(mean, sd) {
  if (!Number.isFinite(sd) || sd <= 0) return number(mean);
  const decimals = 1 - Math.floor(Math.log10(sd));
  if (decimals < 0 || decimals > 6) return `${number(mean)} ± ${number(sd, 2)}`;
  return `${mean.toFixed(decimals)} ± ${sd.toFixed(decimals)}`.replace("-", "−");
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
