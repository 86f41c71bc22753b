// One object: what it stands at, and who has heard of it.

import { Failed, get, inPath, publish } from "./api.js";
import { ago, facts, h, number, put, s, say, size, span, state, table } from "./dom.js";

export function objectPage(main, about) {
  const input = h("input", { id: "wanted", name: "object", value: about, placeholder: "app/name", required: true, pattern: "[a-z0-9\\-]{1,63}/.+", autocomplete: "off", spellcheck: "false", title: "An object is written app/name" });
  main.append(h("h1", {}, about ? `Object ${about}` : "Object"));
  const form = h("form", { class: "ask", onsubmit: (event) => {
    event.preventDefault();
    location.hash = `#/object/${inPath(input.value.trim())}`;
  } }, h("div", { class: "field" }, h("label", { for: "wanted" }, "Object"), input), h("button", { class: "primary" }, "Look"));
  if (!about) {
    main.append(form, h("p", { class: "empty" }, "Name an object as ", h("code", {}, "app/name"), " to see its version, who is registered for it, and who has not heard yet."));
    return {};
  }
  const sentence = h("p", { class: "sentence", "aria-live": "polite" }, "Looking…");
  const body = h("div");
  const who = h("div");
  const publishing = h("div");
  main.append(sentence, body, publishing, who, h("section", {}, form));
  let last = null;

  return {
    async look() {
      const found = await get(`objects/${inPath(about)}`).catch((error) => {
        if (!(error instanceof Failed) || error.denied || error.message.includes("Trying again")) throw error;
        say(sentence, error.message);
        return null;
      });
      if (!found) return;
      last = found;
      sentence.className = `sentence ${found.answers ? "" : "bad"}`;
      say(sentence, found.sentence);
      put(body, [found, Math.floor(Date.now() / 1000)], () => overview(found));
      put(who, found.slowest, () => slowest(found));
      put(publishing, found.development, () => found.development && publisher(about, () => last));
    },
  };
}

function overview(found) {
  const rest = found.sessions - found.fresh - found.pending;
  const share = (count) => (found.sessions ? (100 * count) / found.sessions : 0);
  const parts = [["fresh", found.fresh], ["pending", found.pending - found.slow], ["slow", found.slow], ["none", rest]];
  let x = 0;
  const bar = s("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${found.fresh} fresh, ${found.pending} pending` },
    s("rect", { class: "none", x: 0, y: 0, width: 100, height: 10 }),
    parts.map(([kind, count]) => {
      const drawn = s("rect", { class: kind, x, y: 0, width: share(count), height: 10 });
      x += share(count);
      return drawn;
    }));
  const key = (kind, text) => h("li", {}, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { class: kind, width: 10, height: 10, rx: 2 })), text);
  return [
    h("section", { class: "two" },
      h("div", {}, h("h2", {}, "It stands at"), facts([
        ["version", found.version ?? (found.lower_bound ? `unknown, ${found.lower_bound} or later` : "unknown")],
        ["epoch", found.epoch && h("span", { class: "mono" }, found.epoch)],
        ["published", found.published_at && ago(found.published_at)],
        ["by", found.source ?? (found.published_at ? "nobody named" : null)],
        ["came from", found.origin && cameFrom(found.origin)],
        ["payload", found.payload_bytes === null ? (found.version ? "none" : null) : size(found.payload_bytes)],
        ["shard", `${found.shard}, at ${found.process}`],
        ["updates came", found.answers && `${number(found.ways.fast ?? 0)} by the fast path, ${number(found.ways.bridge ?? 0)} by the bridge, ${number(found.ways.own ?? 0)} by the shard itself`],
      ])),
      h("div", {}, h("h2", {}, "Who is online"), found.sessions
        ? [bar, h("ul", { class: "legend" }, key("k1", `${number(found.fresh)} fresh`), key("k3", `${number(found.pending - found.slow)} pending`), key("kbad", `${number(found.slow)} slow`))]
        : h("p", { class: "empty" }, "No session is registered for it."),
        h("h2", { class: "gap" }, "All clients, online or not"), audit(found))),
  ];
}

function cameFrom(origin) {
  if (origin.why) return `${origin.source}; ${origin.why}`;
  return `transaction ${origin.transaction} of ${origin.source}, ${ago(origin.at)}: ${origin.op} of ${origin.object}, offset ${origin.offset} under ordinal ${origin.ordinal}`;
}

function audit(found) {
  if (!found.audit)
    return h("p", { class: "empty" }, "Nobody has counted yet. ", h("code", {}, "roskva job audit"), " looks at every client, online or not.");
  const counted = Object.entries(found.audit.states).filter(([, count]) => count);
  return h("p", { class: "empty" }, counted.length
    ? `${counted.map(([word, count]) => `${number(count)} ${word}`).join(", ")}: the last audit, ${ago(found.audit.at)}.`
    : `The last audit, ${ago(found.audit.at)}, found nobody registered for it.`);
}

function slowest(found) {
  if (!found.slowest.length) return null;
  return h("section", {}, h("h2", {}, "The furthest behind"), table("The furthest behind", [["client"], ["application"], ["channel"], ["state"], ["acked", true], ["heard", true]], found.slowest.map((one) => [
    h("a", { class: "mono", href: `#/client/${one.client}` }, `${one.client.slice(0, 12)}…`), one.application || "–", one.channel, state(one.state), one.acked ?? "–", `${span(one.silent_seconds)} ago`,
  ])));
}

function publisher(object, current) {
  const version = h("input", { id: "version", inputmode: "numeric", pattern: "[0-9]{1,19}", placeholder: "the next one" });
  const text = h("input", { id: "payload", autocomplete: "off" });
  const done = h("p", { role: "status", class: "soft" });
  const form = h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    const found = current();
    const next = found.assigned ? null : version.value || String(BigInt(found.version ?? found.lower_bound ?? "0") + 1n);
    try {
      say(done, `Version ${await publish(object, next, text.value)} is in the feed.`);
      version.value = "";
    } catch (error) {
      say(done, error.message);
    }
  } },
  !current()?.assigned && h("div", { class: "field" }, h("label", { for: "version" }, "Version"), version),
  h("div", { class: "field" }, h("label", { for: "payload" }, "Payload, if any"), text),
  h("button", {}, "Publish"));
  return h("section", {}, h("h2", {}, "Publish"), h("p", { class: "soft small" }, "Here because this node is on loopback and has no keys."), form, done);
}

