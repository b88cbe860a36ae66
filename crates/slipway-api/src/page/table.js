// The results in memory, which all plots share, and their table.

import { get, url } from "./api.js";
import { h, put, number, say } from "./dom.js";
import { point } from "./failures.js";

/** Most results that the page holds. */
const MOST = 20000;
/** Rows of the table at once. */
const PAGE = 100;

/** Results and the part of them that brushes choose. */
export class Data {
  constructor(of) {
    this.of = of;
    this.columns = [];
    this.rows = [];
    this.next = 0;
    /** Ranges by column: `[low, high]` as shares of the axis. */
    this.brushes = new Map();
    this.changed = () => {};
    this.sort = null;
    this.shown = PAGE;
    this.axes = {};
  }

  /** Loads results that came since. Returns whether there were some. */
  async load() {
    const before = this.rows.length;
    while (this.rows.length < MOST) {
      const page = await get(url(this.of.id, `/results?after=${this.next}`));
      this.columns = page.columns;
      this.rows.push(...page.rows);
      this.next = page.next;
      if (!page.more) break;
    }
    return this.rows.length > before;
  }

  get isCut() { return this.rows.length >= MOST; }

  at(name) { return this.columns.indexOf(name); }

  /** Variables that vary, then outputs that are values. */
  get dimensions() {
    const variables = this.of.variables.filter((one) => one.varies).map((one) => ({ name: one.name, unit: "", output: false }));
    const outputs = this.of.outputs.filter((one) => !one.series).map((one) => ({ name: one.name, unit: one.unit, output: true }));
    return [...variables, ...outputs].map((one) => ({ ...one, at: this.at(one.name) }));
  }

  /** The scale of a column: numbers, or places of texts. */
  scale(at) {
    const values = this.rows.map((row) => row[at]).filter((value) => value !== null);
    const isText = values.some((value) => typeof value !== "number");
    if (isText) {
      const order = this.of.variables.find((one) => one.name === this.columns[at])?.choices.map(String) ?? [];
      const there = new Set(values.map(String));
      const words = [...order.filter((word) => there.has(word)), ...[...there].filter((word) => !order.includes(word)).sort()];
      const place = new Map(words.map((word, index) => [word, words.length > 1 ? index / (words.length - 1) : 0.5]));
      return { words, share: (value) => (value === null ? null : place.get(String(value))), low: 0, high: 1 };
    }
    let low = Infinity, high = -Infinity;
    for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    if (!values.length) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    return { words: null, low, high, share: (value) => (value === null ? null : (value - low) / (high - low)) };
  }

  /** Whether a row is in all brushes. */
  filter() {
    const tests = [...this.brushes].map(([name, [low, high]]) => {
      const at = this.at(name), { share } = this.scale(at);
      return (row) => { const place = share(row[at]); return place !== null && place >= low - 1e-9 && place <= high + 1e-9; };
    });
    return (row) => tests.every((test) => test(row));
  }

  get chosen() { return this.rows.filter(this.filter()); }
}

export function table(place, data) {
  const chosen = data.chosen;
  if (data.sort) {
    const { at, up } = data.sort;
    const order = (a, b) => (a === null ? 1 : b === null ? -1 : typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    chosen.sort((a, b) => (up ? order(a[at], b[at]) : order(b[at], a[at])));
  }
  const series = new Set(data.of.outputs.filter((one) => one.series).map((one) => one.name));
  const shown = data.columns.map((name, at) => ({ name, at })).filter(({ name }) => !series.has(name) && name !== "seed");
  const isNumber = (at) => chosen.length > 0 && typeof chosen[0][at] === "number";
  const by = (at) => () => {
    data.sort = { at, up: data.sort?.at === at ? !data.sort.up : true };
    table(place, data);
    place.querySelector(`[data-at="${at}"]`)?.focus();
    say(`Sorted by ${data.columns[at]}, ${data.sort.up ? "ascending" : "descending"}`);
  };
  const scroll = place.querySelector(".scroll")?.scrollTop ?? 0;
  put(place,
    h("div", { class: "row between" }, h("h2", {}, `Results: ${number(chosen.length)}${chosen.length < data.rows.length ? ` of ${number(data.rows.length)} chosen` : ""}`),
      h("a", { href: `/api/v1${url(data.of.id, "/results.csv")}`, download: "" }, "All as CSV")),
    data.isCut && h("p", { class: "note" }, `The page holds the first ${number(MOST)} results; the CSV file has all.`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of results" }, h("table", {},
      h("thead", {}, h("tr", {}, shown.map(({ name, at }) => h("th", { scope: "col", class: isNumber(at) && "n", "aria-sort": data.sort?.at === at ? (data.sort.up ? "ascending" : "descending") : "none" }, h("button", { "data-at": at, onclick: by(at) }, name))))),
      h("tbody", {}, chosen.slice(0, data.shown).map((row) => h("tr", {}, shown.map(({ name, at }) =>
        h("td", { class: typeof row[at] === "number" && "n" }, name === "point" ? h("button", { class: "plain", onclick: () => point(data.of, row[at]) }, row[at]) : number(row[at])))))))),
    chosen.length > data.shown && h("button", { onclick: () => { data.shown += 5 * PAGE; table(place, data); } }, "Show more"));
  place.querySelector(".scroll").scrollTop = scroll;
}
