// The page: a session, then one view for each address after `#`.

import { begin, login, call, session } from "./api.js";
import { h, warn } from "./dom.js";
import { list } from "./list.js";
import { campaign } from "./campaign.js";

const main = document.getElementById("main");
/** Ends what the view has running. */
let leave = () => {};
/** One view comes after another: a slow one never replaces the one that was asked for after it. */
let shown = Promise.resolve();

async function show() {
  leave();
  leave = () => {};
  document.getElementById("point").close();
  const [, kind, id, part] = location.hash.split("/").map(decodeURIComponent);
  const crumbs = document.getElementById("crumbs");
  crumbs.replaceChildren(h("a", { href: "#/" }, "Campaigns"), kind === "c" ? ` / ${id}` : "");
  document.title = `${kind === "c" ? id : "Campaigns"} – Slipway`;
  try {
    leave = (kind === "c" ? await campaign(main, id, part) : await list(main)) ?? leave;
  } catch (error) {
    if (error.code === "unauthorized") return ask();
    main.replaceChildren(h("div", { class: "card empty" }, h("h1", {}, "This is not to be seen"), h("p", {}, error.message)));
  }
}

/** Asks for a token. */
function ask() {
  document.getElementById("who").replaceChildren();
  const field = h("input", { type: "password", autocomplete: "off", required: true, size: 40, id: "token" });
  const send = async (event) => {
    event.preventDefault();
    try { await login(field.value.trim()); start(); } catch (error) { warn(error); field.select(); }
  };
  main.replaceChildren(h("form", { class: "card", onsubmit: send },
    h("h1", {}, "Who are you?"),
    h("p", { class: "soft" }, "The server printed an address with a token when it began. Open that address, or give a token here."),
    h("div", { class: "row" }, h("label", { for: "token" }, "Token", field), h("button", { class: "first" }, "Enter"))));
  field.focus();
}

async function start() {
  try { await begin(); } catch (error) { return error.code === "unauthorized" ? ask() : warn(error); }
  const out = async () => { await call("DELETE", "/session"); ask(); };
  document.getElementById("who").replaceChildren(`${session.name} (${session.role})`, h("button", { class: "plain", onclick: out }, "Log out"));
  shown = shown.then(show);
}

document.querySelector("[data-skip]").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => { shown = shown.then(show); });
start();
