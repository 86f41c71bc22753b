// The path of an update, drawn with what is going on along it.

import { many, ms, number, rate, s } from "./dom.js";

const WIDE = {
  view: "0 0 1000 240", box: [138, 86], class: "picture",
  at: { publishers: [70, 45], feed: [285, 45], matchers: [500, 45], registrars: [715, 45], clients: [930, 45], bridge: [392, 192] },
};
const TALL = {
  view: "0 0 360 660", box: [176, 86], class: "picture tall",
  at: { publishers: [98, 48], feed: [98, 188], matchers: [98, 328], registrars: [98, 468], clients: [98, 608], bridge: [292, 258] },
  bridge: [118, 86],
};

function processes(now, role) {
  const found = now.processes.filter((p) => (p.error ? isOf(now, p, role) : p.role.includes(role)));
  return { found, down: found.filter((p) => p.error) };
}

const isOf = (now, process, role) => (role === "state") === now.shards.some((shard) => shard.process === process.name);

function boxes(now) {
  const states = processes(now, "state");
  const registrars = processes(now, "registrar");
  const sessions = Object.values(now.sessions).reduce((sum, count) => sum + count, 0);
  const behind = now.shards.reduce((sum, shard) => sum + Math.max(0, shard.feed_end - shard.applied), 0);
  const bridge = now.pipeline.parts.find((part) => part.name === "bridge");
  const objects = now.shards.reduce((sum, shard) => sum + shard.objects, 0);
  const named = (set, word) => (set.down.length ? `${set.down.map((p) => p.name).join(", ")} down` : many(set.found.length, word));
  const tone = (set) => (set.down.length ? "bad" : "");
  const bridgeIs = now.pipeline.state === "running" ? bridge?.state ?? "off" : now.pipeline.state;
  return {
    publishers: { title: "Publishers", value: rate(now.per_second.updates_published), sub: "accepted" },
    feed: { title: "Feed", value: many(now.shards.length, "shard"), sub: behind ? `${number(behind)} not applied` : "all applied" },
    matchers: { title: "Matchers", value: many(objects, "object"), sub: named(states, "process").replace("processs", "processes"), tone: tone(states) },
    registrars: { title: "Registrars", value: `${number(now.freshness.fresh)} fresh`, sub: named(registrars, "process").replace("processs", "processes"), tone: tone(registrars) },
    clients: { title: "Clients", value: many(sessions, "session"), sub: now.freshness.pending ? `${number(now.freshness.pending)} pending` : "nobody waits" },
    bridge: {
      title: "Bridge", value: bridgeIs,
      sub: bridgeIs === "running" ? (bridge.lag_updates ? `${number(bridge.lag_updates)} behind` : "nothing missed") : "on Spark",
      tone: bridgeIs === "failed" ? "bad" : bridge?.gaps?.length ? "warn" : bridgeIs === "running" ? "" : "off",
    },
  };
}

function edges(now) {
  const took = Object.fromEntries(now.stages.map((stage) => [stage.stage, stage.p50_ms]));
  const time = (stage) => (took[stage] === undefined ? "" : ms(took[stage]));
  const flows = now.per_second;
  const ways = Object.keys(flows).filter((name) => name.startsWith("updates_applied."));
  const applied = ways.reduce((sum, way) => sum + flows[way], 0);
  return [
    ["publishers", "feed", flows.updates_published, rate(flows.updates_published), time("appended")],
    ["feed", "matchers", applied, rate(applied), time("matched")],
    ["matchers", "registrars", flows.pushes, rate(flows.pushes), time("sent")],
    ["registrars", "clients", flows.acks, `${rate(flows.acks)} acked`, time("acked")],
  ];
}

export function describe(now) {
  const all = boxes(now);
  return `${all.publishers.value} accepted, ${all.feed.value}, ${all.matchers.value} at ${all.matchers.sub}, ` +
    `${all.registrars.sub} for registrars, ${all.clients.value}, ${all.clients.sub}; the bridge is ${all.bridge.value}.`;
}

export function draw(now, tall) {
  const layout = tall ? TALL : WIDE;
  const [width, height] = layout.box;
  const drawn = s("svg", { class: layout.class, viewBox: layout.view, role: "img", "aria-label": `The path of an update. ${describe(now)}` });
  for (const [from, to, flow, label, took] of edges(now)) drawn.append(...edge(layout, from, to, flow, label, took));
  const side = layout.bridge ?? [width, height];
  drawn.append(...aside(layout, side, now.pipeline.state === "running"));
  for (const [name, box] of Object.entries(boxes(now))) {
    const [x, y] = layout.at[name];
    const [w, hgt] = name === "bridge" ? side : [width, height];
    drawn.append(
      s("rect", { class: `box ${box.tone ?? ""}`, x: x - w / 2, y: y - hgt / 2, width: w, height: hgt, rx: 12 }),
      s("text", { class: "title", x, y: y - 19, "text-anchor": "middle" }, box.title),
      s("text", { class: "value", x, y: y + 6, "text-anchor": "middle" }, box.value),
      s("text", { class: `sub ${box.tone === "bad" ? "bad" : ""}`, x, y: y + 27, "text-anchor": "middle" }, box.sub));
  }
  return drawn;
}

function edge(layout, from, to, flow, label, took) {
  const [x1, y1] = layout.at[from];
  const [x2, y2] = layout.at[to];
  const [w, hgt] = layout.box;
  const down = x1 === x2;
  const [ax, ay, bx, by] = down ? [x1, y1 + hgt / 2, x2, y2 - hgt / 2] : [x1 + w / 2, y1, x2 - w / 2, y2];
  const live = flow > 0 ? " live" : "";
  const [end, tip] = down
    ? [`L${bx} ${by - 8}`, `M${bx - 5} ${by - 9}h10l-5 8z`]
    : [`L${bx - 8} ${by}`, `M${bx - 9} ${by - 5}v10l8 -5z`];
  const path = `M${ax} ${ay}${end}`;
  const words = down
    ? [[ax + 14, (ay + by) / 2 - 2, label, "rate", "start"], [ax + 14, (ay + by) / 2 + 15, took, "took", "start"]]
    : [[(ax + bx) / 2, ay - 12, label.replace(" acked", ""), "rate", "middle"], [(ax + bx) / 2, ay + 21, took || (label.includes("acked") ? "acked" : ""), "took", "middle"]];
  return [
    s("path", { class: "edge", d: path }),
    live && s("path", { class: "flow", d: path }),
    s("path", { class: `tip${live}`, d: tip }),
    ...words.map(([x, y, text, kind, anchor]) => s("text", { class: kind, x, y, "text-anchor": anchor }, text)),
  ].filter(Boolean);
}

/** The bridge reads the feed, and makes up for what a matcher has missed. */
function aside(layout, [w, hgt], live) {
  const [fx, fy] = layout.at.feed;
  const [mx, my] = layout.at.matchers;
  const [bx, by] = layout.at.bridge;
  const [bw, bh] = layout.box;
  const down = fx === mx;
  const paths = down
    ? [[`M${fx + bw / 2} ${fy}H${bx}V${by - hgt / 2 - 8}`, `M${bx - 5} ${by - hgt / 2 - 9}h10l-5 8z`],
      [`M${bx} ${by + hgt / 2}V${my}H${mx + bw / 2 + 8}`, `M${mx + bw / 2 + 9} ${my - 5}v10l-8 -5z`]]
    : [[`M${fx} ${fy + bh / 2}V${by}H${bx - w / 2 - 8}`, `M${bx - w / 2 - 9} ${by - 5}v10l8 -5z`],
      [`M${bx + w / 2} ${by}H${mx}V${my + bh / 2 + 8}`, `M${mx - 5} ${my + bh / 2 + 9}h10l-5 -8z`]];
  return paths.flatMap(([path, tip]) => [
    s("path", { class: "edge", d: path }),
    s("path", { class: `tip${live ? " live" : ""}`, d: tip }),
  ]);
}
