// The list of targets: those in trouble first. It shows some of them, and more when asked to.
// All numbers come from the engine, since the targets that are not shown count too.

import { read } from "./api.js";
import * as latency from "./latency.js";
import * as parts from "./parts.js";
import * as uptime from "./uptime.js";
import { partOf, tiles } from "./states.js";
import { arrange, at, duration, element, plain, setAttribute, setText, showSpark, showTime, sparkElement, timeElement, words } from "./dom.js";

const pageSize = 200; // rows at first, and more for each "Show more"
const maxRows = 2000; // beyond them, a search finds faster than scrolling
const maxLimit = 1000; // targets in one response
const maxLabels = 40; // names of labels by which targets can be grouped

const fields = ["part", "state", "kind", "name", "label", "group"]; // of a query
const settings = ["view", "by"]; // of the page only

const rows = new Map(); // by target
const heads = new Map(); // of sections, by their text
let query = {};
let wanted = pageSize;

// start builds what never changes. Change is called with the query that the user has chosen.
export function start(change) {
  for (const tile of tiles) {
    tile.number = element("strong", "", "–");
    tile.button = element("button", "tile", tile.number, element("span", "", tile.title));
    tile.button.type = "button";
    setAttribute(tile.button, "data-part", tile.part);
    if (tile.states) setAttribute(tile.button, "title", tile.states.map(words).join(", "));
    tile.button.addEventListener("click", () => change({ ...pick(query, ["kind", "name", "label", "group", ...settings]), part: tile.part }));
    at("tiles").append(tile.button);
  }
  const given = () => ({
    ...pick(query, ["group"]), part: at("state").value ? "" : query.part, state: at("state").value, kind: at("kind").value,
    label: at("label").value.trim(), name: pattern(at("search").value), by: at("by").value, view: at("view").value,
  });
  at("filter").addEventListener("submit", (event) => event.preventDefault());
  at("filter").addEventListener("input", () => change(given()));
  at("more").addEventListener("click", () => {
    wanted += pageSize;
    change(query);
  });
  parts.start((group) => change({ ...query, group }));
  const wide = matchMedia("(min-width: 48rem)"); // on a phone the targets come first
  const fold = () => { at("filters").open = at("parts").open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();
}

// pattern returns the names that a search finds: those that contain it, if it has no wildcard.
function pattern(search) {
  const text = search.trim();
  return text && !/[*?]/.test(text) ? "*" + text + "*" : text;
}

// searchOf is the reverse of pattern.
const searchOf = (name = "") => (/^\*[^*?]+\*$/.test(name) ? name.slice(1, -1) : name);

const pick = (from, names) => Object.fromEntries(names.filter((n) => from[n]).map((n) => [n, from[n]]));

// show shows the targets of a query, and the query in the form.
export function show(next) {
  next = pick(next, [...fields, ...settings]);
  if (JSON.stringify(next) !== JSON.stringify(query)) wanted = pageSize;
  query = next;
  const set = (id, value) => { // not while it is typed
    if (at(id) !== document.activeElement) at(id).value = value || "";
  };
  set("search", searchOf(query.name));
  set("label", query.label);
  set("kind", query.kind);
  set("state", query.state);
  set("view", query.view);
  showLabels([]);
  setAttribute(at("list"), "data-view", query.view);
  parts.setChosen(query.group);
  for (const { part, button } of tiles) setAttribute(button, "aria-pressed", String(!query.state && part === (query.part || "")));
}

// load reads what is shown, with the probes' latest attempts if asked for, and shows it.
export async function load(withProbes, signal) {
  const [showParts, { targets, total, counts }] = await Promise.all([parts.load(signal), loadTargets(withProbes, signal)]);
  showCounts(counts);
  showParts();
  showLabels(targets);
  showTargets(targets);
  showTotal(targets.length, total, counts.targets);
}

// search returns the query of /v1/targets.
function search() {
  const { part, ...rest } = pick(query, fields);
  if (part) rest.state = tiles.find((t) => t.part === part)?.states?.join() || part; // which the engine rejects if it is none
  if (query.by === "group") rest.groups = "true";
  return { sort: "trouble", ...rest };
}

// loadTargets reads as many targets as are shown.
async function loadTargets(withProbes, signal) {
  const targets = [];
  let after = "", total = 0, counts;
  do {
    const page = new URLSearchParams({ ...search(), limit: Math.min(maxLimit, wanted - targets.length), probes: withProbes, ...(after && { after }) });
    const response = await read("/v1/targets?" + page, signal);
    targets.push(...response.targets);
    if (!after) total = response.total || 0;
    counts = response.counts;
    after = response.next;
  } while (after && targets.length < wanted);
  return { targets, total, counts };
}

function showCounts(counts) {
  const numbers = { "": counts.targets };
  for (const [state, n] of Object.entries(counts.states)) numbers[partOf[state]] = (numbers[partOf[state]] || 0) + n;
  for (const { part, number, button, tone } of tiles) {
    const n = numbers[part] || 0;
    setText(number, n.toLocaleString());
    setAttribute(button, "data-tone", n ? tone : "");
    button.classList.toggle("zero", n === 0);
  }
  document.title = (counts.inTrouble ? "(" + counts.inTrouble.toLocaleString() + ") " : "") + "Sonde";
  showStates(counts.states);
}

// showStates offers the states that targets have, with their numbers.
function showStates(states) {
  const names = Object.keys(states).sort();
  if (query.state && !names.includes(query.state)) names.push(query.state);
  offer(at("state"), 1, names.map((name) => [name, words(name) + " (" + (states[name] || 0).toLocaleString() + ")"]), query.state);
}

const labels = new Set(); // names that targets were seen to have

// showLabels offers the labels of targets to group them by.
function showLabels(targets) {
  for (const target of targets) for (const name of Object.keys(target.labels || {})) if (labels.size < maxLabels) labels.add(name);
  if (query.by && !["group", "prefix"].includes(query.by)) labels.add(query.by);
  offer(at("by"), 3, [...labels].sort().map((name) => [name, "label " + name]), query.by);
}

// offer sets the options of a select behind those that it always has.
function offer(select, fixed, named, value) {
  const options = [...select.options];
  arrange(select, [...options.slice(0, fixed), ...named.map(([name, text]) => {
    const option = options.slice(fixed).find((o) => o.value === name) || Object.assign(element("option"), { value: name });
    setText(option, text);
    return option;
  })]);
  if (select !== document.activeElement) select.value = value || "";
}

function showTargets(targets) {
  const names = new Set(targets.map((t) => t.name));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    uptime.remove(row.uptime);
    rows.delete(name);
  }
  latency.keep(names);
  for (const target of targets) {
    if (!rows.has(target.name)) rows.set(target.name, makeRow(target.name));
    fill(rows.get(target.name), target);
  }
  arrange(at("targets"), query.by ? inSections(targets) : targets.map((t) => rows.get(t.name).line));
  at("targets").parentElement.classList.toggle("no-restarts", targets.every((t) => !t.instance.restarts));
}

// inSections returns the rows of targets below the heads of their sections, in the order in which each section's first target comes.
function inSections(targets) {
  const sections = new Map();
  for (const target of targets) {
    const text = sectionOf(target);
    if (!sections.has(text)) sections.set(text, []);
    sections.get(text).push(target);
  }
  for (const text of heads.keys()) if (!sections.has(text)) heads.delete(text);
  return [...sections].flatMap(([text, members]) => {
    if (!heads.has(text)) heads.set(text, makeHead(text));
    const bad = members.filter((t) => t.inTrouble).length;
    setText(heads.get(text).text, members.length.toLocaleString() + " shown" + (bad ? ", " + bad.toLocaleString() + " in trouble" : ""));
    setAttribute(heads.get(text).text, "data-tone", bad ? "bad" : "");
    return [heads.get(text).line, ...members.map((t) => rows.get(t.name).line)];
  });
}

function sectionOf(target) {
  if (query.by === "group") return (target.groups || []).join(", ") || "in no group";
  if (query.by === "prefix") return target.name.includes("/") ? target.name.slice(0, target.name.lastIndexOf("/") + 1) : "no prefix";
  const value = (target.labels || {})[query.by];
  return value === undefined ? "without " + query.by : query.by + "=" + value;
}

function makeHead(title) {
  const text = element("span", "muted"), cell = element("th", "", element("b", "", title), " ", text);
  cell.colSpan = 7;
  cell.scope = "rowgroup";
  return { line: element("tr", "section", cell), text };
}

function showTotal(shown, total, all) {
  const filtered = Object.keys(pick(query, fields)).length > 0;
  setText(at("matches"), filtered ? total.toLocaleString() + " of " + all.toLocaleString() + (all === 1 ? " target" : " targets") : "");
  at("empty").hidden = shown > 0;
  setText(at("empty"), all === 0 ? "The configuration has no targets." : query.part === "trouble" ? "Nothing is in trouble." : "No target matches.");
  at("rest").hidden = total <= shown;
  at("more").hidden = shown >= maxRows;
  setText(at("shown"), shown.toLocaleString() + " of " + total.toLocaleString() + " are shown" + (shown >= maxRows ? ": search to see others." : "."));
}

// update shows a target that has changed at once, if it is shown. Its place in the list, and the
// numbers, follow with the next load.
export function update(target) {
  const row = rows.get(target.name);
  if (row) fill(row, target);
}

// makeRow creates the line of a target. On a narrow screen it is a card: data-label is the
// column's title there.
function makeRow(name) {
  const cell = (label, ...content) => {
    const td = element("td", "of-" + label.toLowerCase(), ...content);
    td.dataset.label = label;
    return td;
  };
  const row = {
    state: element("span", "state"), address: element("span", "muted"), sentence: element("span", "sentence"), code: element("span", "code"),
    since: timeElement(), restarts: element("span"), latest: element("span", "muted latest"), spark: sparkElement(),
    uptime: uptime.make(name),
  };
  const link = element("a", "", name);
  link.href = "#/target/" + encodeURIComponent(name);
  const head = element("th", "name", link, row.address);
  head.scope = "row";
  row.line = element("tr", "", cell("State", row.state), head, cell("Why", row.sentence, row.code), cell("Uptime", row.uptime), cell("Since", row.since),
    cell("Restarts", row.restarts), cell("Latency", row.latest, row.spark));
  return row;
}

function fill(row, target) {
  if (row.state.dataset.state !== target.state) uptime.refresh();
  row.isProcess = row.isProcess || Boolean(target.process); // an event does not say so
  setText(row.state, words(target.state) + (target.stale ? ", stale" : ""));
  setAttribute(row.state, "data-state", target.state);
  setAttribute(row.line, "data-severity", target.severity);
  setAttribute(row.line, "data-part", partOf[target.state]);
  const owner = target.heard ? "by " + (target.owner || "no engine now") : target.owner && "by " + target.owner;
  setText(row.address, [row.isProcess ? "process" : target.address, owner].filter(Boolean).join(", "));
  const { sentence, detail, code } = why(target);
  setText(row.sentence, sentence);
  setText(row.code, code);
  setAttribute(row.line, "title", [words(target.state), detail].filter(Boolean).join(": "));
  showTime(row.since, target.since);
  setText(row.restarts, target.instance.restarts ? target.instance.restarts.toLocaleString() : "");
  latency.note(target);
  row.probeID = latency.probeInList(target) || row.probeID; // an event has no probes
  const values = latency.ofProbe(row.probeID);
  showSpark(row.spark, values);
  setText(row.latest, values.length ? duration(values[values.length - 1]) : "");
}

// why returns why a target is in its state: a sentence, all of its text, and a code that says which probe and which reason.
export function why({ name, state, cause = {}, ejection, troubledDependency }) {
  const probe = cause.probe ? cause.probe.slice(name.length + 1) : "";
  const isEjected = ejection && !probe && !cause.reason; // or else what is worse is shown
  const { reason, detail = "" } = isEjected ? ejection : cause;
  let sentence = plain(detail.split("\n", 1)[0]);
  if (isEjected) sentence = "ejected by gateways" + (sentence && ": " + sentence);
  if (state === "unreachable" && troubledDependency) sentence = "depends on " + troubledDependency + ", which is in trouble" + (sentence && ": " + sentence);
  return { sentence, detail, code: [probe, reason].filter(Boolean).join(" · ") };
}
