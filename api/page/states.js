// The states of targets, and the tiles that show their numbers. Each state is of one tile, so that the tiles add up to the number of
// targets.

export const tiles = [
  { part: "trouble", title: "in trouble", tone: "bad", states: ["cannot_start", "crash_looping", "exited", "restart_blocked", "failing", "not_ready"] },
  { part: "unknown", title: "unreachable or blind", tone: "warn", states: ["unreachable", "blind"] },
  { part: "degraded", title: "degraded", tone: "warn", states: ["degraded"] },
  { part: "starting", title: "starting", states: ["absent", "restarting", "starting"] },
  { part: "paused", title: "paused", states: ["paused", "damped", "stopped"] },
  { part: "ready", title: "ready", states: ["completed", "ready"] },
  { part: "", title: "targets" },
];

// partOf has the part of each state.
export const partOf = Object.fromEntries(tiles.flatMap(({ part, states = [] }) => states.map((state) => [state, part])));
