// The latencies of the probes that are shown: those that the engine keeps while a page asks for them, and what this page has seen
// since. Of targets that other engines probe, it is only the latter.

import { sparkLength } from "./dom.js";

const kinds = ["readiness", "liveness", "startup"]; // the first one that a target has is shown in the list

const seen = new Map(); // by ID of the probe: { target, at, values }

// note adds the latest attempt of each probe of a target, if it is a new one.
export function note(target) {
  for (const { id, result } of target.probes || []) {
    if (!result || !result.at || result.outcome === "unknown") continue;
    const past = seen.get(id) || { at: "", values: [] };
    if (past.at === result.at) continue;
    seen.set(id, { target: target.name, at: result.at, values: [...past.values, result.durationSeconds].slice(-sparkLength) });
  }
}

// take takes what the engine has kept of a target, and returns whether there was more than this page has seen.
export function take(name, latencies = []) {
  let isMore = false;
  for (const { probe, seconds, at } of latencies) {
    const past = ofProbe(probe);
    if (past.length > seconds.length) continue;
    isMore = isMore || past.length + 1 < seconds.length;
    seen.set(probe, { target: name, at, values: seconds });
  }
  return isMore;
}

// ofProbe returns the latencies of a probe in seconds, the latest one last.
export const ofProbe = (id) => (seen.get(id) || { values: [] }).values;

// probeInList returns the ID of the probe whose latencies stand for those of a target, or undefined.
export function probeInList(target) {
  const attempted = (target.probes || []).filter((p) => seen.has(p.id));
  return kinds.map((kind) => attempted.find((p) => p.kind === kind)).find(Boolean)?.id;
}

// keep forgets the probes of all targets but these.
export function keep(names) {
  for (const [id, { target }] of seen) if (!names.has(target)) seen.delete(id);
}
