// sonde.ts: the AssemblyScript SDK for Sonde plugins. README.md shows how to use it; the Go package
// wasmhost/abi is the specification. A function that returns an i32 returns a negative error number on error.

/** The outcome of an attempt. UNKNOWN: it could not be made, and the target is not to blame. */
export const UNKNOWN: i32 = 0;
export const SUCCESS: i32 = 1;
export const WARNING: i32 = 2; // counts as a success; the detail describes the problem
export const FAILURE: i32 = 3;

export const E2BIG: i32 = 1;
export const ENOENT: i32 = 44;
export const ETIMEDOUT: i32 = 73;

export const LOG_DEBUG: i32 = 1; // the levels of log
export const LOG_INFO: i32 = 2;
export const LOG_WARN: i32 = 3;
export const LOG_ERROR: i32 = 4;

// The host's functions, for uses that the functions below do not cover.
@external("sonde_v1", "input")
export declare function hostInput(kind: i32, buf: usize, limit: i32): i32;
@external("sonde_v1", "output")
export declare function hostOutput(kind: i32, p: usize, n: i32): i32;
@external("sonde_v1", "log")
export declare function hostLog(level: i32, p: usize, n: i32): i32;
@external("sonde_v1", "log_level")
export declare function logLevel(): i32;
@external("sonde_v1", "metric")
export declare function hostMetric(kind: i32, name: usize, n: i32, value: f64): i32;
@external("sonde_v1", "clock")
export declare function clock(id: i32): i64;
@external("sonde_v1", "remaining")
export declare function remaining(): i64;
@external("sonde_v1", "random")
export declare function hostRandom(buf: usize, n: i32): i32;
@external("sonde_v1", "resolve")
export declare function hostResolve(name: usize, n: i32, buf: usize, limit: i32): i32;
@external("sonde_v1", "dial")
export declare function hostDial(
  network: usize, networkN: i32, address: usize, addressN: i32, options: usize, optionsN: i32, flags: i32, timeoutMS: i32,
): i32;
@external("sonde_v1", "start_tls")
export declare function hostStartTLS(fd: i32, options: usize, n: i32): i32;
@external("sonde_v1", "conn_info")
export declare function hostConnInfo(fd: i32, what: i32, buf: usize, limit: i32): i32;
@external("sonde_v1", "deadline")
export declare function hostDeadline(fd: i32, which: i32, ns: i64): i32;
@external("sonde_v1", "read")
export declare function hostRead(fd: i32, buf: usize, n: i32): i32;
@external("sonde_v1", "write")
export declare function hostWrite(fd: i32, p: usize, n: i32): i32;
@external("sonde_v1", "close")
export declare function close(fd: i32): i32;
@external("sonde_v1", "hold")
export declare function hostHold(fd: i32, key: usize, n: i32): i32;
@external("sonde_v1", "held")
export declare function hostHeld(key: usize, n: i32, flags: i32): i32;

/** Marks the version of the ABI: export it from the plugin, with sonde_run and sonde_configure. */
export const sonde_abi_v1: i32 = 1;

const QUOTE: i32 = 0x22;
const BACKSLASH: i32 = 0x5c;
const PLAIN: i32 = 0x10000; // marks a character that is not escaped

/** The members of an object, or of a list, whose names are "0", "1" and so on. */
class Members {
  private names: string[] = [];
  private values: string[] = [];

  constructor(s: string) {
    const list = s.startsWith("["), end = list || s.startsWith("{") ? s.length : 0;
    for (let i = 1; i < end; i++) {
      let name = this.names.length.toString();
      if (!list) {
        const colon = skip(s, i);
        name = unquote(s.substring(i, colon).trim());
        i = colon + 1;
      }
      const begin = i;
      i = skip(s, i);
      this.names.push(name);
      this.values.push(s.substring(begin, i).trim());
    }
  }

  get(name: string): string {
    const i = this.names.indexOf(name);
    return i < 0 ? "" : this.values[i];
  }
}

let aborted: bool = false;
let settings: Members = new Members("");

/** Runs an attempt or a check of the settings. Return its result from sonde_run or sonde_configure. */
export function run(body: () => i32): i32 {
  settings = new Members(input(1));
  return body();
}

/** Bytes of a text in UTF-8. */
export function bytes(s: string): ArrayBuffer {
  return String.UTF8.encode(s, false, String.UTF8.ErrorMode.REPLACE);
}

/** The text of bytes; invalid UTF-8 is replaced. */
export function decode(b: Uint8Array, begin: i32, end: i32): string {
  return String.UTF8.decodeUnsafe(b.dataStart + begin, end - begin);
}

function at(b: ArrayBuffer): usize {
  return changetype<usize>(b);
}

function input(kind: i32): string {
  let buf = new ArrayBuffer(1024);
  let n = hostInput(kind, at(buf), buf.byteLength);
  if (n > buf.byteLength) {
    buf = new ArrayBuffer(n);
    n = hostInput(kind, at(buf), n);
  }
  return n < 0 || n > buf.byteLength ? "" : String.UTF8.decodeUnsafe(at(buf), n);
}

function output(kind: i32, text: string): void {
  const b = bytes(text);
  hostOutput(kind, at(b), b.byteLength);
}
/** Reports the result of an attempt: return what it returns. A reason is a stable code such as "redis.loading", or empty. */
export function end(outcome: i32, reason: string, detail: string): i32 {
  output(1, detail);
  if (reason.length > 0) output(2, reason);
  return outcome;
}
export function success(detail: string): i32 { return end(SUCCESS, "", detail); }
export function warning(reason: string, detail: string): i32 { return end(WARNING, reason, detail); }
export function fail(reason: string, detail: string): i32 { return end(FAILURE, reason, detail); }
export function unknown(reason: string, detail: string): i32 { return end(UNKNOWN, reason, detail); }

/** Reports an attempt that ended with an error of a host call: a failure if the target is to blame, else unknown. */
export function failWith(operation: string, error: i32): i32 {
  const targets: StaticArray<i32> = [14, 15, 23, 29, 40, 44, 64, 65, 73];
  let detail = line(4, "detail", 0);
  if (detail.length == 0) detail = "error " + (-error).toString();
  return end(targets.includes(-error) ? FAILURE : UNKNOWN, "", operation + ": " + detail);
}

/** Reports a wrong setting and its problem, such as "must not be empty". */
export function refuse(setting: string, problem: string): i32 {
  output(4, setting);
  output(1, problem);
  return 1;
}

/** A property of the target: "name", "address", or the nth "port" ("8080 http"). */
export function target(key: string, nth: i32 = 0): string { return line(2, key, nth); }

function line(kind: i32, key: string, nth: i32): string {
  const lines = input(kind).split("\n");
  for (let i = 0; i < lines.length; i++)
    if (lines[i].startsWith(key + "=") && nth-- == 0) return unescape(lines[i].substring(key.length + 1));
  return "";
}

/** What the same probe's previous attempt passed to setState. */
export function state(): string { return input(3); }
export function setState(s: string): void { output(3, s); }

/**
 * In sonde_configure: hands the host a text of up to 256 KiB that was computed from the settings. kept returns it in
 * the attempts with these settings. It is empty if the host could not keep it: then the attempt computes it itself.
 */
export function keep(s: string): void { output(5, s); }
export function kept(): string { return input(5); }

export function log(level: i32, s: string): void { const b = bytes(s); hostLog(level, at(b), b.byteLength); }
export function gauge(name: string, v: f64): void { const b = bytes(name); hostMetric(1, at(b), b.byteLength, v); }
export function count(name: string, n: f64): void { const b = bytes(name); hostMetric(2, at(b), b.byteLength, n); }
/** A number about this attempt only, for whoever asks for one attempt. */
export function measure(name: string, v: f64): void { const b = bytes(name); hostMetric(3, at(b), b.byteLength, v); }

/** Connects. The network is tcp, tls, udp or unix; options are lines for TLS, "server_name=example.org\n". */
export function dial(network: string, address: string, options: string = ""): i32 {
  const n = bytes(network), a = bytes(address), o = bytes(options);
  return hostDial(at(n), n.byteLength, at(a), a.byteLength, at(o), o.byteLength, 0, 0);
}
export function startTLS(fd: i32, options: string = ""): i32 { const b = bytes(options); return hostStartTLS(fd, at(b), b.byteLength); }

/** Waits for bytes and writes them to buf from begin on. Returns their number, or 0 when the peer has closed the connection. */
export function read(fd: i32, buf: Uint8Array, begin: i32 = 0): i32 { return hostRead(fd, buf.dataStart + begin, buf.length - begin); }
export function write(fd: i32, s: string): i32 { const b = bytes(s); return hostWrite(fd, at(b), b.byteLength); }

/** Makes reads fail with ETIMEDOUT ns nanoseconds from now; 0: at the attempt's deadline. */
export function readDeadline(fd: i32, ns: i64): i32 { return hostDeadline(fd, 1, ns); }

/** Hands a connection to the host, which keeps it for the probe's next attempt: see held. */
export function hold(fd: i32, key: string): i32 { const b = bytes(key); return hostHold(fd, at(b), b.byteLength); }
export function held(key: string): i32 { const b = bytes(key); return hostHeld(at(b), b.byteLength, 0); }

/** The JSON of a setting, empty if it is not set: "port", "tls.name" in a block, "names.0" in a list. */
export function json(path: string): string {
  const dot = path.indexOf(".");
  if (dot < 0) return settings.get(path);
  const names = path.split(".");
  let s = settings.get(names[0]);
  for (let i = 1; i < names.length; i++) s = new Members(s).get(names[i]);
  return s;
}

export function flag(path: string): bool { return json(path) == "true"; }

/** A whole number, or a duration in nanoseconds; 0 if it is not set. */
export function int(path: string): i64 {
  return I64.parseInt(json(path));
}

/** A string, empty if it is not set. */
export function text(path: string): string {
  const s = json(path);
  return s.startsWith('"') ? unquote(s) : s;
}

// skip returns the end of the value that begins at i: the next comma, colon or bracket outside of it.
function skip(s: string, i: i32): i32 {
  for (let depth = 0, quoted = false; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c == BACKSLASH) i++;
    else if (c == QUOTE) quoted = !quoted;
    if (quoted) continue;
    if (c == 0x7b || c == 0x5b) depth++; // { [
    else if (depth == 0 && (c == 0x2c || c == 0x3a || c == 0x7d || c == 0x5d)) return i; // , : } ]
    else if (c == 0x7d || c == 0x5d) depth--; // } ]
  }
  return s.length;
}

function unquote(s: string): string {
  return unescape(s.substring(1, s.length - 1));
}

// unescape decodes the escape sequences of JSON and of lines.
function unescape(s: string): string {
  if (!s.includes("\\")) return s;
  const out = new StaticArray<u16>(s.length);
  let n = 0;
  for (let i = 0; i < s.length; i++) {
    let c = s.charCodeAt(i);
    if (c == BACKSLASH) c = s.charCodeAt(++i);
    else c |= PLAIN;
    if (c == 0x75) i += 4, c = I32.parseInt(s.substr(i - 3, 4), 16); // u
    else if (c == 0x62) c = 8; // b
    else if (c == 0x66) c = 12; // f
    else if (c == 0x6e) c = 10; // n
    else if (c == 0x72) c = 13; // r
    else if (c == 0x74) c = 9; // t
    out[n++] = <u16>c; // without PLAIN
  }
  return String.UTF16.decodeUnsafe(changetype<usize>(out), n << 1);
}

/** Called after a failed check or an access out of bounds: `asc --use abort=sonde/abort`. */
export function abort(message: string | null, file: string | null, at: u32, column: u32): void {
  if (!aborted) { // logging may abort too, if no memory is left
    aborted = true;
    log(LOG_ERROR, (message ? message : "abort") + " in " + (file ? file : "?") + ":" + at.toString());
  }
  unreachable();
}
