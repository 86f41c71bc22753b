// Which page is shown, and how often it looks again.

import { dropKey, Failed, hasKey, keepKey } from "./api.js";
import { h, say } from "./dom.js";
import { clientPage } from "./client.js";
import { nowPage } from "./now.js";
import { objectPage } from "./object.js";
import { pipelinePage } from "./pipeline.js";
import { tryPage } from "./try.js";

const EVERY_MS = 2000;
const PAGES = { now: nowPage, object: objectPage, client: clientPage, pipeline: pipelinePage, try: tryPage };
const TITLES = { now: "Now", object: "Object", client: "Client", pipeline: "Pipeline", try: "Try it" };

const main = document.getElementById("main");
const away = document.getElementById("away");
const dialog = document.getElementById("key");
let shown = null;
let timer = 0;

/** `#/object/app/name` is the page `object`, about `app/name`. */
function place() {
  const [page, ...about] = location.hash.replace(/^#\/?/, "").split("/");
  return [page in PAGES ? page : "now", about.map(decodeURIComponent).join("/")];
}

function show(moveFocus) {
  const [name, about] = place();
  shown?.leave?.();
  document.title = `${about || TITLES[name]} · Roskva`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  shown = PAGES[name](main, about);
  if (moveFocus) main.focus();
  look();
}

async function look() {
  clearTimeout(timer);
  const page = shown;
  if (!document.hidden && !dialog.open && page.look) {
    try {
      await page.look();
      if (page === shown) away.hidden = true;
    } catch (error) {
      if (page !== shown) return;
      if (!(error instanceof Failed)) throw error;
      if (error.denied) askForKey();
      else {
        say(away, error.message);
        away.hidden = false;
      }
    }
  }
  if (page === shown) timer = setTimeout(look, EVERY_MS);
}

function askForKey() {
  document.getElementById("key-wrong").hidden = !hasKey();
  dropKey();
  if (!dialog.open) dialog.showModal();
}

dialog.addEventListener("close", () => {
  const given = document.getElementById("key-value");
  if (given.value) keepKey(given.value);
  given.value = "";
  if (hasKey()) show(false);
  else main.replaceChildren(h("p", { class: "empty" }, "This node shows itself only to who has its admin key. ",
    h("button", { onclick: askForKey }, "Enter the key")));
});
addEventListener("hashchange", () => show(true));
document.addEventListener("visibilitychange", look);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
show(false);
