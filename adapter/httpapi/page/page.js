// The status page. It asks /v1/targets for everything, and /v1/events for when
// to ask again. All text from elsewhere goes through textContent.
"use strict";

const pollEvery = 10000; // ms; runs and restarts change without an event
const retryAfter = 3000; // ms
const settle = 250; // ms; many events at once are one question
const signs = { passing: "✓", failing: "✗", undecided: "?" };

const at = (id) => document.getElementById(id);
let asked = 0; // the timer of the next question
let asking = false;
let list = { targets: [], total: 0 };

class Refused extends Error {}

async function get(path, signal) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  const answer = await fetch(path, { headers, signal, cache: "no-store" });
  if (answer.status === 401) throw new Refused();
  if (!answer.ok) throw new Error(path + " answers with status " + answer.status);
  return answer;
}

// element makes an element with a text and classes.
function element(name, text, classes) {
  const e = document.createElement(name);
  if (text) e.textContent = text;
  if (classes) e.className = classes;
  return e;
}

// cell makes a td that says on a narrow screen what it holds.
function cell(label, text, classes) {
  const td = element("td", text, classes);
  td.dataset.label = label;
  return td;
}

function targetCells(target, rows) {
  const name = element("th", target.name);
  name.scope = "rowgroup";
  if (target.address) name.append(element("span", target.address, "soft"));

  const words = [target.instance.phase];
  if (target.instance.phase === "running") words.push(target.started ? "started" : "not started");
  words.push(target.ready ? "ready" : "not ready");
  if (!target.live) words.push("not live");
  const state = cell("State", words.join(", "));
  if (target.instance.reason) state.append(element("span", target.instance.reason, "soft"));
  if (target.instance.detail) state.append(element("span", target.instance.detail, "soft detail"));

  const cells = [name, state, cell("Restarts", String(target.instance.restarts))];
  for (const c of cells) c.rowSpan = rows;
  return cells;
}

function probeCells(probe) {
  const kind = cell("Probe", probe.name ? probe.kind + " " + probe.name : probe.kind);
  if (probe.handler) kind.append(element("span", probe.handler, "soft"));

  const verdict = cell("Verdict", (signs[probe.verdict] || "") + " " + probe.verdict, probe.verdict);
  const since = probe.since ? "since " + new Date(probe.since).toLocaleString() : "";
  if (since) verdict.append(element("span", since, "soft"));

  const run = cell("Run", probe.run ? probe.progress + " " + probe.last : "");
  if (probe.onHold) run.append(element("span", "on hold until a new instance", "soft"));
  else if (probe.waitReason) run.append(element("span", "waiting: " + probe.waitReason.replaceAll("_", " "), "soft"));
  if (probe.errors) run.append(element("span", probe.errors + " in a row could not be made", "soft"));

  return [kind, verdict, run, troubleCell(probe.result)];
}

function troubleCell(result) {
  if (!result || result.outcome === "success") return cell("Last trouble", "");
  const trouble = cell("Last trouble", result.outcome + (result.reason ? " " + result.reason : ""));
  if (result.detail) trouble.append(element("span", result.detail, "soft detail"));
  return trouble;
}

// group makes the rows of a target: one for each probe.
function group(target) {
  const body = element("tbody");
  const probes = target.probes || [];
  const rows = Math.max(probes.length, 1);
  for (let i = 0; i < rows; i++) {
    const row = element("tr");
    if (i === 0) row.append(...targetCells(target, rows));
    if (probes[i]) row.append(...probeCells(probes[i]));
    body.append(row);
  }
  return body;
}

function show() {
  const troubled = at("troubled").checked;
  const targets = list.targets.filter((t) => !troubled || t.summary.failing > 0);
  const table = at("targets").parentNode;
  const fresh = targets.map(group);
  if (fresh.length === 0) fresh.push(element("tbody"));
  fresh[0].id = "targets";
  for (const body of table.querySelectorAll("tbody")) body.remove();
  table.append(...fresh);

  const failing = list.targets.filter((t) => t.summary.failing > 0).length;
  say("summary", "Targets: " + list.total + ", with a probe that fails: " + failing);
  say("more", list.next ? "Only the first " + list.targets.length + " are shown." : "");
}

// say sets a text, and leaves it alone where it is the same: a screen reader
// reads each change aloud.
function say(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

async function ask() {
  clearTimeout(asked);
  if (asking) return askSoon();
  asking = true;
  try {
    list = await (await get("/v1/targets?probes=true")).json();
    at("login").hidden = true;
    show();
  } catch (err) {
    if (err instanceof Refused) login();
    else say("summary", "The engine does not answer.");
  } finally {
    asking = false;
  }
  clearTimeout(asked);
  asked = setTimeout(ask, pollEvery);
}

function askSoon() {
  clearTimeout(asked);
  asked = setTimeout(ask, settle);
}

function login() {
  if (sessionStorage.getItem("token")) {
    sessionStorage.removeItem("token");
    say("refused", "The token is not right.");
  }
  if (!at("login").hidden) return;
  at("login").hidden = false;
  say("summary", "A token is needed.");
  at("token").focus();
}

// follow reads /v1/events for ever. EventSource cannot send a token, so the
// stream is read by hand: every event is a reason to ask again.
async function follow() {
  for (;;) {
    try {
      const reader = (await get("/v1/events")).body.getReader();
      say("connection", "live");
      askSoon();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
        rest = lines.pop();
        if (lines.some((line) => line.startsWith("event:"))) askSoon();
      }
    } catch {
      // said below
    }
    say("connection", "not connected, trying again");
    await new Promise((resolve) => setTimeout(resolve, retryAfter));
  }
}

at("troubled").addEventListener("change", show);
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  say("refused", "");
  ask();
});
ask();
follow();
