// A probe of servers with a line protocol: it connects, reads a greeting, sends a line and checks the
// answer. README.md lists its settings.
import * as sonde from "../../../guest/as/sonde";

export { sonde_abi_v1 } from "../../../guest/as/sonde";

const MAX_LINE: i32 = 4096; // bytes of one line, and of each setting
const KEY: string = "line"; // of the held connection

/** Says what is wrong with the settings, before anything is dialled. */
function check(): i32 {
  const names: StaticArray<string> = ["port", "server_name", "greeting", "send", "expect", "contains"];
  for (let i = 0; i < names.length; i++) {
    const text = sonde.text(names[i]);
    if (sonde.bytes(text).byteLength >= MAX_LINE) return sonde.refuse(names[i], "must not be longer than 4095 bytes");
    if (text.includes("\r") || text.includes("\n")) return sonde.refuse(names[i], "must be one line");
  }
  const sends = given("send");
  if (given("server_name") && !sonde.flag("tls")) return sonde.refuse("server_name", "needs tls = true");
  if (given("expect") && !sends) return sonde.refuse("expect", "needs send; greeting is for what the server says first");
  if (given("contains") && !sends) return sonde.refuse("contains", "needs send");
  if (sonde.int("answer_timeout") < 0) return sonde.refuse("answer_timeout", "must not be negative");
  return 0;
}

function given(name: string): bool {
  return sonde.text(name).length > 0;
}

/** A connection, and what has come over it and was not taken yet. */
class Reader {
  private buf: Uint8Array = new Uint8Array(MAX_LINE);
  private used: i32 = 0;
  private filled: i32 = 0;
  line: string = ""; // the last one, without its end
  end: i32 = 0; // the outcome of the attempt if there is no line

  constructor(readonly fd: i32) {}

  /** Tells whether everything that has come was taken. */
  get empty(): bool {
    return this.used == this.filled;
  }

  /** Waits for a line. Without one it returns false, and end is set. */
  next(): bool {
    sonde.readDeadline(this.fd, sonde.int("answer_timeout"));
    while (!this.take()) {
      if (this.filled == MAX_LINE) return this.late(-sonde.E2BIG);
      const n = sonde.read(this.fd, this.buf, this.filled);
      if (n <= 0) return this.late(n);
      this.filled += n;
    }
    return true;
  }

  /** Takes a line that is there as a whole, or makes room for more. */
  private take(): bool {
    let end = this.used;
    while (end < this.filled && this.buf[end] != 10) end++;
    if (end == this.filled) {
      this.buf.copyWithin(0, this.used, this.filled);
      this.filled -= this.used;
      this.used = 0;
      return false;
    }
    const cr = end > this.used && this.buf[end - 1] == 13;
    this.line = sonde.decode(this.buf, this.used, cr ? end - 1 : end);
    this.used = end + 1;
    return true;
  }

  private late(n: i32): bool {
    if (n == 0) this.end = sonde.fail("tcp.closed", "the server closed before it had answered");
    else if (n == -sonde.E2BIG) this.end = sonde.fail("line.long", `the server sent a line of more than ${MAX_LINE} bytes`);
    else if (n == -sonde.ETIMEDOUT) this.end = sonde.fail("line.timeout", "the server sent no line in time");
    else this.end = sonde.failWith("read", n);
    return false;
  }
}

/** Compares the answer with what is expected, and with the last one. */
function judge(answer: string): i32 {
  const expect = sonde.text("expect"), contains = sonde.text("contains");
  if (!answer.startsWith(expect)) return sonde.fail("line.expect", `got ${answer}, which does not begin with ${expect}`);
  if (!answer.includes(contains)) return sonde.fail("line.expect", `got ${answer}, in which there is no ${contains}`);
  const before = sonde.state();
  sonde.setState(answer);
  if (sonde.flag("warn_on_change") && before.length > 0 && before != answer)
    return sonde.warning("line.changed", `got ${answer}, it was ${before}`);
  return sonde.success("got " + answer);
}

/** Sends the line and reads what comes back. */
function talk(r: Reader, fresh: bool): i32 {
  const greeting = sonde.text("greeting"), send = sonde.text("send");
  if (fresh && greeting.length > 0) {
    if (!r.next()) return r.end;
    if (!r.line.startsWith(greeting)) return sonde.fail("line.greeting", `got ${r.line}, which does not begin with ${greeting}`);
  }
  if (send.length == 0) return sonde.success(r.line.length > 0 ? r.line : "connected");
  const n = sonde.write(r.fd, send + "\r\n");
  if (n < 0) return sonde.failWith("write", n);
  return r.next() ? judge(r.line) : r.end;
}

function connect(): i32 {
  const name = sonde.text("server_name");
  const options = name.length > 0 ? "server_name=" + name : "";
  return sonde.dial(sonde.flag("tls") ? "tls" : "tcp", ":" + sonde.text("port"), options);
}

function attempt(): i32 {
  const keep = sonde.flag("keep");
  let fd = keep ? sonde.held(KEY) : -sonde.ENOENT;
  const fresh = fd < 0;
  if (fresh) fd = connect();
  if (fd < 0) return sonde.failWith("connect", fd);
  const r = new Reader(fd);
  const end = talk(r, fresh);
  const good = end == sonde.SUCCESS || end == sonde.WARNING;
  if (good && keep && r.empty) sonde.hold(fd, KEY);
  else sonde.close(fd);
  sonde.count(good ? "answers" : "misses", 1);
  sonde.log(sonde.LOG_DEBUG, good ? "answered" : "not answered");
  return end;
}

export function sonde_run(): i32 {
  return sonde.run(attempt);
}

export function sonde_configure(): i32 {
  return sonde.run(check);
}
