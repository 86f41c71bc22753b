// Elements without a framework: `h("p", {class: "soft"}, "text")`, and words for numbers.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Put `make()` into `place`, unless what it is made of is what it was, or somebody is at a link in there. */
export function put(place, facts, make) {
  const made = JSON.stringify(facts);
  if (place.madeOf === made) return;
  const at = place.contains(document.activeElement) ? document.activeElement : null;
  if (at && !at.matches(".scroll")) return;
  const scrolled = place.querySelector(".scroll")?.scrollLeft ?? 0;
  place.madeOf = made;
  place.replaceChildren(...[make()].flat().filter(Boolean));
  const region = place.querySelector(".scroll");
  if (region) region.scrollLeft = scrolled;
  if (at) region?.focus({ preventScroll: true });
}

/** Text that is read aloud when it changes, and only then. */
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

const whole = new Intl.NumberFormat("en");
export const number = (value) => whole.format(value);

export function rate(value) {
  if (!value) return "0/s";
  return value < 10 ? `${value.toFixed(1)}/s` : `${number(Math.round(value))}/s`;
}

export function ms(value) {
  return value < 10 ? `${value.toFixed(1)} ms` : value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

export function span(seconds) {
  for (const [unit, length] of [["days", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  return seconds < 1 ? "less than 1 s" : `${Math.round(seconds)} s`;
}

export function size(bytes) {
  return bytes < 1024 ? `${bytes} bytes` : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KiB` : `${number(Math.round(bytes / 1048576))} MiB`;
}

export const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
export const ago = (at) => `${span(Math.max(0, Date.now() / 1000 - at))} ago`;

/** Columns are [title, is it a number?, is it long?]; rows are lists of cells. */
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map(([title, isNumber]) => h("th", { scope: "col", class: isNumber && "num" }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) =>
        i === 0 ? h("th", { scope: "row" }, cell) : h("td", { class: columns[i][1] ? "num" : columns[i][2] && "long" }, cell)))))));
}

export const facts = (pairs) => h("dl", { class: "facts" },
  pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

const TONES = { fresh: "", running: "", online: "", pending: "warn", unknown: "warn", starting: "warn", offline: "warn", slow: "bad", blind: "bad", failed: "bad" };
const WORDS = { slow: "slow reader", blind: "shard silent", unknown: "told to look" };
export const state = (word) => h("span", { class: `state ${TONES[word] ?? "warn"}` }, WORDS[word] ?? word);
