// The states of targets in the last 24 hours, as bars, and the latencies of their probes. Those that are visible are read, and no others.

import { read } from "./api.js";
import * as latency from "./latency.js";
import { element, setAttribute, setText, span, words } from "./dom.js";
import { partOf } from "./states.js";

const most = 64; // targets of a request
const readEvery = 10_000; // ms, of what is visible
const soon = 50; // ms; rows that become visible together are read together
const width = 1440, height = 16; // of the drawing: a minute is 1 wide
const least = 12; // of a span that is not good, to be seen

const svgSpace = "http://www.w3.org/2000/svg";
const bars = new Map(); // by element: { name, bar }
const visible = new Set(); // elements
let timer = 0;
let readAt = 0;

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) visible.delete(target);
    else if (!visible.has(target)) {
      visible.add(target);
      loadIn(soon);
    }
  }
});

// make returns an element with the bar of a target, which is read while it is visible.
export function make(name) {
  const svg = document.createElementNS(svgSpace, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "last 24 hours");
  const day = element("span", "day"), week = element("span", "week"), e = element("div", "uptime", svg, element("span", "shares", day, week));
  bars.set(e, { name, svg, day, week, drawn: "" });
  observer.observe(e);
  return e;
}

// remove forgets an element.
export function remove(e) {
  observer.unobserve(e);
  bars.delete(e);
  visible.delete(e);
}

function loadIn(ms) {
  clearTimeout(timer);
  timer = setTimeout(load, ms);
}

// load reads the visible bars. Without a token, or when the engine does not answer, the page says so elsewhere.
async function load() {
  readAt = Date.now();
  const shown = [...visible].filter((e) => bars.has(e));
  try {
    for (let i = 0; i < shown.length; i += most) {
      const some = shown.slice(i, i + most);
      const { from, uptimes } = await read("/v1/uptime?latency=true&" + new URLSearchParams(some.map((e) => ["target", bars.get(e).name])));
      const byName = new Map(uptimes.map((u) => [u.target, u]));
      if (uptimes.filter((u) => latency.take(u.target, u.latencies)).length) dispatchEvent(new Event("latencies"));
      for (const e of some) if (bars.has(e)) draw(bars.get(e), byName.get(bars.get(e).name), new Date(from));
    }
  } catch {
    // shown below
  }
  if (visible.size) loadIn(readEvery);
}

// refresh reads the bars again after a change.
export function refresh() {
  if (visible.size) loadIn(Math.max(soon, readAt + 1000 - Date.now()));
}

const percent = (share) => (share === undefined ? "" : share === 1 ? "100 %" : Math.min(99.99, share * 100).toFixed(2) + " %");

// draw shows spans as rectangles. What is unknown has none.
function draw({ svg, day, week, drawn, name }, uptime, from) {
  const spans = uptime ? uptime.spans : [];
  setText(day, uptime ? percent(uptime.day) : "");
  setText(week, uptime && uptime.week !== undefined ? percent(uptime.week) + " in 7 d" : "");
  const minute = (at) => (new Date(at) - from) / 60_000;
  const parts = spans.map(({ at, state }, i) => {
    const begin = Math.max(0, minute(at)), end = i + 1 < spans.length ? minute(spans[i + 1].at) : width;
    return { state, part: state === "unknown" ? "none" : partOf[state], begin, length: end - begin };
  });
  setAttribute(svg, "aria-label", "last 24 hours: " + summary(parts));
  const order = ["none", "ready", "paused", "starting", "degraded", "unknown", "trouble"]; // the last one is drawn above the others
  parts.sort((a, b) => order.indexOf(a.part) - order.indexOf(b.part));
  svg.replaceChildren(...parts.filter((p) => p.part !== "none").map(({ state, part, begin, length }) => {
    const rect = document.createElementNS(svgSpace, "rect"), title = document.createElementNS(svgSpace, "title");
    const shown = part === "ready" ? length : Math.max(least, length);
    const set = { x: Math.min(begin, width - shown).toFixed(1), width: shown.toFixed(1), y: 0, height, class: "is-" + part };
    for (const [key, value] of Object.entries(set)) rect.setAttribute(key, value);
    title.textContent = `${words(state)} for ${span(length * 60)}, from ${new Date(from.getTime() + begin * 60_000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`;
    rect.append(title);
    return rect;
  }));
}

// summary says how long the target was in which state: "ready for 23 h, not ready for 10 min".
function summary(parts) {
  const minutes = new Map();
  for (const { state, length } of parts) minutes.set(state, (minutes.get(state) || 0) + length);
  return [...minutes].map(([state, n]) => words(state) + " for " + span(n * 60)).join(", ") || "not known";
}
