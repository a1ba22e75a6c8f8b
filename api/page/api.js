// Requests to the engine that serves this page.

// Unauthorized is the error of a request without the token, or with a wrong one.
export class Unauthorized extends Error {}

// NotFound is the error of a request for a target that does not exist.
export class NotFound extends Error {}

const tokenKey = "token"; // in the session storage, which ends with the tab

export const hasToken = () => sessionStorage.getItem(tokenKey) !== null;
export const setToken = (token) => sessionStorage.setItem(tokenKey, token);
export const forgetToken = () => sessionStorage.removeItem(tokenKey);

// get returns the response of a path.
async function get(path, signal) {
  const headers = {};
  if (hasToken()) headers.Authorization = "Bearer " + sessionStorage.getItem(tokenKey);
  const response = await fetch(path, { headers, signal, cache: "no-store" });
  if (response.status === 401) throw new Unauthorized();
  if (response.status === 404) throw new NotFound();
  if (!response.ok) throw new Error(path + ": status " + response.status);
  return response;
}

// read returns the JSON of a path.
export async function read(path, signal) {
  return (await get(path, signal)).json();
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
