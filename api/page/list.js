// The list of targets: those in trouble first. It shows some of them, and more when asked to.
// All numbers come from the engine, since the targets that are not shown count too.

import { NotFound, read } from "./api.js";
import * as latency from "./latency.js";
import { arrange, at, duration, element, setAttribute, setText, showSpark, showTime, sparkElement, timeElement, words } from "./dom.js";

const pageSize = 200; // rows at first, and more for each "Show more"
const maxRows = 2000; // beyond them, a search finds faster than scrolling
const maxLimit = 1000; // targets in one response

// A tile is a number at the top, which shows these targets when it is pressed.
const tiles = [
  { title: "in trouble", query: { trouble: "true" }, count: (c) => c.inTrouble, severity: (n) => (n ? "critical" : "none") },
  { title: "not ready", query: { state: "not_ready" } },
  { title: "restarting", query: { state: "restarting" } },
  { title: "starting", query: { state: "starting" } },
  { title: "ready", query: { state: "ready" } },
  { title: "all", query: {}, count: (c) => c.targets },
];
const fields = ["trouble", "state", "kind", "name", "label", "group"]; // of a query of /v1/targets
const maxEngines = 60; // shown at once, by name
const maxGroups = 60; // shown at once, those that are not ready first
const maxGateways = 20; // likewise, those that are not up to date
const maxNotifiers = 20; // likewise

const rows = new Map(); // by target
const engines = new Map(); // of the cluster, by name
const groups = new Map(); // by name
const gateways = new Map(); // by name
const notifiers = new Map(); // by name and receiver
let query = {};
let wanted = pageSize;
let choose; // shows the targets of another query

// start builds what never changes. Change is called with the query that the user has chosen.
export function start(change) {
  choose = change;
  for (const tile of tiles) {
    tile.number = element("strong", "", "–");
    tile.button = element("button", "tile", tile.number, element("span", "", tile.title));
    tile.button.type = "button";
    tile.button.addEventListener("click", () => change({ ...pick(query, ["kind", "name", "label", "group"]), ...tile.query }));
    at("tiles").append(tile.button);
  }
  const given = () => ({
    ...pick(query, ["trouble", "group"]), state: at("state").value, kind: at("kind").value, label: at("label").value.trim(), name: pattern(at("search").value),
  });
  at("filter").addEventListener("submit", (event) => event.preventDefault());
  at("filter").addEventListener("input", () => change(given()));
  at("more").addEventListener("click", () => {
    wanted += pageSize;
    change(query);
  });
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
  next = pick(next, fields);
  if (JSON.stringify(next) !== JSON.stringify(query)) wanted = pageSize;
  query = next;
  const set = (id, value) => { // not while it is typed
    if (at(id) !== document.activeElement) at(id).value = value || "";
  };
  set("search", searchOf(query.name));
  set("label", query.label);
  set("kind", query.kind);
  set("state", query.state);
  for (const tile of tiles) {
    const pressed = JSON.stringify(tile.query) === JSON.stringify(pick(query, ["trouble", "state"]));
    tile.button.setAttribute("aria-pressed", String(pressed));
  }
}

// load reads what is shown, with the probes' latest attempts if asked for, and shows it.
export async function load(withProbes, signal) {
  const [cluster, { groups: all }, { gateways: followers }, { notifiers: receivers }, { targets, total, counts }] =
    await Promise.all([loadCluster(signal), read("/v1/groups", signal), read("/v1/gateways", signal), read("/v1/notifiers", signal), loadTargets(withProbes, signal)]);
  showCounts(counts);
  showCluster(cluster);
  showGroups(all);
  showGateways(followers);
  showNotifiers(receivers);
  showTargets(targets);
  showTotal(targets.length, total, counts.targets);
}

let isAlone = false; // the engine is in no cluster, which only another start changes

// loadCluster reads what the engine knows of its cluster; undefined if it is in none.
async function loadCluster(signal) {
  if (isAlone) return undefined;
  try {
    return await read("/v1/cluster", signal);
  } catch (err) {
    if (!(err instanceof NotFound)) throw err;
    isAlone = true;
    return undefined;
  }
}

// loadTargets reads as many targets as are shown.
async function loadTargets(withProbes, signal) {
  const targets = [];
  let page, total;
  do {
    const search = new URLSearchParams({ ...query, sort: "trouble", limit: Math.min(maxLimit, wanted - targets.length) });
    if (withProbes) search.set("probes", "true");
    if (page) search.set("after", page.next);
    page = await read("/v1/targets?" + search, signal);
    total = total === undefined ? page.total || 0 : total;
    targets.push(...page.targets);
  } while (page.next && targets.length < wanted);
  return { targets, total, counts: page.counts };
}

function showCounts(counts) {
  for (const tile of tiles) {
    const n = tile.count ? tile.count(counts) : counts.states[tile.query.state] || 0;
    setText(tile.number, n.toLocaleString());
    setAttribute(tile.button, "data-severity", tile.severity && tile.severity(n));
  }
  document.title = (counts.inTrouble ? "(" + counts.inTrouble + ") " : "") + "Sonde";
  showStates(counts.states);
}

// showStates offers the states that targets are in, with their numbers.
function showStates(states) {
  const select = at("state");
  const names = Object.keys(states).sort();
  if (query.state && !names.includes(query.state)) names.push(query.state);
  const options = [...select.options].slice(1);
  arrange(select, [select.options[0], ...names.map((name) => {
    const option = options.find((o) => o.value === name) || Object.assign(element("option"), { value: name });
    setText(option, words(name) + " (" + (states[name] || 0).toLocaleString() + ")");
    return option;
  })]);
  if (select !== document.activeElement) select.value = query.state || "";
}

// showCluster shows which engines are members of the cluster, and whether this one hears from etcd.
function showCluster(cluster) {
  const members = (cluster ? cluster.members : []).slice(0, maxEngines);
  const away = cluster && !cluster.allowed;
  setText(at("cluster-state"), !away ? "" : !cluster.heard ? "etcd has not answered yet: this engine knows no other ones, and probes no shared target." :
    "etcd cannot be reached, or this engine was suspended: it restarts no shared target, and shows what other engines probe as it was at " + new Date(cluster.heard).toLocaleTimeString() + ".");
  const names = new Set(members.map((m) => m.name));
  for (const name of engines.keys()) if (!names.has(name)) engines.delete(name);
  arrange(at("cluster"), members.map((m) => {
    if (!engines.has(m.name)) engines.set(m.name, makeEngine(m.name));
    const { item, text } = engines.get(m.name);
    const notes = [`${m.shards.toLocaleString()} of ${cluster.shardCount.toLocaleString()} shards`];
    if (m.name === cluster.name) notes.push("this engine");
    if (m.drained) notes.push(drainText(cluster.drains.find((d) => d.name === m.name)));
    if (m.health === "doubtful") notes.push("doubts its verdicts");
    const trial = cluster.config && cluster.config.trial;
    const isTrial = trial && trial.engine === m.name;
    if (isTrial) notes.push(`${m.refused ? "has refused" : "tries"} revision ${trial.revision}, a trial`);
    else if (m.refused) notes.push("has refused the current revision");
    setText(text, notes.join(", "));
    return item;
  }));
}

// drainText says that an engine is drained, by the order of an operator if there is one.
function drainText(order) {
  if (!order || !order.by) return "drained";
  return `drained by ${order.by} since ${new Date(order.at).toLocaleString()}`;
}

function makeEngine(name) {
  const text = element("span", "muted");
  return { item: element("li", "gateway", element("b", "", name), text), text };
}

// showGroups shows groups with their numbers. One shows its members when it is pressed, and all
// targets when it is pressed again.
function showGroups(all) {
  const order = { down: 0, undecided: 1, ready: 2 };
  const shown = all.toSorted((a, b) => order[a.state] - order[b.state]).slice(0, maxGroups);
  const names = new Set(shown.map((g) => g.name));
  for (const name of groups.keys()) if (!names.has(name)) groups.delete(name);
  arrange(at("groups"), shown.map((g) => {
    if (!groups.has(g.name)) groups.set(g.name, makeGroup(g.name));
    const { item, button, state, text } = groups.get(g.name);
    setText(state, g.state);
    setAttribute(state, "data-state", g.state);
    setText(text, `${(g.counts.ready + g.counts.degraded).toLocaleString()} of ${g.counts.total.toLocaleString()} ready, ${g.need.toLocaleString()} needed${g.zeroWeight ? `, ${g.zeroWeight.toLocaleString()} more of weight 0` : ""}${g.restartsWithheld ? `, ${g.restartsWithheld.toLocaleString()} failing and not restarted (hold_restarts)` : ""}${g.stale ? `, ${g.stale.toLocaleString()} stale` : ""}`);
    button.setAttribute("aria-pressed", String(query.group === g.name));
    return item;
  }));
}

function makeGroup(name) {
  const state = element("span", "state"), text = element("span", "muted");
  const button = element("button", "group", element("b", "", name), text, state);
  button.type = "button";
  button.addEventListener("click", () => choose({ ...query, group: query.group === name ? "" : name }));
  return { item: element("li", "", button), button, state, text };
}

// showGateways shows whether gateways are up to date.
function showGateways(all) {
  const order = { failing: 0, waiting: 1, up_to_date: 2 };
  const shown = all.toSorted((a, b) => order[a.state] - order[b.state]).slice(0, maxGateways);
  const names = new Set(shown.map((g) => g.name));
  for (const name of gateways.keys()) if (!names.has(name)) gateways.delete(name);
  arrange(at("gateways"), shown.map((g) => {
    if (!gateways.has(g.name)) gateways.set(g.name, makeGateway(g.name));
    const { item, state, text, since, error } = gateways.get(g.name);
    setText(text, `gateway (${g.output}) of ${g.groups.join(", ")}`);
    setText(state, g.state === "failing" ? "not up to date" : words(g.state));
    setAttribute(state, "data-state", g.state);
    showTime(since, g.state === "failing" ? g.errorSince : g.last);
    setText(error, g.error || "");
    return item;
  }));
}

// showNotifiers shows whether the receivers of notifiers were told everything.
function showNotifiers(all) {
  const order = { failing: 0, behind: 1, up_to_date: 2 };
  const key = (n) => JSON.stringify([n.name, n.receiver]);
  const shown = all.toSorted((a, b) => order[a.state] - order[b.state]).slice(0, maxNotifiers);
  const keys = new Set(shown.map(key));
  for (const known of notifiers.keys()) if (!keys.has(known)) notifiers.delete(known);
  arrange(at("notifiers"), shown.map((n) => {
    if (!notifiers.has(key(n))) notifiers.set(key(n), makeGateway(n.name));
    const { item, state, text, since, error } = notifiers.get(key(n));
    setText(text, `notify (${n.output}) ${n.receiver}` + (n.pending > 0 ? `, ${n.pending.toLocaleString()} transitions to tell` : ""));
    setText(state, words(n.state));
    setAttribute(state, "data-state", n.state);
    showTime(since, n.state === "failing" ? n.errorSince : n.last);
    setText(error, n.error || "");
    return item;
  }));
}

function makeGateway(name) {
  const text = element("span", "muted"), state = element("span", "state"), since = timeElement(), error = element("span", "error");
  return { item: element("li", "gateway", state, element("b", "", name), text, since, error), state, text, since, error };
}

function showTargets(targets) {
  const names = new Set(targets.map((t) => t.name));
  for (const name of rows.keys()) if (!names.has(name)) rows.delete(name);
  latency.keep(names);
  arrange(at("targets"), targets.map((target) => {
    if (!rows.has(target.name)) rows.set(target.name, makeRow(target.name));
    fill(rows.get(target.name), target);
    return rows.get(target.name).line;
  }));
}

function showTotal(shown, total, all) {
  const filtered = Object.keys(query).length > 0;
  setText(at("matches"), filtered ? total.toLocaleString() + " of " + all.toLocaleString() + (all === 1 ? " target" : " targets") : "");
  at("empty").hidden = shown > 0;
  setText(at("empty"), all === 0 ? "The configuration has no targets." : query.trouble ? "Nothing is in trouble." : "No target matches.");
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
    state: element("span", "state"), address: element("span", "muted"), probe: element("span", "probe"), detail: element("span", "muted detail"),
    since: timeElement(), restarts: element("span"), latest: element("span", "muted latest"), spark: sparkElement(),
  };
  const link = element("a", "", name);
  link.href = "#/target/" + encodeURIComponent(name);
  const head = element("th", "name", link, row.address);
  head.scope = "row";
  row.line = element("tr", "", cell("State", row.state), head, cell("Why", row.probe, row.detail), cell("Since", row.since),
    cell("Restarts", row.restarts), cell("Latency", row.latest, row.spark));
  return row;
}

function fill(row, target) {
  const { cause = {}, ejection } = target;
  setText(row.state, words(target.state) + (target.stale ? ", stale" : ""));
  setAttribute(row.state, "data-state", target.state);
  setAttribute(row.line, "data-severity", target.severity);
  setText(row.address, [target.address, target.heard ? "by " + (target.owner || "no engine now") : target.owner && "by " + target.owner].filter(Boolean).join(", "));
  const probe = cause.probe ? cause.probe.slice(target.name.length + 1) : "";
  const ejected = ejection && !probe && !cause.reason; // or else what is worse is shown
  setText(row.probe, (ejected ? ["ejected by gateways", ejection.reason] : [probe, cause.reason]).filter(Boolean).join(" · "));
  const detail = (ejected ? ejection.detail : cause.detail) || "";
  setText(row.detail, detail.split("\n", 1)[0]);
  setAttribute(row.detail, "title", detail);
  showTime(row.since, target.since);
  setText(row.restarts, String(target.instance.restarts));
  latency.note(target);
  row.probeID = latency.probeInList(target) || row.probeID; // an event has no probes
  const values = latency.ofProbe(row.probeID);
  showSpark(row.spark, values);
  setText(row.latest, values.length ? duration(values[values.length - 1]) : "");
}
