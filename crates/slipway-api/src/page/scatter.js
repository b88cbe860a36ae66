// Results as dots: any column against any other.

import { h, s, number, choice } from "./dom.js";
import { frame, shade, label, key } from "./plot.js";
import { point } from "./failures.js";

const [WIDTH, HEIGHT] = [1080, 400];
/** More dots than this are one path without details. */
const SINGLE = 4000;

export function scatter(place, data) {
  const axes = data.dimensions;
  if (!data.rows.length || axes.length < 2) return place.replaceChildren(h("h2", {}, "Scatter"), h("p", { class: "soft" }, "No results yet."));
  const find = (name, otherwise) => axes.find((axis) => axis.name === name) ?? otherwise;
  const x = find(data.axes.x, axes[0]), y = find(data.axes.y, axes.find((axis) => axis.output) ?? axes[1]);
  const colour = find(data.axes.colour, axes.filter((axis) => axis.output).at(-1) ?? axes.at(-1));
  const [sx, sy, sc] = [x, y, colour].map((axis) => data.scale(axis.at));
  const { place: at, lines } = frame(WIDTH, HEIGHT, sx, sy, [label(x), label(y)]);
  const passes = data.filter();
  const dots = [];
  for (const row of data.rows.slice(0, SINGLE)) {
    const [a, b] = [sx.share(row[x.at]), sy.share(row[y.at])];
    if (a === null || b === null) continue;
    const [px, py] = at(a, b);
    const isIn = passes(row);
    const dot = s("circle", { class: `dot ${isIn ? `f${shade(sc.share(row[colour.at]))}` : "dim"}`, cx: px.toFixed(1), cy: py.toFixed(1), r: 4, onclick: () => point(data.of, row[0]) }, s("title", {}, `point ${row[0]}: ${x.name} ${number(row[x.at])}, ${y.name} ${number(row[y.at])}`));
    if (isIn) dots.push(dot); else dots.unshift(dot);
  }
  const pick = (key) => (name) => { data.axes[key] = name; scatter(place, data); };
  const names = axes.map((axis) => axis.name);
  const cut = data.rows.length > SINGLE ? ` The first ${number(SINGLE)} results.` : "";
  place.replaceChildren(
    h("div", { class: "row between" }, h("h2", {}, "Scatter"), h("div", { class: "row" }, choice("Across", names, x.name, pick("x")), choice("Up", names, y.name, pick("y")))),
    h("figure", {}, s("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${y.name} against ${x.name}: ${dots.length} results${relation(data, x.at, y.at)}` }, lines, dots),
      h("figcaption", {}, key(colour, sc), `A dot opens its point.${cut}`)));
}

/** Pearson's correlation, for those who do not see the dots. */
function relation(data, a, b) {
  const pairs = data.chosen.map((row) => [row[a], row[b]]).filter((pair) => pair.every((value) => typeof value === "number"));
  if (pairs.length < 3) return "";
  const mean = (at) => pairs.reduce((sum, pair) => sum + pair[at], 0) / pairs.length;
  const [ma, mb] = [mean(0), mean(1)];
  let [ab, aa, bb] = [0, 0, 0];
  for (const [va, vb] of pairs) { ab += (va - ma) * (vb - mb); aa += (va - ma) ** 2; bb += (vb - mb) ** 2; }
  return aa && bb ? `; correlation ${(ab / Math.sqrt(aa * bb)).toFixed(2)}` : "";
}
