// What stands around the targets: the engines of the cluster, groups, gateways and notifiers.

import { NotFound, read } from "./api.js";
import { arrange, at, element, setAttribute, setText, showTime, span, timeElement, words } from "./dom.js";

const maxEngines = 60; // shown at once, by name
const maxGroups = 60; // shown at once, those that are not ready first
const maxGateways = 20; // likewise, those that are not up to date
const maxNotifiers = 20; // likewise

const engines = new Map(); // of the cluster, by name
const groups = new Map(); // by name
const gateways = new Map(); // by name
const notifiers = new Map(); // by name and receiver
let chosen = ""; // the group whose members are shown
let choose; // shows the members of a group, or all targets

// start is called with a function that shows the members of a group, or all targets for "".
export function start(chooseGroup) {
  choose = chooseGroup;
}

// setChosen sets the group whose members are shown; undefined for none.
export function setChosen(name = "") {
  chosen = name;
}

// load reads all parts, and returns a function that shows them.
export async function load(signal) {
  const [cluster, { groups }, { gateways }, { notifiers }] =
    await Promise.all([loadCluster(signal), read("/v1/groups", signal), read("/v1/gateways", signal), read("/v1/notifiers", signal)]);
  return () => {
    showCluster(cluster);
    showGroups(groups);
    showGateways(gateways);
    showNotifiers(notifiers);
    const counts = [
      counted(cluster ? cluster.members : [], "engine", (m) => m.health === "doubtful", "doubtful"),
      counted(groups, "group", (g) => g.state === "down", "down"),
      counted(gateways, "gateway", (g) => g.state === "failing", "not up to date"),
      counted(notifiers, "receiver", (n) => n.state === "failing", "failing"),
    ].filter(Boolean);
    at("parts").hidden = counts.length === 0;
    setText(at("parts-summary"), counts.join(" · "));
  };
}

// counted says how many there are, and how many of them are bad: "3 groups, 1 down".
function counted(all, name, isBad, bad) {
  const n = all.filter(isBad).length;
  return all.length ? `${all.length.toLocaleString()} ${name}${all.length === 1 ? "" : "s"}${n ? `, ${n.toLocaleString()} ${bad}` : ""}` : "";
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

// ago says how long ago a time was.
const ago = (time) => span((Date.now() - new Date(time)) / 1000) + " ago";

// showCluster shows which engines are members of the cluster, and whether this one hears from etcd.
function showCluster(cluster) {
  const members = (cluster ? cluster.members : []).slice(0, maxEngines);
  const away = cluster && !cluster.allowed;
  setText(at("cluster-state"), !away ? "" : !cluster.heard ? "etcd has not answered yet: this engine knows no other engines, and probes no shared target." :
    "etcd cannot be reached, or this engine was suspended: it restarts no shared target, and shows the targets of other engines as they were " + ago(cluster.heard) + ".");
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
const drainText = (order) => (order && order.by ? `drained by ${order.by} ${ago(order.at)}` : "drained");

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
    button.setAttribute("aria-pressed", String(chosen === g.name));
    return item;
  }));
}

function makeGroup(name) {
  const state = element("span", "state"), text = element("span", "muted");
  const button = element("button", "group", element("b", "", name), text, state);
  button.type = "button";
  button.addEventListener("click", () => choose(chosen === name ? "" : name));
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
    setText(text, `notify (${n.output}) ${n.receiver}` + (n.pending > 0 ? `, ${n.pending.toLocaleString()} notices pending` : ""));
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
