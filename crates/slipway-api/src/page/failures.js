// Points that failed, and one point in detail: values, results, output of its program, files.

import { get, post, may, url } from "./api.js";
import { h, put, number, bytes, choice, say, warn } from "./dom.js";

export async function failures(place, of) {
  const state = { failure: "" };
  const draw = async () => {
    const fresh = await get(url(of.id, ""));
    const kinds = Object.entries(fresh.failures);
    const all = await get(url(of.id, `/points?state=failed&limit=200${state.failure ? `&failure=${state.failure}` : ""}`));
    const retry = async () => {
      try {
        const { retried } = await post(url(of.id, "/retry"), state.failure ? { failure: state.failure } : {});
        say(`${retried} points will run again`);
        await draw();
      } catch (error) { warn(error); }
    };
    if (!kinds.length) return place.replaceChildren(h("div", { class: "card empty" }, "No point has failed."));
    put(place, h("section", { class: "card" },
      h("div", { class: "row between" }, h("h2", {}, `Failures: ${kinds.map(([kind, count]) => `${number(count)} ${kind}`).join(", ")}`),
        h("div", { class: "row" }, choice("Kind", [["", "all"], ...kinds.map(([kind]) => [kind, kind])], state.failure, (kind) => { state.failure = kind; draw().catch(warn); }),
          may("run") && h("button", { onclick: retry }, "Retry these"))),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Points that failed" }, h("table", {},
        h("thead", {}, h("tr", {}, ["point", "kind", "attempts", "worker", "message"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, all.map((one) => h("tr", {}, h("td", {}, h("button", { class: "plain", onclick: () => point(of, one.point) }, one.point)), h("td", {}, one.failure), h("td", {}, one.attempts), h("td", {}, `w${one.worker}`), h("td", { class: "wide" }, first(one.message))))))),
      all.length === 200 && h("p", { class: "small soft" }, "The first 200.")));
  };
  await draw();
  return null;
}

const first = (message) => { const lines = (message ?? "").split("\n"); return lines.slice(0, 3).join("\n") + (lines.length > 3 ? " …" : ""); };

/** Shows a point in a dialog. */
export async function point(of, number_) {
  const place = document.getElementById("point");
  try {
    const one = await get(url(of.id, `/points/${number_}`));
    const log = await get(url(of.id, `/points/${number_}/log`)).catch((error) => { if (error.code === "not-found") return null; throw error; });
    const sorted = (values, list) => Object.fromEntries(list.filter(({ name }) => name in values).map(({ name }) => [name, values[name]]));
    const facts = (title, values) => Object.keys(values).length > 0 && [h("h2", {}, title), h("dl", { class: "tiles" }, Object.entries(values).filter(([, value]) => value !== null).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, number(value)))))];
    const output = (title, text) => text && [h("h2", {}, title), h("pre", { tabindex: 0 }, text)];
    put(place,
      h("div", { class: "row between" }, h("div", { class: "row" }, h("h1", { id: "point-title" }, `Point ${one.point}`), h("span", { class: `state ${{ done: "ended", failed: "cancelled" }[one.state] ?? one.state}` }, one.state)), h("button", { onclick: () => place.close(), autofocus: true }, "Close")),
      h("p", { class: "soft small" }, `attempts ${one.attempts} · worker ${one.worker ? `w${one.worker}` : "–"} · seed ${one.seed}`),
      output(`Failure: ${one.failure ?? ""}`, one.message), facts("Variables", sorted(one.values, of.variables)), facts("Results", sorted(one.outputs, of.outputs)),
      output("Standard error", log?.stderr), output("Standard output", log?.stdout),
      one.files.length > 0 && [h("h2", {}, "Files"), h("ul", {}, one.files.slice(0, 200).map((file) => h("li", {}, h("a", { href: `/api/v1${url(of.id, `/points/${one.point}/files/${file.path.split("/").map(encodeURIComponent).join("/")}`)}`, download: "" }, file.path), h("span", { class: "soft" }, ` ${bytes(file.size)}`))))]);
    place.showModal();
  } catch (error) { warn(error); }
}
