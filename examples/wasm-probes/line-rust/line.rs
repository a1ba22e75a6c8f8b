//! A probe of servers with a line protocol: it connects, reads a greeting, sends a line and checks the
//! answer. README.md lists its settings.
#![cfg_attr(not(feature = "std"), no_std)]
use sonde::{fail, Attempt, Conn, Error, Outcome, Refused, Settings};

const MAX_LINE: usize = 4096; // bytes of one line, and of each setting
const KEY: &str = "line"; // of the held connection

type Line = [u8; MAX_LINE];

/// Checks the settings when the configuration is loaded.
fn check(s: &Settings) -> Result<(), Refused> {
    for name in [
        "port",
        "server_name",
        "greeting",
        "send",
        "expect",
        "contains",
    ] {
        let mut buf: Line = [0; MAX_LINE];
        let text = s.text(name, &mut buf[..MAX_LINE - 1]);
        let text = text.map_err(|_| sonde::refuse(name, "must not be longer than 4095 bytes"))?;
        if text.contains(|c| c == '\r' || c == '\n') {
            return Err(sonde::refuse(name, "must be one line"));
        }
    }
    let given = |name: &str| s.json(name).len() > 2; // more than two quotes
    if given("server_name") && !s.bool("tls") {
        return Err(sonde::refuse("server_name", "needs tls = true"));
    }
    if given("expect") && !given("send") {
        return Err(sonde::refuse(
            "expect",
            "needs send; greeting is for what the server says first",
        ));
    }
    if given("contains") && !given("send") {
        return Err(sonde::refuse("contains", "needs send"));
    }
    if s.int("answer_timeout") < 0 {
        return Err(sonde::refuse("answer_timeout", "must not be negative"));
    }
    Ok(())
}

/// A connection, and received bytes that were not consumed yet.
struct Reader {
    conn: Conn,
    buf: Line,
    used: usize,
    filled: usize,
}

impl Reader {
    fn new(conn: Conn) -> Reader {
        Reader {
            conn,
            buf: [0; MAX_LINE],
            used: 0,
            filled: 0,
        }
    }

    /// Waits for a line and returns it without its end.
    fn next(&mut self, timeout: i64) -> Result<&[u8], Outcome> {
        self.conn.read_deadline(timeout);
        while !self.buf[self.used..self.filled].contains(&b'\n') {
            self.buf.copy_within(self.used..self.filled, 0);
            self.filled -= self.used;
            self.used = 0;
            match receive(&mut self.conn, &mut self.buf[self.filled..]).map_err(late)? {
                0 => {
                    return Err(fail(
                        "tcp.closed",
                        format_args!("the server closed before it had answered"),
                    ))
                }
                n => self.filled += n,
            }
        }
        let rest = &self.buf[self.used..self.filled];
        let line = rest.split(|c| *c == b'\n').next().unwrap_or(rest);
        self.used += line.len() + 1;
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

#[cfg(not(feature = "std"))]
fn receive(conn: &mut Conn, room: &mut [u8]) -> Result<usize, Error> {
    if room.is_empty() {
        return Err(sonde::E2BIG);
    }
    conn.recv(room)
}

/// With std, the connection is an ordinary socket.
#[cfg(feature = "std")]
fn receive(conn: &mut Conn, room: &mut [u8]) -> Result<usize, Error> {
    use std::os::wasi::io::{FromRawFd, IntoRawFd};
    if room.is_empty() {
        return Err(sonde::E2BIG);
    }
    let mut stream = unsafe { std::net::TcpStream::from_raw_fd(conn.fd()) };
    let n = std::io::Read::read(&mut stream, room);
    let _ = stream.into_raw_fd(); // it stays open
    n.map_err(|e| Error(e.raw_os_error().unwrap_or(sonde::EIO.0)))
}

/// Reports an attempt that has received no line.
fn late(e: Error) -> Outcome {
    match e {
        sonde::E2BIG => fail(
            "line.long",
            format_args!("the server sent a line of more than {} bytes", MAX_LINE),
        ),
        sonde::ETIMEDOUT => fail(
            "line.timeout",
            format_args!("the server sent no line in time"),
        ),
        e => e.during("read"),
    }
}

fn begins(line: &[u8], with: &str) -> bool {
    line.starts_with(with.as_bytes())
}

fn has(line: &[u8], text: &str) -> bool {
    text.is_empty() || line.windows(text.len()).any(|w| w == text.as_bytes())
}

/// The bytes of a server up to the first invalid UTF-8, as text.
fn text(line: &[u8]) -> &str {
    match core::str::from_utf8(line) {
        Ok(s) => s,
        Err(e) => core::str::from_utf8(&line[..e.valid_up_to()]).unwrap_or(""),
    }
}

/// Compares the answer with the expected one, and with the previous one.
fn judge(s: &Settings, answer: &[u8]) -> Attempt {
    let (mut a, mut b, mut c) = ([0; MAX_LINE], [0; MAX_LINE], [0; MAX_LINE]);
    let expect = setting(s, "expect", &mut a)?;
    let contains = setting(s, "contains", &mut b)?;
    let got = text(answer);
    if !begins(answer, expect) {
        return Err(fail(
            "line.expect",
            format_args!("got {}, which does not begin with {}", got, expect),
        ));
    }
    if !has(answer, contains) {
        return Err(fail(
            "line.expect",
            format_args!("got {}, in which there is no {}", got, contains),
        ));
    }
    let before = sonde::state(&mut c).unwrap_or(&[]);
    sonde::set_state(answer);
    if s.bool("warn_on_change") && !before.is_empty() && before != answer {
        let before = text(before);
        return Ok(sonde::warning(
            "line.changed",
            format_args!("got {}, it was {}", got, before),
        ));
    }
    Ok(sonde::success(format_args!("got {}", got)))
}

fn setting<'b>(s: &Settings, name: &str, buf: &'b mut [u8]) -> Result<&'b str, Outcome> {
    s.text(name, buf).map_err(|e| e.during(name))
}

/// Sends the line and reads the answer.
fn talk(s: &Settings, r: &mut Reader, fresh: bool) -> Attempt {
    let (mut a, mut b) = ([0; MAX_LINE], [0; MAX_LINE]);
    let greeting = setting(s, "greeting", &mut a)?;
    let send = setting(s, "send", &mut b)?;
    let timeout = s.int("answer_timeout");
    if fresh && !greeting.is_empty() {
        let line = r.next(timeout)?;
        let got = text(line);
        if !begins(line, greeting) {
            return Err(fail(
                "line.greeting",
                format_args!("got {}, which does not begin with {}", got, greeting),
            ));
        }
        if send.is_empty() {
            return Ok(sonde::success(format_args!("{}", got)));
        }
    }
    if send.is_empty() {
        return Ok(sonde::success(format_args!("connected")));
    }
    let out = sonde::Text::new(format_args!("{}\r\n", send));
    r.conn.send(out.as_bytes()).map_err(|e| e.during("write"))?;
    judge(s, r.next(timeout)?)
}

fn connect(s: &Settings) -> Result<Conn, Outcome> {
    let (mut a, mut b) = ([0; MAX_LINE], [0; MAX_LINE]);
    let port = setting(s, "port", &mut a)?;
    let name = setting(s, "server_name", &mut b)?;
    let network = if s.bool("tls") { "tls" } else { "tcp" };
    let option = if name.is_empty() { "" } else { "server_name=" };
    sonde::dial(
        network,
        format_args!(":{}", port),
        format_args!("{}{}", option, name),
    )
    .map_err(|e| e.during("connect"))
}

fn probe(s: &Settings) -> Attempt {
    let keep = s.bool("keep");
    let kept = if keep { sonde::held(KEY).ok() } else { None };
    let fresh = kept.is_none();
    let mut r = Reader::new(match kept {
        Some(conn) => conn,
        None => connect(s)?,
    });
    let end = talk(s, &mut r, fresh);
    sonde::count(if end.is_ok() { "answers" } else { "misses" }, 1.0);
    sonde::log(
        sonde::LOG_DEBUG,
        format_args!("ended as {}", if end.is_ok() { "good" } else { "bad" }),
    );
    if end.is_ok() && keep && r.used == r.filled {
        r.conn.hold(KEY).map_err(|e| e.during("hold"))?;
    }
    end
}

sonde::plugin!(probe, check);
