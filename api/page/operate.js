// What an operator does to the target that is shown. It needs the token, or the engine's own socket; without, a hint stands there.

import { isOperator, post } from "./api.js";
import { at, setText } from "./dom.js";

let shown = { name: "", canRestart: false, isPaused: false };
let after; // loads the target again

// start lets buttons act. Loaded is called when one has.
export function start(loaded) {
  after = loaded;
  at("restart").addEventListener("click", () => ask(true));
  at("restart-no").addEventListener("click", () => ask(false));
  at("restart-yes").addEventListener("click", () => act("restart", {}, "Restarting."));
  at("pause-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const reason = at("pause-reason").value.trim();
    act("pause", { for: at("pause-for").value, ...(reason && { reason }) }, "Paused.");
  });
  at("unpause").addEventListener("click", () => act("unpause", {}, "The pause has ended."));
}

// show shows what can be done with a target; null is one that does not exist.
export function show(target) {
  const before = shown.name;
  shown = target
    ? { name: target.name, canRestart: target.instance.id !== "static" || Boolean(target.instance.reason), isPaused: Boolean(target.pause) }
    : { name: "", canRestart: false, isPaused: false };
  if (shown.name !== before) {
    setText(at("operated"), "");
    at("pause-reason").value = "";
    ask(false);
  }
  at("operate").hidden = !target || !isOperator();
  at("hint").hidden = isOperator();
  at("restart").disabled = !shown.canRestart;
  at("pause-form").hidden = shown.isPaused;
  at("unpause").hidden = !shown.isPaused;
}

// ask asks whether the target is to be restarted.
function ask(isAsked) {
  at("restart").hidden = isAsked;
  at("restart-question").hidden = !isAsked;
  setText(at("restart-text"), `Restart ${shown.name}?`);
  if (isAsked) at("restart-yes").focus();
}

async function act(operation, query, done) {
  const { name } = shown;
  ask(false);
  let text = done;
  try {
    await post("/v1/targets/" + encodeURIComponent(name) + "/" + operation, query);
  } catch (err) {
    text = err.message;
  }
  if (name !== shown.name) return;
  setText(at("operated"), text);
  after();
}
