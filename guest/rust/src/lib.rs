//! The Rust SDK for Sonde plugins, with or without `std`. README.md shows how to use it; the Go package
//! wasmhost/abi is the specification.
#![cfg_attr(not(feature = "std"), no_std)]
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::{ptr, slice};

mod conn;
pub mod host;
mod settings;
pub use conn::{dial, held, Conn};
use host::done;
pub use host::{Error, E2BIG, EINVAL, EIO, ENOENT, ETIMEDOUT};
pub use settings::Settings;

/// Maximum bytes of the settings, and of the target.
pub const MAX_INPUT: usize = 16384;
/// Maximum bytes of a `Text`.
pub const MAX_TEXT: usize = 8192;

/// The outcome of an attempt. Unknown: it could not be made, and the target is not to blame. A warning counts as
/// a success; its detail describes the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Unknown = 0,
    Success = 1,
    Warning = 2,
    Failure = 3,
}

/// The end of an attempt. An early end is an `Err`, so that `?` can end an attempt.
pub type Attempt = Result<Outcome, Outcome>;

pub const LOG_DEBUG: i32 = 1;
pub const LOG_INFO: i32 = 2;
pub const LOG_WARN: i32 = 3;
pub const LOG_ERROR: i32 = 4;
const TARGET: i32 = 2;
const ERROR: i32 = 4;

/// Exports the function that makes an attempt and, optionally, the one that checks a probe's settings.
#[macro_export]
macro_rules! plugin {
    ($attempt:path) => {
        #[no_mangle]
        pub extern "C" fn sonde_abi_v1() {}
        #[no_mangle]
        pub extern "C" fn sonde_run() -> i32 {
            $crate::run($attempt)
        }
    };
    ($attempt:path, $check:path) => {
        $crate::plugin!($attempt);
        #[no_mangle]
        pub extern "C" fn sonde_configure() -> i32 {
            $crate::configure($check)
        }
    };
}

#[doc(hidden)]
pub fn run(attempt: fn(&Settings) -> Attempt) -> i32 {
    let ended = Settings::load()
        .map_err(|e| e.during("read the settings"))
        .and_then(attempt);
    match ended {
        Ok(outcome) | Err(outcome) => outcome as i32,
    }
}

#[doc(hidden)]
pub fn configure(check: fn(&Settings) -> Result<(), Refused>) -> i32 {
    match Settings::load() {
        Ok(s) => check(s).is_err() as i32,
        Err(e) => 1 + e.during("read the settings") as i32,
    }
}

/// The error of a check of settings. `refuse` makes it.
pub struct Refused(());

/// Reports a wrong setting and its problem, such as "must not be empty".
pub fn refuse(setting: &str, problem: &str) -> Refused {
    output(4, setting.as_bytes());
    output(1, problem.as_bytes());
    Refused(())
}

fn output(kind: i32, b: &[u8]) {
    unsafe { host::output(kind, b.as_ptr(), b.len()) };
}

/// Reports the result of an attempt. A reason is a stable code such as "redis.loading", or empty.
pub fn end(outcome: Outcome, reason: &str, detail: fmt::Arguments) -> Outcome {
    output(1, Text::new(detail).as_bytes());
    if !reason.is_empty() {
        output(2, reason.as_bytes());
    }
    outcome
}
pub fn success(detail: fmt::Arguments) -> Outcome {
    end(Outcome::Success, "", detail)
}
pub fn warning(reason: &str, detail: fmt::Arguments) -> Outcome {
    end(Outcome::Warning, reason, detail)
}
pub fn fail(reason: &str, detail: fmt::Arguments) -> Outcome {
    end(Outcome::Failure, reason, detail)
}
pub fn unknown(reason: &str, detail: fmt::Arguments) -> Outcome {
    end(Outcome::Unknown, reason, detail)
}

impl Error {
    /// Reports an attempt that ended with this error of an operation: a failure if the target is to blame, else
    /// unknown. The host adds the reason.
    pub fn during(self, operation: &str) -> Outcome {
        let mut buf = [0; 1024];
        let outcome = match self.0 {
            14 | 15 | 23 | 29 | 40 | 44 | 64 | 65 | 73 => Outcome::Failure,
            _ => Outcome::Unknown,
        };
        match line(ERROR, "detail", 0, &mut buf) {
            Some(detail) if !detail.is_empty() => {
                end(outcome, "", format_args!("{}: {}", operation, detail))
            }
            _ => end(outcome, "", format_args!("{}: error {}", operation, self.0)),
        }
    }
}

/// A string of at most MAX_TEXT bytes, without an allocator. Longer ones are truncated.
pub struct Text {
    buf: [MaybeUninit<u8>; MAX_TEXT], // of which len bytes were written
    len: usize,
}

impl Text {
    pub fn new(text: fmt::Arguments) -> Text {
        let mut t = Text {
            buf: [MaybeUninit::uninit(); MAX_TEXT],
            len: 0,
        };
        let _ = t.write_fmt(text); // it never fails
        t
    }
    pub fn as_bytes(&self) -> &[u8] {
        unsafe { slice::from_raw_parts(self.buf.as_ptr().cast(), self.len) }
    }
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let n = s.len().min(MAX_TEXT - self.len);
        let to = self.buf[self.len..self.len + n].as_mut_ptr();
        unsafe { ptr::copy_nonoverlapping(s.as_ptr(), to.cast(), n) };
        self.len += n;
        Ok(())
    }
}

/// Writes a property of the target to buf, truncated to its length: "name", "address", or the nth "port"
/// ("8080 http"), counted from 0.
pub fn target<'b>(key: &str, nth: usize, buf: &'b mut [u8]) -> Option<&'b str> {
    line(TARGET, key, nth, buf)
}

fn line<'b>(kind: i32, key: &str, nth: usize, buf: &'b mut [u8]) -> Option<&'b str> {
    let mut all = [0; MAX_INPUT];
    let n = done(unsafe { host::input(kind, all.as_mut_ptr(), MAX_INPUT) }).ok()?;
    let lines = all.get(..n)?.split(|c| *c == b'\n');
    let value = lines
        .filter_map(|l| l.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
        .nth(nth)?;
    let (mut n, mut escaped) = (0, false);
    for &c in value {
        if !escaped && c == b'\\' {
            escaped = true;
            continue;
        }
        if n == buf.len() {
            break;
        }
        buf[n] = match c {
            b'n' if escaped => b'\n',
            b'r' if escaped => b'\r',
            c => c,
        };
        escaped = false;
        n += 1;
    }
    core::str::from_utf8(&buf[..n]).ok()
}

/// What the same probe's previous attempt passed to set_state.
pub fn state(buf: &mut [u8]) -> Result<&[u8], Error> {
    let n = done(unsafe { host::input(3, buf.as_mut_ptr(), buf.len()) })?;
    buf.get(..n).ok_or(E2BIG)
}
pub fn set_state(state: &[u8]) {
    output(3, state)
}

/// In the check of settings: hands the host up to 256 KiB that were computed from them. `kept` writes them to buf in the
/// attempts with these settings. They are empty if the host could not keep them: then the attempt computes them itself.
pub fn keep(computed: &[u8]) {
    output(5, computed)
}
pub fn kept(buf: &mut [u8]) -> Result<&[u8], Error> {
    let n = done(unsafe { host::input(5, buf.as_mut_ptr(), buf.len()) })?;
    buf.get(..n).ok_or(E2BIG)
}

pub fn log(level: i32, text: fmt::Arguments) {
    let text = Text::new(text);
    unsafe { host::log(level, text.as_bytes().as_ptr(), text.len) };
}
pub fn gauge(name: &str, value: f64) {
    unsafe { host::metric(1, name.as_ptr(), name.len(), value) };
}
pub fn count(name: &str, n: f64) {
    unsafe { host::metric(2, name.as_ptr(), name.len(), n) };
}
/// A number about this attempt only, for whoever asks for one attempt.
pub fn measure(name: &str, value: f64) {
    unsafe { host::metric(3, name.as_ptr(), name.len(), value) };
}
pub fn remaining() -> i64 {
    unsafe { host::remaining() }
}

#[cfg(all(not(feature = "std"), target_arch = "wasm32"))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    if let Some(at) = info.location() {
        log(
            LOG_ERROR,
            format_args!("panic at {}:{}", at.file(), at.line()),
        );
    }
    core::arch::wasm32::unreachable()
}
