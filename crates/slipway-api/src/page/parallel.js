// Parallel coordinates: an axis for each variable and output, a line for each result. Each axis has two handles, which are
// sliders for the keyboard; a drag along the axis chooses a range.

import { h, s, number, choice } from "./dom.js";
import { marks, shade, label, key } from "./plot.js";

const [WIDTH, HEIGHT, TOP, BOTTOM, SIDE] = [1080, 340, 46, 22, 70];
const STEPS = { ArrowUp: 0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1, Home: -1, End: 1 };

export function parallel(place, data) {
  const axes = data.dimensions;
  if (!data.rows.length || axes.length < 2) {
    place.replaceChildren(h("h2", {}, "Parallel coordinates"), h("p", { class: "soft" }, data.rows.length ? "It takes two variables or outputs." : "No results yet."));
    return;
  }
  const outputs = axes.filter((axis) => axis.output);
  const colour = axes.find((axis) => axis.name === data.axes.colour) ?? outputs.at(-1) ?? axes.at(-1);
  const scales = axes.map((axis) => data.scale(axis.at));
  const x = (index) => SIDE + (index * (WIDTH - 2 * SIDE)) / (axes.length - 1);
  const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
  const lines = s("g", { "aria-hidden": "true" });
  const draw = () => {
    const passes = data.filter(), tint = data.scale(colour.at);
    const paths = Array.from({ length: 9 }, () => []);
    for (const row of data.rows) {
      const spots = axes.map((axis, index) => [x(index), scales[index].share(row[axis.at])]);
      if (spots.some(([, share]) => share === null || share === undefined)) continue;
      const path = spots.map(([px, share], index) => `${index ? "L" : "M"}${px.toFixed(1)} ${y(share).toFixed(1)}`).join("");
      paths[passes(row) ? shade(tint.share(row[colour.at])) : 8].push(path);
    }
    lines.replaceChildren(s("path", { class: "off", d: paths[8].join("") }), ...paths.slice(0, 8).map((path, index) => s("path", { class: `line l${index}`, d: path.join("") })));
  };
  const again = () => { draw(); data.changed(); summary.textContent = told(data); };
  const summary = h("span", { role: "status" }, told(data));
  const svg = s("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `Parallel coordinates of ${axes.map((axis) => axis.name).join(", ")}; ${data.rows.length} results. The table has the same values.` }, lines,
    axes.map((axis, index) => one(svgOf, data, axis, scales[index], x(index), y, again)));
  function svgOf() { return svg; }
  draw();
  const clear = h("button", { onclick: () => { data.brushes.clear(); parallel(place, data); data.changed(); } }, "Choose all");
  const tinted = choice("Colour", axes.map((axis) => axis.name), colour.name, (name) => { data.axes.colour = name; parallel(place, data); data.changed(); });
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("data-handle") : null;
  place.replaceChildren(h("div", { class: "row between" }, h("h2", {}, "Parallel coordinates"), h("div", { class: "row" }, tinted, clear)), h("figure", {}, svg, h("figcaption", {}, key(colour, data.scale(colour.at)), summary)));
  if (focused) place.querySelector(`[data-handle="${focused}"]`)?.focus();
}

const told = (data) => `${number(data.chosen.length)} of ${number(data.rows.length)} results chosen. Drag along an axis to choose a range; with the keyboard, move an axis's two handles by arrow keys.`;

/** An axis with its brush. */
function one(svg, data, axis, scale, x, y, again) {
  const group = s("g", { role: "group", class: "over", "aria-label": label(axis) });
  const range = () => data.brushes.get(axis.name) ?? [0, 1];
  const set = (low, high) => {
    const [a, b] = [Math.max(0, Math.min(low, high)), Math.min(1, Math.max(low, high))];
    if (a <= 0 && b >= 1) data.brushes.delete(axis.name); else data.brushes.set(axis.name, [a, b]);
    paint();
    again();
  };
  const text = (share) => (scale.words ? scale.words[Math.round(share * (scale.words.length - 1))] ?? "" : number(Number((scale.low + share * (scale.high - scale.low)).toPrecision(4))));
  const brush = s("rect", { class: "brush", x: x - 9, width: 18 });
  const share = (event) => {
    const box = svg().getBoundingClientRect();
    const py = ((event.clientY - box.top) * HEIGHT) / box.height;
    return Math.max(0, Math.min(1, (y(0) - py) / (y(0) - y(1))));
  };
  const drag = (move) => (event) => {
    event.preventDefault();
    event.stopPropagation();
    const target = event.currentTarget;
    target.setPointerCapture(event.pointerId);
    const begin = share(event);
    let moved = false;
    const on = (next) => { moved ||= Math.abs(share(next) - begin) > 0.01; if (moved) move(begin, share(next)); };
    const end = () => {
      target.removeEventListener("pointermove", on);
      if (!moved && target.classList.contains("hit")) set(0, 1);
    };
    target.addEventListener("pointermove", on);
    target.addEventListener("pointerup", end, { once: true });
    target.addEventListener("pointercancel", end, { once: true });
  };
  const hit = s("rect", { class: "hit", x: x - 16, y: y(1) - 8, width: 32, height: y(0) - y(1) + 16, onpointerdown: drag((from, to) => set(from, to)) });
  const handle = (which) => {
    const move = (to) => { const [low, high] = range(); if (which) set(low, Math.max(low, to)); else set(Math.min(to, high), high); };
    const keys = (event) => {
      if (event.key === "Escape") return set(0, 1);
      const step = STEPS[event.key];
      if (step === undefined) return;
      event.preventDefault();
      move(Math.max(0, Math.min(1, range()[which] + (scale.words && Math.abs(step) < 0.1 ? Math.sign(step) / Math.max(1, scale.words.length - 1) : step))));
    };
    return s("path", { class: "handle", tabindex: 0, role: "slider", "data-handle": `${axis.name}-${which}`, "aria-orientation": "vertical", "aria-label": `${axis.name}: ${which ? "greatest" : "least"} value chosen`, "aria-valuemin": scale.low, "aria-valuemax": scale.high, onkeydown: keys, onpointerdown: drag((_, to) => move(to)) });
  };
  const handles = [handle(0), handle(1)];
  function paint() {
    const [low, high] = range();
    brush.setAttribute("y", y(high));
    brush.setAttribute("height", Math.max(0, y(low) - y(high)));
    brush.setAttribute("visibility", data.brushes.has(axis.name) ? "visible" : "hidden");
    handles.forEach((element, which) => {
      const [at, down] = [range()[which], which ? -1 : 1];
      element.setAttribute("d", `M${x - 7} ${y(at)}h14l-7 ${9 * down}z`);
      element.setAttribute("aria-valuenow", scale.low + at * (scale.high - scale.low));
      element.setAttribute("aria-valuetext", text(at));
    });
  }
  paint();
  group.append(
    s("path", { class: "axis", d: `M${x} ${y(0)}V${y(1)}` }),
    ...marks(scale, 6).map(([at, word]) => s("text", { x: x - 12, y: y(at) + 4, "text-anchor": "end", "aria-hidden": "true" }, word)),
    s("text", { class: "name", x, y: 18, "text-anchor": "middle" }, label(axis)), hit, brush, ...handles);
  brush.setAttribute("pointer-events", "none");
  return group;
}
