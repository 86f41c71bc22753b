// The pipeline on Spark: its batches, what it could not publish, and what jobs have found.

import { get, picture } from "./api.js";
import { ago, facts, h, many, ms, number, put, s, say, size, span, state as badge, table } from "./dom.js";

const SHOWN = 40;

export function pipelinePage(main) {
  const sentence = h("p", { class: "sentence", "aria-live": "polite" }, "Looking…");
  const parts = h("div");
  const batches = h("div");
  const letters = h("div");
  const jobs = h("div");
  main.append(h("h1", {}, "Pipeline"), sentence,
    h("section", {}, h("h2", {}, "Bridge and ingests"), parts),
    h("section", {}, h("h2", {}, "Batches"), batches),
    h("section", {}, h("h2", {}, "Dead letters"), letters),
    h("section", {}, h("h2", {}, "Jobs"), jobs));
  return {
    async look() {
      const found = await get("pipeline");
      sentence.className = `sentence ${found.pipeline.state === "failed" ? "bad" : ""}`;
      say(sentence, found.sentence);
      put(parts, found.pipeline, () => partTable(found.pipeline));
      put(batches, [found.batches, found.pipeline.state], () => charts(found.batches, found.pipeline.state));
      put(letters, found.dead_letters, () => dead(found.dead_letters));
      put(jobs, found.jobs, () => cards(found.jobs));
    },
  };
}

function partTable(pipeline) {
  if (!pipeline.parts.length)
    return h("p", { class: "empty" }, pipeline.state === "off" ? "There are none: the pipeline is off." : "They begin when Spark has started.");
  const or = (value, unit = "") => (value === null ? "–" : `${number(value)}${unit}`);
  return [
    table("Parts of the pipeline", [["part"], ["state", false, true], ["batches", true], ["last took", true], ["behind", true], ["delivered", true], ["published", true], ["dead letters", true], ["gaps"]], pipeline.parts.map((part) => [
      part.name, part.last_error && part.state === "failed" ? h("span", {}, badge("failed"), " ", part.last_error) : badge(part.state),
      number(part.batches), part.batch_ms === null ? "–" : ms(part.batch_ms),
      part.lag_updates === null ? "–" : part.lag_updates ? many(part.lag_updates, "update") + (part.lag_seconds >= 1 ? `, ${span(part.lag_seconds)}` : "") : "nothing",
      or(part.delivered), or(part.published), or(part.dead_letters),
      part.gaps.length ? `closing shard ${part.gaps.join(", ")}` : `${number(part.gaps_closed)} closed`,
    ])),
    h("p", { class: "soft small" }, `${size(pipeline.rss_bytes)} of memory and ${number(Math.round(pipeline.cpu_seconds))} s of processor time, over all its processes.`),
  ];
}

function charts(batches, state) {
  if (!batches.length)
    return h("p", { class: "empty" }, state === "off" ? "None run while the pipeline is off." : "No batch has run since the pipeline started.");
  const stages = [...new Set(batches.flatMap((batch) => Object.keys(batch.stages_ms)))].sort();
  const parts = [...new Set(batches.map((batch) => batch.part))];
  return h("div", {},
    parts.map((part) => chart(part, batches.filter((batch) => batch.part === part).slice(-SHOWN), stages)),
    h("ul", { class: "legend" }, stages.map((stage, kind) => h("li", {}, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { class: `k${(kind % 6) + 1}`, width: 10, height: 10, rx: 2 })), words(stage)))));
}

function chart(part, shown, stages) {
  const longest = Math.max(...shown.map((batch) => batch.total_ms), 1);
  const [width, height] = [800, 120];
  const step = width / SHOWN;
  const drawn = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `The last ${shown.length} batches of ${part}; the longest took ${ms(longest)}` });
  for (const line of [0.02, 0.5, 0.99]) drawn.append(s("line", { class: "grid", x1: 0, x2: width, y1: height * line, y2: height * line }));
  shown.forEach((batch, i) => {
    let y = height;
    stages.forEach((stage, kind) => {
      const tall = ((batch.stages_ms[stage] ?? 0) * height * 0.98) / longest;
      y -= tall;
      drawn.append(s("rect", { class: `k${(kind % 6) + 1}`, x: i * step + 1, y, width: step - 3, height: tall },
        s("title", {}, `Batch ${batch.batch}: ${many(batch.rows, "row")} in ${ms(batch.total_ms)}`)));
    });
  });
  const last = shown.at(-1);
  return h("figure", {}, h("figcaption", {}, h("b", {}, part), h("span", { class: "soft small" },
    ` The longest of the last ${number(shown.length)} took ${ms(longest)}; the latest, ${ago(last.at)}, took ${ms(last.total_ms)} for ${many(last.rows, "row")}.`)), drawn);
}

const words = (stage) => stage.replace(/([A-Z])/g, " $1").toLowerCase();

function dead(letters) {
  if (!letters.length) return h("p", { class: "empty" }, "None: every row that was read could be published.");
  return table("Dead letters", [["ingest"], ["reason", false, true], ["row", false, true], ["when"]], letters.map((one) => [one.ingest, one.reason, h("code", {}, one.row), one.at]));
}

function cards(jobs) {
  if (!jobs.length)
    return h("p", { class: "empty" }, "No job has run on this data directory yet. ", h("code", {}, "roskva job audit"), " says who has not heard, ", h("code", {}, "roskva job latency"), " where the time goes.");
  return h("div", { class: "jobs" }, jobs.map((job) => h("article", { class: `card ${job.plots.length ? "wide" : ""}` },
    h("h3", {}, job.name), h("div", { class: "soft small" }, `${ago(job.at)}, in ${span(job.seconds)}`), facts(figures(job)),
    h("div", { class: "plots" }, job.plots.map((name) => {
      const image = h("img", { alt: name.replace(/[-.]/g, " ").replace(" svg", ""), loading: "lazy" });
      picture(`jobs/${job.name}/${name}`).then((url) => { image.src = url; }, () => image.remove());
      return image;
    })))));
}

/** The figures on top of a job's result; the rest is in its own words, on the terminal. */
function figures(job) {
  const flat = Object.entries(job.found).flatMap(([name, value]) => (name === "states" ? Object.entries(value) : [[name, value]]));
  return flat.filter(([, value]) => typeof value === "number").map(([name, value]) => [name.replaceAll("_", " "), number(value)]);
}
