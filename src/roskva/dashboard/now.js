// The whole node at a glance.

import { get } from "./api.js";
import { h, many, ms, number, put, rate, s, say, size, span, table } from "./dom.js";
import { draw } from "./picture.js";
import { drawSources } from "./sources.js";

const KEPT = 90;
const ROOM = 12;
const MEANING = { appended: "into the feed", bridged: "through Spark", matched: "matched", sent: "sent", acked: "acked" };
const LABEL = { bad: "Wrong", warn: "Note", note: "Clients" };

export function nowPage(main) {
  const sentence = h("p", { class: "sentence", "aria-live": "polite" }, "Looking…");
  const troubles = h("ul", { class: "troubles", "aria-label": "What is wrong", hidden: true });
  const figures = h("div");
  const picture = h("div");
  const sources = h("div");
  const objectives = h("div");
  const stages = h("div");
  const processes = h("div");
  const shards = h("div");
  const disk = h("div");
  const narrow = matchMedia("(max-width: 46rem)");
  const past = [];
  main.append(
    h("h1", {}, "Now"), sentence, troubles, figures,
    h("section", { "aria-labelledby": "path" }, h("h2", { id: "path" }, "The path of an update"), picture),
    h("section", { "aria-labelledby": "sources", hidden: true }, h("h2", { id: "sources" }, "Databases"), sources),
    h("section", { "aria-labelledby": "slo" }, h("h2", { id: "slo" }, "Objectives"), objectives),
    h("section", { "aria-labelledby": "stages" }, h("h2", { id: "stages" }, "Time by stage"), stages),
    h("section", { "aria-labelledby": "processes" }, h("h2", { id: "processes" }, "Processes"), processes),
    h("section", { "aria-labelledby": "shards" }, h("h2", { id: "shards" }, "Shards"), shards),
    h("section", { "aria-labelledby": "disk" }, h("h2", { id: "disk" }, "Disk"), disk));

  return {
    async look() {
      const now = await get("now");
      past.push([now.per_second.updates_published ?? 0, now.per_second.acks ?? 0]);
      if (past.length > KEPT) past.shift();
      sentence.className = `sentence ${now.troubles[0]?.level ?? ""}`;
      say(sentence, now.sentence);
      troubles.hidden = now.troubles.length < 2;
      put(troubles, now.troubles, () => now.troubles.map((one) =>
        h("li", { class: one.level }, h("b", {}, LABEL[one.level]), one.text)));
      put(figures, [now, past.length], () => summary(now, past));
      put(picture, [now, narrow.matches], () => draw(now, narrow.matches));
      sources.parentElement.hidden = !now.sources.length;
      put(sources, [now.sources, now.pipeline.parts, narrow.matches], () => drawSources(now, narrow.matches).flat());
      put(objectives, now.probe, () => promises(now));
      put(stages, [now.stages, now.traced_one_in], () => times(now));
      put(processes, now.processes, () => processTable(now));
      put(shards, now.shards, () => [shardTable(now), resets(now)]);
      put(disk, now.disk, () => diskOf(now));
      document.getElementById("version").textContent = `roskva ${now.version}, up ${span(now.at - now.started_at)}.`;
    },
  };
}

function summary(now, past) {
  const { freshness } = now;
  const sessions = Object.values(now.sessions).reduce((sum, count) => sum + count, 0);
  const channels = Object.entries(now.sessions).map(([name, count]) => `${number(count)} ${name}`).join(", ");
  const share = freshness.registrations ? Math.floor((1000 * freshness.fresh) / freshness.registrations) / 10 : null;
  const rows = [
    ["Fresh", share === null ? "–" : `${share} %`, share === null ? "nobody is registered" : `${number(freshness.fresh)} of ${many(freshness.registrations, "registration")}`],
    ["Pending", number(freshness.pending), freshness.slow ? `${number(freshness.slow)} at slow readers` : freshness.blind ? `${number(freshness.blind)} cannot be compared` : "told, not yet acked"],
    ["Sessions", number(sessions), channels || "nobody is connected"],
    ["Updates", rate(now.per_second.updates_published), spark(past.map(([value]) => value), "Updates in the last minutes")],
    ["Acks", rate(now.per_second.acks), spark(past.map(([, value]) => value), "Acks in the last minutes")],
  ];
  return h("dl", { class: "figures" }, rows.map(([name, value, note]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note))));
}

function spark(values, label) {
  const top = Math.max(1, ...values);
  const room = Math.max(values.length, ROOM) - 1;
  const points = values.map((value, i) => `${((room + 1 - values.length + i) / room) * 100},${(22 - (20 * value) / top).toFixed(1)}`);
  const path = points.length > 1 ? `M${points.join("L")}` : "";
  return s("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label }, s("path", { d: path }));
}

function promises({ probe }) {
  if (probe.state === "off")
    return h("p", { class: "empty" }, `Nobody measures this node: the prober is off, ${probe.why}.`);
  if (!probe.objectives.length)
    return h("p", { class: "empty" }, "The prober is starting. It says here whether each promise is kept, and how much of its error budget is left.");
  const judged = (one) => (one.kept === null ? ["warn", "not measured"] : one.kept ? ["", "kept"] : ["bad", "missed"]);
  return [
    h("p", { class: probe.objectives.some((one) => one.kept === false) ? "bad" : "soft" },
      `${probe.sentence} Every ${number(probe.every_seconds)} s the node’s own clients try each path.`),
    table("Objectives", [["measured"], ["state"], ["took", true], ["target", true], ["share", true], ["budget left", true], ["burn 1 h", true], ["24 h", true], ["path"]],
      probe.objectives.map((one) => [
        one.sli, h("span", { class: `state ${judged(one)[0]}` }, judged(one)[1]),
        one.took_ms === null ? "–" : ms(one.took_ms), ms(one.target_ms),
        `${number(100 * one.share)} %`, `${number(Math.round(1000 * one.budget_left) / 10)} %`,
        number(one.burn_1h), number(one.burn_24h), one.path,
      ])),
  ];
}

function times(now) {
  if (now.traced_one_in === null)
    return h("p", { class: "empty" }, "Updates are not sampled: ", h("code", {}, "trace_one_in"), " under ", h("code", {}, "[node]"), " is off.");
  if (!now.stages.length)
    return h("p", { class: "empty" }, `One in ${number(now.traced_one_in)} updates is followed from publisher to ack. None has come by yet.`);
  const longest = Math.max(...now.stages.map((stage) => stage.p99_ms), 0.001);
  return [
    h("p", { class: "soft" }, `From one stage to the next, of one in ${number(now.traced_one_in)} updates and of what the prober publishes.`),
    h("div", { class: "stage soft small", "aria-hidden": "true" }, h("span"), h("span"), h("span", { class: "num" }, "half in"), h("span", { class: "num" }, "99 % in")),
    ...now.stages.map((stage) => h("div", { class: "stage" },
      h("span", {}, MEANING[stage.stage] ?? stage.stage),
      s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        s("rect", { class: "k2", x: 0, y: 0, width: Math.max(0.5, (100 * stage.p99_ms) / longest), height: 10 }),
        s("rect", { class: "k1", x: 0, y: 0, width: Math.max(0.5, (100 * stage.p50_ms) / longest), height: 10 })),
      h("span", { class: "num" }, ms(stage.p50_ms)), h("span", { class: "num soft" }, ms(stage.p99_ms)))),
  ];
}

function processTable(now) {
  return table("Processes", [["process"], ["role"], ["pid", true], ["memory", true], ["CPU", true], ["sessions", true]], now.processes.map((one) => one.error
    ? [one.name, h("span", { class: "state bad" }, "does not answer"), "", "", "", ""]
    : [one.name, one.role.replace("+", ", "), one.pid, size(one.rss_bytes), `${number(Math.round(one.cpu_seconds))} s`,
      number(Object.values(one.sessions).reduce((sum, count) => sum + count, 0))]));
}

function diskOf({ disk }) {
  const parts = Object.entries(disk.parts).filter(([, taken]) => taken);
  const rows = Object.entries(disk.rows);
  return [
    h("p", { class: disk.refuses ? "bad" : "soft" }, disk.sentence),
    table("Disk", [["part"], ["takes", true]], parts.map(([name, taken]) => [name, size(taken)])),
    h("p", { class: "soft", hidden: !rows.length }, `Stored, estimated: ${rows.map(([kind, count]) => `${number(count)} ${kind}`).join(", ")}.`),
  ];
}

function resets(now) {
  const answering = now.shards.filter((shard) => shard.answers);
  const apps = new Set(answering.flatMap((shard) => Object.keys(shard.generations)));
  return h("p", { class: "soft", hidden: !apps.size }, ...[...apps].sort().map((app) => {
    const generations = answering.map((shard) => shard.generations[app] ?? 0);
    const latest = Math.max(...generations);
    return `${app} was reset (generation ${number(latest)}) in ${generations.filter((one) => one === latest).length} of ${many(now.shards.length, "shard")}. `;
  }));
}

function shardTable(now) {
  return table("Shards", [["shard"], ["process"], ["epoch"], ["applied", true], ["lag", true], ["objects watched", true], ["links", true], ["by fast path", true], ["by bridge", true], ["by itself", true], ["collected", true]], now.shards.map((one) => one.answers
    ? [String(one.shard), one.process, h("span", { class: "mono" }, one.epoch), number(one.applied), number(one.feed_end - one.applied), number(one.objects), one.links, number(one.ways.fast ?? 0), number(one.ways.bridge ?? 0),
      one.reads_alone ? h("span", { title: "For lack of a bridge it reads what is not on the fast path" }, `${number(one.ways.own ?? 0)}, going on`) : number(one.ways.own ?? 0), number(one.collected)]
    : [String(one.shard), one.process, h("span", { class: "state bad" }, "does not answer"), ...Array(8).fill("")]));
}
