// One campaign: its progress, and a tab for each way to look at it.

import { get, post, call, may, url } from "./api.js";
import { h, put, number, duration, say, warn } from "./dom.js";
import { bar } from "./list.js";
import { Data, table } from "./table.js";
import { parallel } from "./parallel.js";
import { scatter } from "./scatter.js";
import { series } from "./series.js";
import { sensitivity } from "./sensitivity.js";
import { failures } from "./failures.js";

/** Shortest time between two loads of new results. */
const LOAD = 2000;

/** The tab that was chosen by a key. It has the focus once its view is there, which makes the tabs anew. */
let awaited = null;

export async function campaign(main, id, part) {
  const of = await get(url(id, ""));
  const data = new Data(of);
  await data.load();
  const head = h("section", { class: "card", "aria-label": "Progress" });
  const body = h("div", { role: "tabpanel", id: "panel", tabindex: 0, "aria-labelledby": `tab-${part ?? "overview"}` });
  const tabs = { overview, results: resultsTab, ...(of.outputs.some((one) => one.series) && { series: seriesTab }), sensitivity: sensitivityTab, failures: failuresTab };
  const chosen = part in tabs ? part : "overview";
  main.replaceChildren(head, strip(id, Object.keys(tabs), chosen), body);
  if (awaited === chosen) document.getElementById(`tab-${chosen}`).focus();
  awaited = null;
  let progress = of;
  let view = await tabs[chosen](body, of, data);
  const tell = header(head, of);
  tell(progress);

  let due = 0, spoken = "", timer = null;
  const fresh = async () => {
    timer = null;
    const isMore = await data.load();
    if (isMore || chosen === "overview") await view?.(progress, true);
  };
  const events = new EventSource(`/api/v1${url(id, "/events")}`);
  events.addEventListener("progress", async (event) => {
    progress = JSON.parse(event.data);
    tell(progress);
    if (chosen === "overview") view(progress);
    const { counts, state } = progress;
    const word = `${state}, ${Math.floor((20 * (counts.done + counts.failed)) / Math.max(counts.points, 1)) * 5} percent`;
    if (word !== spoken) say(`${of.name}: ${spoken = word}`);
    timer ??= setTimeout(() => { due = Date.now() + LOAD; fresh().catch(warn); }, Math.max(0, due - Date.now()));
  });
  return () => { events.close(); clearTimeout(timer); };
}

function strip(id, names, chosen) {
  const go = (name) => { location.hash = `#/c/${encodeURIComponent(id)}/${name}`; };
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(chosen) + step + names.length) % names.length];
    awaited = next;
    go(next);
  };
  return h("div", { class: "tabs", role: "tablist", "aria-label": "Views", onkeydown: keys }, names.map((name) => h("button", {
    role: "tab", id: `tab-${name}`, "aria-selected": String(name === chosen), "aria-controls": "panel", tabindex: name === chosen ? 0 : -1, onclick: () => go(name),
  }, name[0].toUpperCase() + name.slice(1))));
}

/** Fills the head, and returns a function that shows progress. The buttons stay: a click begins and ends on the same element. */
function header(place, of) {
  const act = (path, body) => async () => { try { await post(url(of.id, path), body); } catch (error) { warn(error); } };
  const remove = async () => {
    if (!confirm(`Delete campaign ${of.name} with all its results?`)) return;
    try { await call("DELETE", url(of.id, "")); location.hash = "#/"; } catch (error) { warn(error); }
  };
  const run = may("run"), admin = may("admin");
  const isOpen = ({ counts, state }) => counts.waiting + counts.running > 0 && state !== "cancelled";
  const canStart = (progress) => run && !progress.runs && isOpen(progress);
  const buttons = [
    ["Start", act("/start"), "first", (progress) => canStart(progress) && progress.state === "new"],
    ["Go on", act("/start"), "first", (progress) => canStart(progress) && progress.state !== "new"],
    ["Pause", act("/pause"), null, ({ state }) => run && state === "running"],
    ["Resume", act("/resume"), null, ({ state }) => run && (state === "paused" || state === "cancelled")],
    ["Retry failures", act("/retry", {}), null, ({ counts, state }) => run && counts.failed > 0 && state !== "cancelled"],
    ["Cancel", act("/cancel"), "bad", (progress) => run && isOpen(progress)],
    ["Delete", remove, "bad", (progress) => admin && !progress.runs],
  ].map(([text, onclick, kind, isOffered]) => ({ element: h("button", { class: kind, onclick }, text), isOffered }));
  const state = h("span"), counted = h("div");
  put(place,
    h("div", { class: "row between" },
      h("div", { class: "row" }, h("h1", {}, of.name), state),
      h("div", { class: "row" }, buttons.map(({ element }) => element))),
    counted);
  return (progress) => {
    const { counts } = progress;
    for (const { element, isOffered } of buttons) element.hidden = !isOffered(progress);
    state.className = `state ${progress.state}`;
    state.textContent = progress.state;
    const legend = [["done", counts.done], ["failed", counts.failed], ["running", counts.running], ["waiting", counts.waiting]];
    put(counted,
      bar(counts),
      h("ul", { class: "legend" }, legend.map(([kind, count]) => h("li", {}, h("i", { class: kind }), h("b", {}, number(count)), ` ${kind}`))),
      h("dl", { class: "tiles" },
        tile("time left", progress.state === "ended" ? "none" : duration(progress.left)),
        tile("points per minute", progress.rate === null ? "–" : number(Number((60 * progress.rate).toPrecision(3)))),
        tile("workers now", number(progress.workers)),
        tile("duration so far", duration(progress.cost.elapsed)),
        tile("points", number(counts.points))));
  };
}

const tile = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

async function overview(place, of, data) {
  const [cost, workers, plot] = [h("section", { class: "card" }), h("section", { class: "card" }), h("section", { class: "card" })];
  const broken = of.start?.end > 0 && of.start.end !== 5 ? h("div", { class: "note" }, h("b", {}, "The last start ended at once: "), of.start.words) : null;
  put(place, broken, h("div", { class: "grid" }, cost, workers), plot);
  const view = async (progress, isMore) => {
    costs(cost, progress.cost);
    if (!isMore) return;
    crew(workers, await get(url(of.id, "/workers")));
    parallel(plot, data);
  };
  await view(of, true);
  return view;
}

/** Time of workers: used, lost and idle, against a cluster that is always there. */
function costs(place, cost) {
  const own = cost.used + cost.lost + cost.idle;
  const all = Math.max(own, cost.fixed, 1e-9);
  const parts = [["done", "of points", cost.used], ["failed", "of failed attempts", cost.lost], ["idle", "idle", cost.idle]];
  const more = cost.fixed > own ? ` As many workers from begin to end would have taken ${duration(cost.fixed)}, ${Math.round(100 * (cost.fixed / Math.max(own, 1e-9) - 1))} % more.` : "";
  place.replaceChildren(h("h2", {}, "Cost: time of workers"),
    h("div", { class: "bar", role: "img", "aria-label": parts.map(([, name, time]) => `${duration(time)} ${name}`).join(", ") }, parts.map(([kind, , time]) => h("span", { class: kind, "width%": (100 * time) / all }))),
    h("ul", { class: "legend" }, parts.map(([kind, name, time]) => h("li", {}, h("i", { class: kind }), h("b", {}, duration(time)), ` ${name}`))),
    h("p", { class: "small soft" }, `${duration(own)} of workers in all.${more}`));
}

function crew(place, workers) {
  place.replaceChildren(h("h2", {}, "Workers"), workers.length === 0 ? h("p", { class: "soft" }, "None had a point yet.") : h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["worker", "now", "results", "failed", "per point"].map((name, at) => h("th", { class: at > 0 && "n", scope: "col" }, name)))),
    h("tbody", {}, workers.map((one) => h("tr", {}, h("td", {}, `w${one.worker}`),
      h("td", { class: "n" }, one.point === null ? h("span", { class: "soft" }, "–") : `point ${one.point}`),
      h("td", { class: "n" }, number(one.done)), h("td", { class: "n" }, number(one.failed)),
      h("td", { class: "n" }, one.done ? duration(one.seconds / one.done) : "–")))))));
}

function resultsTab(place, of, data) {
  const [lines, dots, rows] = [h("section", { class: "card" }), h("section", { class: "card" }), h("section", { class: "card" })];
  place.replaceChildren(lines, dots, rows);
  const draw = () => { parallel(lines, data); scatter(dots, data); table(rows, data); };
  data.changed = () => { scatter(dots, data); table(rows, data); };
  draw();
  return draw;
}

const seriesTab = (place, of, data) => series(place, data);
const sensitivityTab = (place, of) => sensitivity(place, of);
const failuresTab = (place, of) => failures(place, of);
