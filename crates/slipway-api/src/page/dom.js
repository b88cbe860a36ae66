// Elements, and texts for people. Texts become text nodes, so nothing that a program wrote becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width%") element.style.width = `${value}%`;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...there(children));
  return element;
}

/** Children without the absent ones, so that `condition && child` can stand among them. */
const there = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");

/** Replaces all that an element has. */
export const put = (element, ...children) => element.replaceChildren(...there(children));

/** An HTML element. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A number with a few significant digits. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return value.toLocaleString("en").replaceAll(",", " ");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** A duration in seconds. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = seconds / 3600;
  return hours < 48 ? `${Math.floor(hours)} h ${String(Math.round((hours % 1) * 60)).padStart(2, "0")} min` : `${number(hours / 24)} d`;
}

/** A size in bytes. */
export function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (size >= 1024 && unit < 4) [size, unit] = [size / 1024, unit + 1];
  return `${number(size)} ${units[unit]}`;
}

/** Says something to screen readers. */
export const say = (text) => { document.getElementById("live").textContent = text; };

/** Shows an error for a while. */
export function warn(error) {
  const place = document.getElementById("alert");
  place.textContent = error.hint ? `${error.message} – ${error.hint}` : error.message;
  clearTimeout(warn.timer);
  warn.timer = setTimeout(() => { place.textContent = ""; }, 8000);
}

/** A labelled choice. `options` are texts, or pairs of value and text. */
export function choice(label, options, value, change) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const select = h("select", { onchange: (event) => change(event.target.value) },
    pairs.map(([of, text]) => h("option", { value: of, selected: String(of) === String(value) }, text)));
  return h("label", {}, label, select);
}
