// The status page: which view is shown, and when it is loaded. It loads the data again after
// events of /v1/events, and every few seconds, since latencies and runs change without one.

import { Unauthorized, follow, forgetToken, hasToken, read, setToken } from "./api.js";
import { at, renewTimes, setAttribute, setText } from "./dom.js";
import * as list from "./list.js";
import * as operate from "./operate.js";
import * as target from "./target.js";

const listEvery = 10_000; // ms
const targetEvery = 2000; // ms
const eventsEvery = 500; // ms; at most one load for all events in this time
const retryAfter = 3000; // ms; for a stream of events that has ended

let route = {}; // { target } or { query }
let request; // the AbortController of the present load
let timer = 0; // of the next load
let loadedAt = 0;

// parseRoute reads the fragment of the address: #/target/NAME, or #/?QUERY.
function parseRoute() {
  const path = location.hash.slice(1);
  const name = path.match(/^\/target\/(.+)$/);
  if (name) return { target: decoded(name[1]) };
  return { query: Object.fromEntries(new URLSearchParams(path.replace(/^\/?\??/, ""))) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function navigate() {
  const before = route;
  route = parseRoute();
  if (route.query) list.show(route.query);
  if (route.target && before.query) at("back").href = "#/?" + new URLSearchParams(before.query);
  if (route.target !== before.target) scrollTo(0, 0);
  loadNow(true);
  if (route.target) at("target-name").focus({ preventScroll: true });
}

// choose shows another query, without an entry in the browser's history for each letter.
function choose(query) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  history.replaceState(null, "", "#/?" + search);
  navigate();
}

// loadNow loads the view at once, instead of a load that is under way.
async function loadNow(withProbes) {
  clearTimeout(timer);
  if (request) request.abort();
  const mine = (request = new AbortController());
  loadedAt = Date.now();
  try {
    if (route.target) await target.load(route.target, mine.signal);
    else await list.load(withProbes, mine.signal);
    at("login").hidden = true;
    at("list").hidden = Boolean(route.target);
    at("target").hidden = !route.target;
    renewTimes(document);
    await showEngine(mine.signal);
  } catch (err) {
    if (mine.signal.aborted) return;
    if (err instanceof Unauthorized) login();
    else setText(at("engine"), "engine not reachable");
  }
  if (mine !== request) return;
  request = undefined;
  clearTimeout(timer);
  timer = setTimeout(() => loadNow(true), route.target ? targetEvery : listEvery);
}

// loadSoon loads the view after an event: at once, but not more often than each eventsEvery.
function loadSoon() {
  if (request || !at("login").hidden) return soonAfter();
  clearTimeout(timer);
  timer = setTimeout(() => loadNow(false), Math.max(0, loadedAt + eventsEvery - Date.now()));
}

// soonAfter makes the present load be followed by another one.
let again = 0;
function soonAfter() {
  clearTimeout(again);
  again = setTimeout(() => at("login").hidden && loadSoon(), eventsEvery);
}

async function showEngine(signal) {
  const { health, version } = await read("/v1/stats", signal);
  setText(at("version"), version ? "Sonde " + version : "Sonde");
  for (const id of ["api-link", "metrics-link"]) if (hasToken()) at(id).removeAttribute("href"); // a link sends no token
  const faults = [
    health.isolated && "no target answers: cut off from the network?",
    health.namesIsolated && "no name server answers",
    health.degraded && "short of processor time, memory or descriptors: it restarts nothing",
  ].filter(Boolean);
  const silent = (health.silentNameServers || []).map((s) => "name server " + s.address + " does not answer");
  const all = faults.concat(silent);
  setText(at("engine"), all.length ? "engine: " + all.join("; ") : "engine healthy");
  setAttribute(at("engine"), "data-severity", faults.length ? "critical" : silent.length ? "warning" : "none");
}

function login() {
  if (hasToken()) {
    forgetToken();
    setText(at("login-error"), "Wrong token.");
  }
  setText(at("engine"), "token required");
  if (!at("login").hidden) return;
  at("login").hidden = false;
  at("list").hidden = at("target").hidden = true;
  at("token").focus();
}

// live follows the events for ever.
async function live() {
  for (;;) {
    try {
      for await (const event of follow("/v1/events?targets=true")) {
        if (event.type === "") setText(at("connection"), "live");
        else if (event.type === "target" && route.query) list.update(event.data);
        if (!route.target || event.data?.name === route.target) loadSoon();
      }
    } catch {
      // shown below
    }
    setText(at("connection"), at("login").hidden ? "disconnected, retrying" : "");
    await new Promise((resolve) => setTimeout(resolve, retryAfter));
  }
}

list.start(choose);
operate.start(loadSoon);
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(at("token").value.trim());
  at("token").value = "";
  setText(at("login-error"), "");
  loadNow(true);
});
addEventListener("hashchange", navigate);
addEventListener("latencies", loadSoon);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && route.query && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    at("search").focus();
  }
  if (event.key === "Escape" && route.target) location.hash = at("back").getAttribute("href");
});
setInterval(() => renewTimes(document), 1000);
navigate();
live();
