//! The host's functions, for uses that the rest of the crate does not cover, and their errors.

#[link(wasm_import_module = "sonde_v1")]
extern "C" {
    pub fn input(kind: i32, buf: *mut u8, limit: usize) -> i32;
    pub fn output(kind: i32, p: *const u8, n: usize) -> i32;
    pub fn log(level: i32, p: *const u8, n: usize) -> i32;
    pub fn log_level() -> i32;
    pub fn metric(kind: i32, name: *const u8, n: usize, value: f64) -> i32;
    pub fn clock(id: i32) -> i64;
    pub fn remaining() -> i64;
    pub fn random(buf: *mut u8, n: usize) -> i32;
    pub fn resolve(name: *const u8, n: usize, buf: *mut u8, limit: usize) -> i32;
    pub fn dial(
        net: *const u8,
        net_n: usize,
        address: *const u8,
        address_n: usize,
        options: *const u8,
        options_n: usize,
        flags: i32,
        timeout_ms: i32,
    ) -> i32;
    pub fn start_tls(fd: i32, options: *const u8, n: usize) -> i32;
    pub fn conn_info(fd: i32, what: i32, buf: *mut u8, limit: usize) -> i32;
    pub fn deadline(fd: i32, which: i32, ns: i64) -> i32;
    pub fn read(fd: i32, buf: *mut u8, n: usize) -> i32;
    pub fn write(fd: i32, p: *const u8, n: usize) -> i32;
    pub fn close(fd: i32) -> i32;
    pub fn hold(fd: i32, key: *const u8, n: usize) -> i32;
    pub fn held(key: *const u8, n: usize, flags: i32) -> i32;
}

/// An error of a host call, by its number in WASI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i32);
pub const E2BIG: Error = Error(1);
pub const EINVAL: Error = Error(28);
pub const ENOENT: Error = Error(44);
pub const EIO: Error = Error(29);
pub const ETIMEDOUT: Error = Error(73);

/// Converts a result of a host call.
pub(crate) fn done(result: i32) -> Result<usize, Error> {
    if result < 0 {
        Err(Error(-result))
    } else {
        Ok(result as usize)
    }
}
