// What the views share: elements, times and durations. All data becomes text by textContent or
// an attribute, never HTML.

export const at = (id) => document.getElementById(id);

// element creates an element with classes, text, or other elements in it.
export function element(name, classes, ...content) {
  const e = document.createElement(name);
  if (classes) e.className = classes;
  e.append(...content.filter((c) => c !== "" && c !== undefined && c !== null && c !== false));
  return e;
}

// setText changes the text of an element. It does not set an equal text: that would end the
// selection of a reader, and a screen reader would read it aloud again.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// setAttribute changes an attribute, or removes it if the value is empty.
export function setAttribute(e, name, value) {
  if (!value) e.removeAttribute(name);
  else if (e.getAttribute(name) !== value) e.setAttribute(name, value);
}

// arrange makes elements the children of a parent, in this order. It moves as few as possible,
// since moving one ends a selection in it.
export function arrange(parent, elements) {
  const kept = new Set(elements);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  let next = parent.firstElementChild;
  for (const e of elements) {
    if (e !== next && next && next.nextElementSibling === e) {
      const later = next; // it has moved down, rather than all others up
      next = e;
      later.remove();
    }
    if (e === next) next = next.nextElementSibling;
    else parent.insertBefore(e, next);
  }
}

// words returns a word of the API as it is read: "not_ready" as "not ready".
export const words = (s) => s.replaceAll("_", " ");

// plain returns a detail in words for people: without the calls that Go names in errors of the network, and with times as
// durations.
export function plain(text, now = Date.now()) {
  return text
    .replace(/\b(?:dial|read|write) (?:tcp|udp|unix|ip\d?:\w+) (\S+): (?:connect: )?(.*)/, "$2: $1")
    .replace(/\b(at )?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/g, (all, _, time) => relative((now - new Date(time)) / 1000) || all);
}

// relative returns how long ago something was, or in how long it will be.
const relative = (seconds) => (seconds < 0 ? "in " + span(Math.ceil(-seconds)) : seconds < 1 ? "just now" : span(seconds) + " ago");

const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

// span returns a number of seconds in the largest unit: "3 min".
export function span(seconds) {
  for (const [size, unit] of units) {
    if (seconds >= size) return Math.floor(seconds / size) + " " + unit;
  }
  return "0 s";
}

// timeElement returns an element for a time of the API, which showTime fills. With "due" as
// its class it is a time at which something is due.
export const timeElement = (classes) => element("time", classes);

// showTime shows how long ago a time of the API was, or in how long it will be; "now" if
// something is due. Without a time it shows nothing.
export function showTime(e, time, now = Date.now()) {
  setAttribute(e, "datetime", time);
  if (!time) return setText(e, "");
  const seconds = (now - new Date(time)) / 1000;
  setText(e, seconds >= 0 && e.className === "due" ? "now" : relative(seconds));
  setAttribute(e, "title", new Date(time).toLocaleString());
}

// renewTimes shows all times in an element anew.
export function renewTimes(within) {
  const now = Date.now();
  for (const e of within.querySelectorAll("time[datetime]")) showTime(e, e.getAttribute("datetime"), now);
}

// duration returns a duration in seconds as text: "1.2 ms".
export function duration(seconds) {
  if (seconds >= 1) return Number(seconds.toFixed(seconds < 10 ? 2 : 0)) + " s";
  const ms = seconds * 1000;
  if (ms < 0.01) return "< 0.01 ms";
  return (ms >= 10 ? ms.toFixed(0) : ms >= 1 ? ms.toFixed(1) : ms.toFixed(2)) + " ms";
}

const svgSpace = "http://www.w3.org/2000/svg";
const sparkWidth = 72, sparkHeight = 20;

// sparkElement returns an element in which showSpark draws. It is hidden from screen readers,
// which have the latest value as text beside it.
export function sparkElement() {
  const svg = document.createElementNS(svgSpace, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 " + sparkWidth + " " + sparkHeight);
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(svgSpace, "polyline"));
  return svg;
}

// sparkLength is how many values a spark line shows.
export const sparkLength = 30;

const leastSpark = 5; // values; fewer show nothing

// showSpark draws the latest values, from zero to the largest one. A few values have no line.
export function showSpark(svg, values) {
  const most = Math.max(...values, 1e-9), step = sparkWidth / Math.max(1, values.length - 1);
  const points = values.map((v, i) => (i * step).toFixed(1) + "," + (sparkHeight - 1 - (v / most) * (sparkHeight - 2)).toFixed(1));
  svg.classList.toggle("drawn", values.length >= leastSpark);
  svg.firstElementChild.setAttribute("points", values.length >= leastSpark ? points.join(" ") : "");
}
