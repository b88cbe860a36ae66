// Time series of some points.

import { get, url } from "./api.js";
import { h, s, put, number, choice, warn } from "./dom.js";
import { frame } from "./plot.js";

const [WIDTH, HEIGHT, MOST] = [1080, 420, 24];

export async function series(place, data) {
  const outputs = data.of.outputs.filter((one) => one.series);
  const state = { output: outputs[0], points: data.chosen.slice(0, 8).map((row) => row[0]) };
  const plot = h("section", { class: "card" });
  place.replaceChildren(plot);
  const loaded = new Map();
  const draw = async () => {
    const curves = [];
    for (const number of state.points.slice(0, MOST)) {
      const key = `${state.output.name}/${number}`;
      if (!loaded.has(key)) {
        try { loaded.set(key, await get(url(data.of.id, `/points/${number}/series/${encodeURIComponent(state.output.name)}`))); } catch (error) {
          if (error.code !== "not-found") throw error;
          continue;
        }
      }
      curves.push({ number, ...loaded.get(key) });
    }
    let [low, high, length] = [Infinity, -Infinity, 2];
    for (const { values, count } of curves) {
      length = Math.max(length, count);
      for (const value of values) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
    if (low > high) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    const scale = (a, b) => ({ words: null, low: a, high: b, share: (value) => (value - a) / (b - a) });
    const [sx, sy] = [scale(0, length - 1), scale(low, high)];
    const name = state.output.unit ? `${state.output.name} [${state.output.unit}]` : state.output.name;
    const { place: at, lines } = frame(WIDTH, HEIGHT, sx, sy, ["step", name]);
    const paths = curves.map((curve, index) => {
      let pen = "M";
      const path = curve.values.map((value, place) => {
        if (value === null) { pen = "M"; return ""; }
        const [px, py] = at(sx.share(curve.at[place]), sy.share(value));
        const part = `${pen}${px.toFixed(1)} ${py.toFixed(1)}`;
        pen = "L";
        return part;
      }).join("");
      return s("path", { class: `curve k${index % 8}`, d: path }, s("title", {}, `point ${curve.number}`));
    });
    const field = h("input", { value: state.points.join(", "), size: 24 });
    const take = (event) => {
      event.preventDefault();
      state.points = [...new Set(field.value.split(/[\s,]+/).filter((word) => /^\d{1,12}$/.test(word)).map(Number))];
      draw().catch(warn);
    };
    const about = curves.map(({ number: of, values }) => `point ${of} from ${number(Math.min(...values.filter((value) => value !== null)))} to ${number(Math.max(...values.filter((value) => value !== null)))}`);
    put(plot,
      h("div", { class: "row between" }, h("h2", {}, "Time series"), h("form", { class: "row", onsubmit: take },
        choice("Output", outputs.map((one) => one.name), state.output.name, (chosen) => { state.output = outputs.find((one) => one.name === chosen); draw().catch(warn); }),
        h("label", {}, "Points", field), h("button", {}, "Draw"))),
      h("figure", {}, s("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name}: ${about.join("; ") || "no curve"}` }, lines, paths),
        h("figcaption", {}, h("ul", { class: "legend" }, curves.map((curve, index) => h("li", {}, s("svg", { width: 18, height: 8, "aria-hidden": "true" }, s("path", { class: `curve k${index % 8}`, d: "M1 4H17" })), ` point ${curve.number}`))))),
      state.points.length > MOST && h("p", { class: "note" }, `The plot has the first ${MOST} points.`));
  };
  await draw();
  return async () => {
    if (state.points.length) return;
    state.points = data.chosen.slice(0, 8).map((row) => row[0]);
    await draw();
  };
}
