// The page of one target: why it is as it is, its probes, and what happened before.

import { NotFound, pathOf, read } from "./api.js";
import * as latency from "./latency.js";
import { why } from "./list.js";
import * as operate from "./operate.js";
import * as uptime from "./uptime.js";
import { arrange, at, duration, element, plain, setAttribute, setText, showSpark, showTime, span, sparkElement, timeElement, words } from "./dom.js";

let cards = new Map(); // of probes, by ID
let facts = new Map(); // by title
let entries = new Map(); // of the history, by time and text
let shown = "";

// load reads a target and its history, and shows them.
export async function load(name, signal) {
  if (name !== shown) clear(name);
  let target, history;
  try {
    [target, history] = await Promise.all([read(pathOf(name), signal), read(pathOf(name) + "/history", signal)]);
  } catch (err) {
    if (!(err instanceof NotFound)) throw err;
    return showRemoved();
  }
  latency.note(target);
  showTarget(target);
  operate.show(target);
  showProbes(target);
  showHistory(history);
}

let bar; // of the last 24 hours

function clear(name) {
  if (bar) uptime.remove(bar);
  bar = uptime.make(name);
  at("target-uptime").replaceChildren(bar);
  [cards, facts, entries] = [new Map(), new Map(), new Map()];
  for (const id of ["facts", "probes", "history", "target-lead", "target-code", "target-why"]) at(id).replaceChildren();
  setText(at("target-name"), name);
  setText(at("target-state"), "");
  at("output-section").hidden = true;
  shown = name;
}

function showRemoved() {
  operate.show(null);
  for (const id of ["target-state", "target-lead", "target-code"]) setText(at(id), "");
  at("target-why").replaceChildren(element("li", "", "There is no such target: the configuration does not have it, or no longer."));
}

function showTarget(target) {
  const { instance, labels = {} } = target;
  document.title = target.name + ": " + words(target.state) + " – Sonde";
  const state = at("target-state").firstElementChild || at("target-state").appendChild(element("span", "state"));
  setText(state, words(target.state));
  setAttribute(state, "data-state", target.state);
  setAttribute(at("target"), "data-severity", target.severity);
  const { sentence, detail, code } = why(target);
  setText(at("target-lead"), sentence);
  setText(at("target-code"), code);
  showSentences(target, detail);
  const isStatic = instance.id === "static" && !instance.reason; // no driver has reported it

  fact("State since", target.since, showTime);
  fact("Probed by", target.heard ? target.owner || "no engine now" : target.owner);
  fact("Heard of", target.heard, showTime);
  fact("Stale", target.stale && "its owner has not confirmed this for longer than a lease lasts");
  fact("Address", target.process ? "" : target.address);
  fact("Labels", Object.entries(labels).map(([name, value]) => name + "=" + value).join(", "));
  fact("Groups", (target.groups || []).join(", "), showGroups);
  const { beat } = target;
  fact("Last beat", beat && beat.at, showTime);
  fact("Last beat says", beat && beat.status && [words(beat.status), beat.exitStatus && "exit status " + beat.exitStatus, beat.detail].filter(Boolean).join(", "));
  fact("Run since", beat && beat.begun, showTime);
  fact("Depends on", target.troubledDependency && target.troubledDependency + ", which is in trouble");
  fact("Damped until", target.damping && target.damping.until, showTime);
  fact("Penalty of flaps", target.damping && String(target.damping.penalty));
  fact("Paused until", target.pause && target.pause.until, showTime);
  fact("Paused", target.pause && (target.pause.detail || (target.pause.reason === "restart.maintenance" ? "maintenance" : "by an operator")));
  fact("For gateways", (target.ejection ? "ejected, " : "") + words(target.gateway));
  fact("Instance", isStatic ? "" : [instance.id, words(instance.phase), instance.reason].filter(Boolean).join(", "));
  fact("Instance since", isStatic ? "" : instance.since, showTime);
  fact("Restarts", instance.restarts ? instance.restarts.toLocaleString() : "");
  fact("Exit status", instance.exitStatus === undefined ? "" : String(instance.exitStatus));
  at("output-section").hidden = !(instance.detail || "").includes("\n"); // a single line stands above
  setText(at("output"), instance.detail || "");
}

// showSentences shows why the target is in its state. The sentences about its probes are left out, which have cards below, and
// the detail, which stands above.
function showSentences({ explanation, probes = [] }, detail) {
  const flat = detail.split(/\s+/).join(" ").trim();
  const sentences = explanation.slice(0, explanation.length - probes.length);
  arrange(at("target-why"), sentences.map((sentence, i) => {
    const line = at("target-why").children[i] || element("li");
    setText(line, plain(flat && sentence.endsWith(": " + flat) ? sentence.slice(0, -flat.length - 2) + "." : sentence));
    return line;
  }));
}

// fact shows a line of the list of facts, by a function that shows a value in an element.
// Without a value there is none.
function fact(title, value, show = setText) {
  let f = facts.get(title);
  if (!f) {
    f = { body: element("dd", "", show === showTime ? timeElement() : element("span")) };
    f.line = element("div", "", element("dt", "", title), f.body);
    at("facts").append(f.line);
    facts.set(title, f);
  }
  f.line.hidden = !value;
  show(f.body.firstElementChild, value || "");
}

// showGroups shows the names of groups as links to their members.
function showGroups(e, names) {
  if (e.textContent === names) return;
  e.replaceChildren(...names.split(", ").flatMap((name, i) => {
    const link = element("a", "", name);
    link.href = "#/?" + new URLSearchParams({ group: name });
    return i ? [", ", link] : [link];
  }));
}

function showProbes(target) {
  const probes = target.probes || [];
  arrange(at("probes"), probes.map((probe) => {
    if (!cards.has(probe.id)) cards.set(probe.id, makeCard(probe));
    fillCard(cards.get(probe.id), probe, Boolean(target.heard));
    return cards.get(probe.id).card;
  }));
  for (const id of cards.keys()) if (!probes.some((p) => p.id === id)) cards.delete(id);
}

const rowsOfCard = ["Run", "Latest attempt", "Latest fault", "Took", "Peer", "Next attempt", "Verdict since", "Attempts", "Rule"];

function makeCard(probe) {
  const c = { verdict: element("span", "state"), run: element("span", "run"), runText: element("span"), detail: element("pre"),
    spark: sparkElement(), at: timeElement(), next: timeElement("due"), since: timeElement(), values: {} };
  c.detail.tabIndex = 0;
  const list = element("dl");
  for (const title of rowsOfCard) {
    c.values[title] = element("span");
    list.append(element("dt", "", title), element("dd", "", c.values[title]));
    if (title === "Peer") c.peer = [list.lastElementChild.previousElementSibling, list.lastElementChild];
    if (title === "Latest fault") c.fault = [list.lastElementChild.previousElementSibling, list.lastElementChild];
  }
  c.faultText = element("span");
  c.faultAt = timeElement();
  c.values["Latest fault"].append(c.faultText, " ", c.faultAt);
  c.values.Run.append(c.run, c.runText);
  c.latest = element("span");
  c.values["Latest attempt"].append(c.latest, c.at);
  c.took = element("span");
  c.values.Took.append(c.took, " ", c.spark);
  c.wait = element("span");
  c.values["Next attempt"].append(c.wait, c.next);
  c.values["Verdict since"].append(c.since);
  const title = probe.kind + (probe.name ? " " + probe.name : "");
  c.settings = element("pre");
  c.settings.tabIndex = 0;
  c.configuration = element("details", "", element("summary", "", "Configuration"), c.settings);
  c.card = element("section", "card", element("h4", "", title, " ", element("span", "muted", probe.handler), " ", c.verdict), list, c.detail, c.configuration);
  return c;
}

function fillCard(c, probe, isOther) {
  const { result, rule } = probe;
  const verdict = probe.blind ? "blind" : probe.warned && probe.verdict === "passing" ? "degraded" : probe.verdict;
  setText(c.verdict, verdict);
  setAttribute(c.verdict, "data-state", verdict);
  showRun(c, probe);
  setText(c.latest, result ? [result.outcome, result.reason, ""].filter((part) => part !== undefined).join(", ") : isOther ? "its owner knows" : "none yet");
  showTime(c.at, result && result.at);
  const fault = probe.fault && !(result && result.at === probe.fault.at) ? probe.fault : undefined; // or else the latest attempt says it
  setText(c.faultText, fault ? [fault.outcome, fault.reason, fault.detail].filter(Boolean).join(", ") + (fault.of ? ` (${fault.times} of the last ${fault.of} attempts)` : "") : "");
  showTime(c.faultAt, fault && fault.at);
  for (const e of c.fault) e.hidden = !fault;
  showSpark(c.spark, latency.ofProbe(probe.id));
  setText(c.took, result ? timings(result) : "");
  const peer = result ? peerOf(result) : "";
  setText(c.values.Peer, peer);
  for (const e of c.peer) e.hidden = !peer;
  setText(c.wait, probe.attempting ? "now" : probe.onHold ? "none until the next instance" : probe.waitReason ? "waits: " + words(probe.waitReason) : "");
  showTime(c.next, probe.attempting || probe.onHold || probe.waitReason ? "" : probe.next);
  showTime(c.since, probe.since);
  const a = probe.attempts;
  setText(c.values.Attempts, isOther ? "its owner counts them" : `${a.success + a.warning} succeeded, ${a.failure} failed, ${a.unknown} could not be made`);
  setText(c.values.Rule, `every ${span(rule.periodSeconds) === "0 s" ? duration(rule.periodSeconds) : span(rule.periodSeconds)}, timeout ${duration(rule.timeoutSeconds)}, ` +
    (rule.policy === "evidence" ? `fails at a score of ${probe.threshold}, passes at 0` : `fails after ${rule.failureThreshold}, passes after ${rule.successThreshold}`) + (rule.effect === "warn" ? ", only warns" : "") + (rule.initialDelaySeconds ? `, after a delay of ${duration(rule.initialDelaySeconds)}` : ""));
  c.configuration.hidden = !probe.settings;
  setText(c.settings, probe.settings ? probe.handler + " {\n" + probe.settings.replace(/^/gm, "  ") + "\n}" : "");
  c.detail.hidden = !(result && result.detail) || result.detail === at("target-lead").textContent;
  setText(c.detail, (result && result.detail) || "");
}

const maxSegments = 10; // of a run; a longer threshold has no bar

// showRun shows a run as a bar of its threshold: two of three segments are full.
function showRun(c, probe) {
  const many = probe.threshold > maxSegments ? 0 : probe.threshold;
  while (c.run.children.length > many) c.run.lastElementChild.remove();
  while (c.run.children.length < many) c.run.append(element("i"));
  [...c.run.children].forEach((e, i) => setAttribute(e, "class", i < probe.run ? probe.last : ""));
  const errors = probe.errors ? `, then ${probe.errors} that could not be made` : "";
  setText(c.runText, probe.score !== undefined ? `score ${probe.score} of ${probe.threshold}${errors}` : probe.run ? `${probe.progress} ${probe.last}${errors}` : errors ? `${probe.errors} could not be made` : "none yet");
}

// timings returns how long an attempt took, and its steps.
function timings(result) {
  const { resolveSeconds, connectSeconds, tlsSeconds, firstByteSeconds } = result.timings || {};
  const steps = [["lookup", resolveSeconds], ["connect", connectSeconds], ["TLS", tlsSeconds], ["first byte", firstByteSeconds]];
  const parts = steps.filter(([, s]) => s).map(([name, s]) => name + " " + duration(s));
  return duration(result.durationSeconds) + (parts.length ? " (" + parts.join(", ") + ")" : "");
}

// peerOf returns what an attempt has learned about its peer, or "".
function peerOf({ peer, protocol, tlsVersion, redirects, httpStatus, certificateExpiry }) {
  const expiry = certificateExpiry && "certificate until " + new Date(certificateExpiry).toLocaleDateString();
  const followed = redirects && (redirects === 1 ? "1 redirect" : redirects + " redirects");
  return [peer, protocol, httpStatus && "status " + httpStatus, tlsVersion, expiry, followed].filter(Boolean).join(", ");
}

function showHistory({ transitions, owner }) {
  const past = transitions.map((t, i) => ({ key: t.at + " " + t.text, transition: t, isRepeated: i > 0 && t.detail === transitions[i - 1].detail })).reverse();
  if (owner) past.unshift({ key: "owner " + owner, note: "The engine " + owner + " probes the target and has its history." });
  if (past.length === 0) past.push({ key: "none", note: "Nothing has changed since the target was added." });
  const kept = new Map();
  arrange(at("history"), past.map(({ key, transition, isRepeated, note }) => {
    const e = entries.get(key) || (note ? element("li", "muted", note) : makeEntry(transition, isRepeated));
    kept.set(key, e);
    return e;
  }));
  entries = kept;
}

// makeEntry creates an entry of the history. A detail that the entry before has too is left out.
function makeEntry({ at: time, state, text, probe, reason, detail = "" }, isRepeated) {
  const when = timeElement(), badge = element("span", "state", words(state));
  badge.dataset.state = state;
  showTime(when, time);
  let sentence = text;
  for (const end of [detail, reason]) if (end && sentence.endsWith(": " + end)) sentence = sentence.slice(0, -end.length - 2);
  const isOutput = !probe && detail.includes("\n");
  if (detail && !isOutput && !isRepeated) sentence += ": " + plain(detail.split("\n", 1)[0], new Date(time));
  return element("li", "", badge, element("span", "text", sentence, " ", element("span", "code", reason)), when, isOutput && !isRepeated && element("pre", "", detail));
}
