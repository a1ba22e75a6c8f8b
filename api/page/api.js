// Requests to the engine that serves this page.

// Unauthorized is the error of a request without the token, or with a wrong one.
export class Unauthorized extends Error {}

// NotFound is the error of a request for a target that does not exist.
export class NotFound extends Error {}

const tokenKey = "token"; // in the session storage, which ends with the tab

export const hasToken = () => sessionStorage.getItem(tokenKey) !== null;
export const setToken = (token) => sessionStorage.setItem(tokenKey, token);
export const forgetToken = () => sessionStorage.removeItem(tokenKey);

// The name by which the engine calls itself to everyone. To its own user it says more.
const anyEngine = "sonde";

let isOwner = false; // this page comes over the engine's own socket

// isOperator returns whether the engine lets this page restart and pause targets.
export const isOperator = () => isOwner || hasToken();

function send(path, options) {
  const headers = {};
  if (hasToken()) headers.Authorization = "Bearer " + sessionStorage.getItem(tokenKey);
  return fetch(path, { ...options, headers, cache: "no-store" });
}

// get returns the response of a path.
async function get(path, signal) {
  const response = await send(path, { signal });
  isOwner = (response.headers.get("Sonde-Engine") || anyEngine) !== anyEngine;
  if (response.status === 401) throw new Unauthorized();
  if (response.status === 404) throw new NotFound();
  if (!response.ok) throw new Error(path + ": status " + response.status);
  return response;
}

// read returns the JSON of a path.
export async function read(path, signal) {
  return (await get(path, signal)).json();
}

// post asks the engine to do something. The message of its error is the engine's.
export async function post(path, query) {
  const response = await send(path + "?" + new URLSearchParams(query), { method: "POST" });
  if (response.ok) return;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error?.message || path + ": status " + response.status);
}

// pathOf returns the path of a target. Its name may have slashes.
export const pathOf = (name) => "/v1/targets/" + name.split("/").map(encodeURIComponent).join("/");

// follow yields the events of a path until the stream ends. EventSource cannot send a token, so
// that the stream is read here. Its first value, without a type, says that the stream is open.
export async function* follow(path) {
  const reader = (await get(path)).body.pipeThrough(new TextDecoderStream()).getReader();
  yield { type: "", data: null };
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parse(block);
      if (event) yield event;
    }
  }
}

// parse returns an event, or undefined for a comment.
function parse(block) {
  let type, data;
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) type = line.slice(7);
    if (line.startsWith("data: ")) data = line.slice(6);
  }
  return type && data ? { type, data: JSON.parse(data) } : undefined;
}
