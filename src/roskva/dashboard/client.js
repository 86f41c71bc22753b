// One client, and why it is behind.

import { get, inPath } from "./api.js";
import { ago, facts, h, number, put, say, span, state, table } from "./dom.js";

const TONE = { online: "", offline: "", nobody: "warn", hidden: "bad" };

export function clientPage(main, about) {
  const input = h("input", { id: "wanted", value: about, placeholder: "32 hexadecimal digits", required: true, autocomplete: "off", spellcheck: "false" });
  const form = h("form", { class: "ask", onsubmit: (event) => {
    event.preventDefault();
    location.hash = `#/client/${inPath(input.value.trim())}`;
  } }, h("div", { class: "field" }, h("label", { for: "wanted" }, "Client id, application id or MQTT id"), input), h("button", { class: "primary" }, "Explain"));
  main.append(h("h1", {}, about ? `Client ${about}` : "Client"));
  if (!about) {
    main.append(form, h("p", { class: "empty" }, "Name a client to see whether it has been told everything, and if not, why. A client that is away is found by its own id, or by its MQTT client id."));
    return {};
  }
  const sentence = h("p", { class: "sentence", "aria-live": "polite" }, "Looking…");
  const who = h("div");
  const registrations = h("div");
  const notes = h("div");
  main.append(sentence, who, registrations, notes, h("section", {}, form));

  return {
    async look() {
      const found = await get(`clients/${inPath(about)}`);
      sentence.className = `sentence ${TONE[found.presence]}`;
      say(sentence, found.sentence);
      const known = found.presence === "online" || found.presence === "offline";
      put(who, [found, Math.floor(Date.now() / 1000)], () => known && overview(found));
      put(registrations, [found.registrations, found.counts], () => known && held(found));
      put(notes, found.notes, () => found.notes.length > 0 && told(found));
    },
  };
}

function overview(found) {
  return h("section", {}, h("h2", {}, "Who it is"), facts([
    ["presence", state(found.presence)],
    ["id", h("span", { class: "mono" }, found.client)],
    ["application", found.application],
    ["principal", found.principal],
    ["connected", found.channel && `over ${found.channel}, to ${found.process}`],
    ["last heard", found.silent_seconds === null ? null : `${span(found.silent_seconds)} ago`],
    ["row written", found.seen_at && ago(found.seen_at)],
    ["known since", found.created_at && new Date(found.created_at * 1000).toLocaleString()],
    ["session", h("span", { class: "mono" }, found.session)],
  ]));
}

function held(found) {
  const total = Object.values(found.counts).reduce((sum, count) => sum + count, 0);
  const title = h("h2", {}, "Registrations");
  if (!total) return h("section", {}, title, h("p", { class: "empty" }, "It is registered for nothing."));
  const more = total - found.registrations.length;
  return h("section", {}, title, table("Registrations", [["object"], ["state"], ["acked", true], ["stands at", true]], found.registrations.map((one) => [
    h("a", { href: `#/object/${inPath(one.object)}` }, one.object), state(one.state), one.acked ?? "–", one.version ?? (one.state === "blind" ? "?" : "unknown"),
  ])), more > 0 && h("p", { class: "soft small" }, `and ${number(more)} more, which are not behind.`));
}

function told(found) {
  return h("section", {}, h("h2", {}, "Told lately"), table("Told lately", [["when"], ["what"], ["object"], ["by"]], found.notes.map((note) => [
    ago(note.at), h("span", { class: "mono" }, note.code), note.object || "–", note.process,
  ])));
}
