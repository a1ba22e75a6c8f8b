// The latency of the targets that are shown. The engine keeps only the latest attempt of each
// probe, so that this page collects what it has seen.

import { sparkLength } from "./dom.js";

const kinds = ["readiness", "liveness", "startup"]; // the first one that a target has is shown

const seen = new Map(); // by target: { at, values }

// note adds the latest attempt of a target's probes, if it is a new one.
export function note(target) {
  const attempted = (target.probes || []).filter((p) => p.result && p.result.at && p.result.outcome !== "unknown");
  const kind = kinds.find((k) => attempted.some((p) => p.kind === k));
  if (!kind) return;
  const { result } = attempted.find((p) => p.kind === kind);
  const past = seen.get(target.name) || { at: "", values: [] };
  if (past.at === result.at) return;
  seen.set(target.name, { at: result.at, values: [...past.values, result.durationSeconds].slice(-sparkLength) });
}

// of returns the latencies of a target in seconds, the latest one last.
export const of = (name) => (seen.get(name) || { values: [] }).values;

// keep forgets all targets but these.
export function keep(names) {
  for (const name of seen.keys()) if (!names.has(name)) seen.delete(name);
}
