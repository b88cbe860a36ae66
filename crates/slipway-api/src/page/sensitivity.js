// How much each variable matters: bars with their intervals.

import { get, url } from "./api.js";
import { h, s, number } from "./dom.js";

/** Measures that a design has: key, name, whether it may be negative. */
const KINDS = {
  morris: { keys: [["mu_star", "μ* (how much it matters)"], ["sigma", "σ (curvature, interaction)"]], rows: (of) => of },
  variance: { keys: [["total", "ST (with interactions)"], ["first", "S1 (alone)"]], rows: (of) => of.variables },
  fast: { keys: [["total", "ST (with interactions)"], ["first", "S1 (alone)"]], rows: (of) => of },
  sample: { keys: [["first", "S1 (share of variance)"], ["spearman", "rank correlation"], ["regression", "regression (standardized)"]], rows: (of) => of.variables },
};

export async function sensitivity(place, of) {
  const draw = async () => {
    const series = new Set(of.outputs.filter((one) => one.series).map((one) => one.name));
    const all = (await get(url(of.id, "/sensitivity"))).filter((one) => !series.has(one.output));
    place.replaceChildren(...(all.length ? all.map(card) : [h("p", { class: "card soft" }, "The campaign has no outputs that are numbers.")]));
  };
  await draw();
  return draw;
}

function card({ output, analysis, why }) {
  if (!analysis) return h("section", { class: "card" }, h("h2", {}, output), h("p", { class: "soft" }, why.split("\nHint: ").join(". ")));
  const [kind, measures] = Object.entries(analysis.measures)[0];
  const { keys, rows } = KINDS[kind];
  const variables = rows(measures);
  const fit = typeof measures.r_squared === "number" ? ` A straight line in all variables explains ${Math.round(100 * measures.r_squared)} % of the variance.` : "";
  return h("section", { class: "card" }, h("h2", {}, output),
    h("div", { class: "grid" }, keys.filter(([key]) => variables.some((one) => one[key] !== null && one[key] !== undefined)).map(([key, name]) => bars(variables, key, name))),
    h("p", { class: "small soft" }, `From ${number(analysis.used)} points${analysis.dropped ? `; ${number(analysis.dropped)} left out` : ""}. Lines are 95 % intervals.${fit}`));
}

function bars(variables, key, name) {
  const estimate = (one) => (typeof one[key] === "number" ? { value: one[key], low: one[key], high: one[key] } : one[key]);
  const list = variables.map((one) => ({ name: one.name, ...(estimate(one) ?? { value: 0, low: 0, high: 0 }) })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 20);
  const low = Math.min(0, ...list.map((one) => one.low)), high = Math.max(1e-12, ...list.map((one) => one.high));
  const [width, line, left] = [460, 28, 130];
  const x = (value) => left + ((value - low) / (high - low)) * (width - left - 60);
  const rows = list.map((one, index) => {
    const y = 8 + index * line;
    return s("g", {}, s("text", { class: "name", x: left - 10, y: y + 14, "text-anchor": "end" }, one.name.length > 16 ? `${one.name.slice(0, 15)}…` : one.name),
      s("rect", { class: one.value < 0 ? "k3" : "k0", "stroke-width": 0, x: Math.min(x(0), x(one.value)), y: y + 3, width: Math.max(1, Math.abs(x(one.value) - x(0))), height: 14, rx: 2 }),
      one.high > one.low && s("path", { class: "span", d: `M${x(one.low)} ${y + 10}H${x(one.high)}M${x(one.low)} ${y + 6}v8M${x(one.high)} ${y + 6}v8` }),
      s("text", { x: Math.max(x(one.high), x(0)) + 6, y: y + 14 }, number(Number(one.value.toPrecision(2)))));
  });
  return h("figure", {}, h("figcaption", {}, name), s("svg", { class: "plot", viewBox: `0 0 ${width} ${16 + list.length * line}`, role: "img", "aria-label": `${name}: ${list.map((one) => `${one.name} ${number(Number(one.value.toPrecision(2)))}`).join(", ")}` }, s("path", { class: "zero", d: `M${x(0)} 2V${12 + list.length * line}` }), rows));
}
