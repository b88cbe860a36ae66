// All campaigns.

import { get, post, call, may } from "./api.js";
import { h, put, number, duration, warn } from "./dom.js";

const LOOK = 3000;

export async function list(main) {
  const place = h("ul", { class: "list" });
  const look = async () => {
    const all = await get("/campaigns");
    // A list that has the focus stays as it is.
    if (!place.contains(document.activeElement)) place.replaceChildren(...all.map(card), ...(all.length ? [] : [empty()]));
  };
  await look();
  put(main,
    h("div", { class: "row between" }, h("h1", {}, "Campaigns"), may("run") && h("button", { class: "first", onclick: () => add(main) }, "New campaign")),
    h("p", { class: "soft" }, "One program, run at many points."), place);
  const timer = setInterval(() => look().catch(() => {}), LOOK);
  return () => clearInterval(timer);
}

const empty = () => h("li", { class: "card empty" }, "No campaign yet. Make one here, or run `slipway campaign run`.");

export function bar(counts) {
  const share = (count) => (100 * count) / Math.max(counts.points, 1);
  const parts = ["done", "failed", "running"].map((kind) => h("span", { class: kind, "width%": share(counts[kind]) }));
  const ended = counts.done + counts.failed;
  return h("div", {
    class: "bar", role: "progressbar", "aria-label": "Points that have ended", "aria-valuemin": 0, "aria-valuemax": counts.points, "aria-valuenow": ended,
    "aria-valuetext": `${counts.done} of ${counts.points} done, ${counts.failed} failed, ${counts.running} running`,
  }, parts);
}

function card(of) {
  const { counts } = of;
  const words = [`${number(counts.done)} of ${number(counts.points)} points`];
  if (counts.failed) words.push(`${number(counts.failed)} failed`);
  if (of.left !== null) words.push(`${duration(of.left)} left`);
  return h("li", {}, h("a", { class: "card", href: `#/c/${encodeURIComponent(of.id)}` },
    h("div", { class: "row between" }, h("h2", {}, of.name), h("span", { class: `state ${of.state}` }, of.state)),
    bar(counts),
    h("div", { class: "row between small soft" }, h("span", {}, words.join(" · ")), h("span", {}, of.design))));
}

/** The form for a new campaign: a file's text, or an archive with inputs. */
function add(main) {
  const text = h("textarea", { id: "file", spellcheck: false, "aria-describedby": "faults" });
  text.value = "campaign: example\nrun: awk 'BEGIN { print \"height\", ({speed} * sin({angle})) ^ 2 / 19.62 }'\nvariables:\n  speed: {uniform: [10, 30]}\n  angle: {uniform: [0.2, 1.2]}\ndesign: {lhs: 200}\noutputs:\n  height: 'height ([0-9.]+)'\n";
  const archive = h("input", { type: "file", accept: ".tar,.gz,.tgz" });
  const faults = h("div", { id: "faults", role: "status" });
  const send = async (event) => {
    event.preventDefault();
    try {
      const made = archive.files.length ? await call("POST", "/campaigns", archive.files[0], "application/x-tar") : await post("/campaigns", { file: text.value });
      location.hash = `#/c/${encodeURIComponent(made.id)}`;
    } catch (error) {
      const lines = (error.problems ?? []).map((one) => h("li", {}, `line ${one.line}: ${one.message} – ${one.help}`));
      faults.replaceChildren(lines.length ? h("ul", {}, lines) : "");
      warn(error);
    }
  };
  main.replaceChildren(h("form", { class: "card", onsubmit: send },
    h("h1", {}, "New campaign"),
    h("p", {}, h("label", { for: "file" }, "Campaign file")), text, faults,
    h("p", { class: "row" }, h("label", {}, "or a tar archive with campaign.yaml and its inputs", archive)),
    h("div", { class: "row" }, h("button", { class: "first" }, "Make"), h("a", { href: "#/", onclick: () => dispatchEvent(new Event("hashchange")) }, "Back"))));
  text.focus();
}
