// The status page. It gets the data from /v1/targets, again after each event of
// /v1/events. All data is shown through textContent, never as HTML.
"use strict";

const pollEvery = 10000; // ms; runs and restarts change without events
const retryAfter = 3000; // ms
const debounce = 250; // ms; one request for many events
const signs = { passing: "✓", failing: "✗", undecided: "?" };

const at = (id) => document.getElementById(id);
let timer = 0; // of the next request
let loading = false;
let list = { targets: [], total: 0 };

class Unauthorized extends Error {}

async function get(path, signal) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  const answer = await fetch(path, { headers, signal, cache: "no-store" });
  if (answer.status === 401) throw new Unauthorized();
  if (!answer.ok) throw new Error(path + ": status " + answer.status);
  return answer;
}

// element creates an element with text and classes.
function element(name, text, classes) {
  const e = document.createElement(name);
  if (text) e.textContent = text;
  if (classes) e.className = classes;
  return e;
}

// cell creates a td. On a narrow screen the label is its column title.
function cell(label, text, classes) {
  const td = element("td", text, classes);
  td.dataset.label = label;
  return td;
}

function targetCells(target, rows) {
  const name = element("th", target.name);
  name.scope = "rowgroup";
  if (target.address) name.append(element("span", target.address, "muted"));

  const state = cell("State", target.state.replaceAll("_", " "));
  if (target.instance.reason) state.append(element("span", target.instance.reason, "muted"));
  if (target.instance.detail) state.append(element("span", target.instance.detail, "muted detail"));

  const cells = [name, state, cell("Restarts", String(target.instance.restarts))];
  for (const c of cells) c.rowSpan = rows;
  return cells;
}

function probeCells(probe) {
  const kind = cell("Probe", probe.name ? probe.kind + " " + probe.name : probe.kind);
  if (probe.handler) kind.append(element("span", probe.handler, "muted"));

  const verdict = cell("Verdict", (signs[probe.verdict] || "") + " " + probe.verdict, probe.verdict);
  const since = probe.since ? "since " + new Date(probe.since).toLocaleString() : "";
  if (since) verdict.append(element("span", since, "muted"));

  const run = cell("Run", probe.run ? probe.progress + " " + probe.last : "");
  if (probe.onHold) run.append(element("span", "on hold until the next instance", "muted"));
  else if (probe.waitReason) run.append(element("span", "waiting: " + probe.waitReason.replaceAll("_", " "), "muted"));
  if (probe.errors) run.append(element("span", probe.errors + (probe.errors === 1 ? " error" : " errors in a row"), "muted"));

  return [kind, verdict, run, failureCell(probe.result)];
}

function failureCell(result) {
  if (!result || result.outcome === "success") return cell("Last failure", "");
  const failure = cell("Last failure", result.outcome + (result.reason ? " " + result.reason : ""));
  if (result.detail) failure.append(element("span", result.detail, "muted detail"));
  return failure;
}

// group creates the rows of a target: one for each probe.
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
  const table = at("targets").parentNode;
  const fresh = list.targets.map(group);
  if (fresh.length === 0) fresh.push(element("tbody"));
  fresh[0].id = "targets";
  for (const body of table.querySelectorAll("tbody")) body.remove();
  table.append(...fresh);

  setText("summary", "Targets: " + list.counts.targets + ", in trouble: " + list.counts.inTrouble);
  setText("more", list.next ? "The first " + list.targets.length + " targets are shown." : "");
}

// setText changes the text of an element. It does not set an equal text, because a
// screen reader reads each change aloud.
function setText(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

async function load() {
  clearTimeout(timer);
  if (loading) return loadSoon();
  loading = true;
  try {
    const filter = at("failing-only").checked ? "&trouble=true" : "";
    list = await (await get("/v1/targets?probes=true&sort=trouble" + filter)).json();
    at("login").hidden = true;
    show();
  } catch (err) {
    if (err instanceof Unauthorized) login();
    else setText("summary", "Engine not reachable.");
  } finally {
    loading = false;
  }
  clearTimeout(timer);
  timer = setTimeout(load, pollEvery);
}

function loadSoon() {
  clearTimeout(timer);
  timer = setTimeout(load, debounce);
}

function login() {
  if (sessionStorage.getItem("token")) {
    sessionStorage.removeItem("token");
    setText("login-error", "Wrong token.");
  }
  if (!at("login").hidden) return;
  at("login").hidden = false;
  setText("summary", "Token required.");
  at("token").focus();
}

// follow reads /v1/events for ever, and loads the data again after each event.
// EventSource cannot send a token, so the stream is read by fetch.
async function follow() {
  for (;;) {
    try {
      const reader = (await get("/v1/events")).body.getReader();
      setText("connection", "live");
      loadSoon();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
        rest = lines.pop();
        if (lines.some((line) => line.startsWith("event:"))) loadSoon();
      }
    } catch {
      // shown below
    }
    setText("connection", "disconnected, retrying");
    await new Promise((resolve) => setTimeout(resolve, retryAfter));
  }
}

at("failing-only").addEventListener("change", load);
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  setText("login-error", "");
  load();
});
load();
follow();
