// Axes and scales of plots.

import { h, s, number } from "./dom.js";

/** Round places between two numbers. */
export function ticks(low, high, most = 6) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((of) => of * power).find((of) => of >= rough) ?? rough;
  const list = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) list.push(Math.abs(at) < step * 1e-9 ? 0 : Number(at.toPrecision(12)));
  return list;
}

/** Places and texts along a scale of [`Data.scale`], as shares. */
export function marks(scale, most) {
  if (scale.words) return scale.words.slice(0, 20).map((word) => [scale.share(word), word.length > 14 ? `${word.slice(0, 13)}…` : word]);
  return ticks(scale.low, scale.high, most).map((value) => [scale.share(value), number(value)]);
}

/** One of eight colours along a scale. */
export const shade = (share) => Math.max(0, Math.min(7, Math.floor((share ?? 0) * 8)));

/** The colours of a scale. */
export function key(axis, scale) {
  const [low, high] = scale.words ? [scale.words[0], scale.words.at(-1)] : [number(scale.low), number(scale.high)];
  const boxes = Array.from({ length: 8 }, (_, index) => s("rect", { class: `f${index}`, x: index * 12, width: 12, height: 12 }));
  return h("p", { class: "legend" }, `${label(axis)}: ${low}`, s("svg", { class: "key", width: 96, height: 12, "aria-hidden": "true" }, boxes), high);
}

export const label = ({ name, unit }) => (unit ? `${name} [${unit}]` : name);

/** A frame with both axes. `place` maps shares to pixels. */
export function frame(width, height, x, y, names) {
  const edge = { left: 62, right: 14, top: 12, bottom: 44 };
  const [w, t] = [width - edge.left - edge.right, height - edge.top - edge.bottom];
  const place = (a, b) => [edge.left + a * w, edge.top + (1 - b) * t];
  const lines = [];
  for (const [at, text] of marks(x, 7)) {
    const [px, py] = place(at, 0);
    lines.push(s("path", { class: "axis", d: `M${px} ${edge.top}V${py}` }), s("text", { x: px, y: py + 17, "text-anchor": "middle" }, text));
  }
  for (const [at, text] of marks(y, 6)) {
    const [px, py] = place(0, at);
    lines.push(s("path", { class: "axis", d: `M${px} ${py}H${px + w}` }), s("text", { x: px - 7, y: py + 4, "text-anchor": "end" }, text));
  }
  const [mx, my] = place(0.5, 0);
  lines.push(s("text", { class: "name", x: mx, y: my + 37, "text-anchor": "middle" }, names[0]), s("text", { class: "name", x: 14, y: edge.top + t / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${edge.top + t / 2})` }, names[1]));
  return { place, lines: s("g", { "aria-hidden": "true" }, lines) };
}
