// Change sources, drawn as what flows where: database → log of changes → flows.

import { h, many, number, rate, s, size, span } from "./dom.js";

const BOX = [196, 78];
const PITCH = 104;
const WORDS = 28;
const WIDE = { width: 1000, x: { database: 110, changes: 440, flow: 850 }, first: 50 };
const TALL = { width: 360, x: { database: 128, changes: 128, flow: 226 }, first: 50 };

export function drawSources(now, tall) {
  return now.sources.map((source) => [
    h("h3", {}, source.name, h("span", { class: "soft small" }, ` for the app ${source.app}`)),
    picture(source, flowsOf(source, now.pipeline), tall),
    words(source),
  ]);
}

/** The direct one, and ingests of the pipeline that publish its changes. */
function flowsOf(source, pipeline) {
  const flows = [];
  if (source.direct) flows.push({
    title: "Direct flow", rate: source.published_per_second,
    behind: source.last - source.flow, seconds: source.flow_lag_seconds, tone: "",
  });
  for (const part of pipeline.parts.filter((one) => one.source === source.name)) flows.push({
    title: part.name, state: part.state, rate: null, behind: part.lag_updates ?? 0, seconds: part.lag_seconds ?? 0,
    tone: part.state === "failed" ? "bad" : part.state === "running" ? "" : "off",
  });
  return flows;
}

const late = (seconds) => (seconds >= 1 ? `, ${span(seconds)}` : "");

function boxes(source, flows) {
  const away = source.state !== "reading";
  const much = source.lag_bytes > source.max_lag_bytes;
  return {
    database: {
      title: "Database", value: away ? source.state : source.invisible ? "waits" : "read",
      sub: source.lag_bytes === null ? "" : `keeps ${size(source.lag_bytes)} of its log`,
      tone: source.state === "refused" || much || source.invisible ? "bad" : away ? "warn" : "",
    },
    changes: {
      title: "Changes", value: many(source.changes, "change"),
      sub: `${number(source.last)} in the log, ordinal ${number(source.ordinal)}`,
      tone: source.complaints.length ? "bad" : "",
    },
    flows: flows.map((flow) => ({
      title: flow.title, value: flow.state ?? rate(flow.rate),
      sub: flow.behind ? `${many(flow.behind, "change")}${late(flow.seconds)} behind` : "has passed all on",
      tone: flow.tone || (flow.seconds > 10 ? "warn" : ""),
    })),
  };
}

function describe(source, all) {
  const flows = all.flows.map((flow) => `${flow.title} ${flow.sub}`).join("; ") || "no flows";
  return `The source ${source.name}: the database is ${all.database.value}, ${all.changes.value} read, ${flows}.`;
}

function picture(source, flows, tall) {
  const all = boxes(source, flows);
  const { width, x, first } = tall ? TALL : WIDE;
  const rows = tall ? 2 + flows.length : Math.max(1, flows.length);
  const at = (row) => first + row * PITCH + (tall && row ? WORDS : 0);
  const height = at(rows - 1) + first;
  const middle = height / 2;
  const database = [x.database, tall ? at(0) : middle];
  const changes = [x.changes, tall ? at(1) : middle];
  const drawn = s("svg", { class: `picture${tall ? " tall" : ""}`, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(source, all) });
  const behind = source.lag_seconds === null ? "" : source.lag_seconds < 1 ? "nothing waits" : `${span(source.lag_seconds)} behind`;
  drawn.append(...edge(database, changes, tall, source.changes_per_second > 0));
  const [ex, ey] = [(database[0] + changes[0]) / 2, (database[1] + changes[1]) / 2];
  const anchor = tall ? "start" : "middle";
  drawn.append(
    s("text", { class: "rate", x: tall ? ex + 14 : ex, y: tall ? ey - 2 : ey - 12, "text-anchor": anchor }, rate(source.changes_per_second)),
    s("text", { class: "took", x: tall ? ex + 14 : ex, y: tall ? ey + 15 : ey + 21, "text-anchor": anchor }, behind));
  const branches = flows.flatMap((flow, i) => branch(changes, [x.flow, at(tall ? i + 2 : i)], tall, flow));
  const moves = (one) => one.classList.contains("flow");
  drawn.append(...branches.filter((one) => !moves(one)), ...branches.filter(moves));
  drawn.append(...box(database, all.database), ...box(changes, all.changes));
  all.flows.forEach((flow, i) => drawn.append(...box([x.flow, at(tall ? i + 2 : i)], flow)));
  return drawn;
}

function box([x, y], { title, value, sub, tone }) {
  const [w, height] = BOX;
  return [
    s("rect", { class: `box ${tone}`, x: x - w / 2, y: y - height / 2, width: w, height, rx: 12 }),
    s("text", { class: "title", x, y: y - 17, "text-anchor": "middle" }, title),
    s("text", { class: "value", x, y: y + 6, "text-anchor": "middle" }, value),
    s("text", { class: `sub ${tone === "bad" ? "bad" : ""}`, x, y: y + 25, "text-anchor": "middle" }, sub),
  ];
}

function edge([x1, y1], [x2, y2], down, live) {
  const [w, height] = BOX;
  return down
    ? line(`M${x1} ${y1 + height / 2}V${y2 - height / 2 - 8}`, [x2, y2 - height / 2], true, live)
    : line(`M${x1 + w / 2} ${y1}H${x2 - w / 2 - 8}`, [x2 - w / 2, y2], false, live);
}

/** From the log to one of its flows, of which there may be many: around a corner. */
function branch([x1, y1], [x2, y2], tall, flow) {
  const [w, height] = BOX;
  const live = Boolean(flow.rate) || (flow.rate === null && !flow.tone);
  if (tall) return line(`M${x1 - w / 2 + 12} ${y1 + height / 2}V${y2}H${x2 - w / 2 - 8}`, [x2 - w / 2, y2], false, live);
  const turn = (x1 + x2) / 2;
  return line(`M${x1 + w / 2} ${y1}H${turn}V${y2}H${x2 - w / 2 - 8}`, [x2 - w / 2, y2], false, live);
}

function line(path, [x, y], down, live) {
  const tip = down ? `M${x - 5} ${y - 9}h10l-5 8z` : `M${x - 9} ${y - 5}v10l8 -5z`;
  return [
    s("path", { class: "edge", d: path }),
    live && s("path", { class: "flow", d: path }),
    s("path", { class: `tip${live ? " live" : ""}`, d: tip }),
  ].filter(Boolean);
}

function words(source) {
  const doubt = source.doubt && ` The last doubt was ${span(Math.max(0, source.written_at - source.doubted_at))} ago: ${source.doubt}.`;
  return h("p", { class: source.complaints.length ? "bad small" : "soft small" },
    source.position ? `Read up to ${source.position}.` : "Nothing was read yet.", doubt || "", ...source.complaints.map((one) => ` ${one}.`));
}
