//! The settings of a probe, decoded from JSON without an allocator.
use crate::host::{self, done, Error, E2BIG, EINVAL};
use crate::MAX_INPUT;
use core::ptr::addr_of_mut;

/// The settings of the probe's handler block. A path is a setting's name: "port", "tls.name" in a block,
/// "names.0" in a list.
pub struct Settings {
    index: [Option<Member>; INDEXED], // so that their JSON is read once
    indexed: usize,
}

/// The name and the value of a setting, as JSON.
type Member = (&'static [u8], &'static [u8]);

/// The length of the index: a manifest has no more settings.
const INDEXED: usize = 256;

/// The settings of the call, and their JSON: an instance makes one at a time.
static mut INPUT: [u8; MAX_INPUT] = [0; MAX_INPUT];
static mut SETTINGS: Settings = Settings {
    index: [None; INDEXED],
    indexed: 0,
};

impl Settings {
    pub(crate) fn load() -> Result<&'static Settings, Error> {
        let (input, s) = unsafe { (&mut *addr_of_mut!(INPUT), &mut *addr_of_mut!(SETTINGS)) };
        let len = done(unsafe { host::input(1, input.as_mut_ptr(), MAX_INPUT) })?;
        let mut rest = input.get(..len).ok_or(E2BIG)?;
        take(&mut rest, b'{');
        s.indexed = 0;
        while s.indexed < INDEXED && take(&mut rest, b'"') {
            s.index[s.indexed] = Some(entry(&mut rest));
            s.indexed += 1;
            take(&mut rest, b',');
        }
        Ok(s)
    }
    /// The setting's JSON, empty if it is not set.
    pub fn json(&self, path: &str) -> &[u8] {
        let mut names = path.split('.');
        let first = names.next().unwrap_or("").as_bytes();
        let known = &mut self.index[..self.indexed].iter().flatten();
        let value = known.find(|m| m.0 == first).map_or(&[][..], |m| m.1);
        names.fold(value, |s, name| member(s, name.as_bytes()))
    }
    pub fn bool(&self, path: &str) -> bool {
        self.json(path).starts_with(b"true")
    }
    /// A whole number, or a duration in nanoseconds; 0 if it is not set.
    pub fn int(&self, path: &str) -> i64 {
        core::str::from_utf8(self.json(path))
            .ok()
            .and_then(|s| s.trim().parse().ok())
            .unwrap_or(0)
    }
    /// A string, empty if it is not set.
    #[cfg(feature = "std")]
    pub fn string(&self, path: &str) -> Result<String, Error> {
        self.text(path, &mut [0; MAX_INPUT]).map(String::from)
    }
    /// Writes a string to buf; it is empty if the setting is not set.
    pub fn text<'b>(&self, path: &str, buf: &'b mut [u8]) -> Result<&'b str, Error> {
        let (mut s, mut n) = (self.json(path), 0);
        if take(&mut s, b'"') {
            s = quoted(&mut s);
        }
        if !s.contains(&b'\\') {
            buf.get_mut(..s.len()).ok_or(E2BIG)?.copy_from_slice(s);
            (s, n) = (&[], s.len());
        }
        while !s.is_empty() {
            let mut c = [0; 4];
            let k = character(&mut s, &mut c);
            buf.get_mut(n..n + k).ok_or(E2BIG)?.copy_from_slice(&c[..k]);
            n += k;
        }
        core::str::from_utf8(&buf[..n]).map_err(|_| EINVAL)
    }
}

fn take(s: &mut &[u8], c: u8) -> bool {
    while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = *s {
        *s = rest;
    }
    let found = s.first() == Some(&c);
    if found {
        *s = &s[1..];
    }
    found
}

fn quoted<'a>(s: &mut &'a [u8]) -> &'a [u8] {
    // s starts after the first quote
    let (all, mut n) = (*s, 0);
    while n < all.len() && all[n] != b'"' {
        n += if all[n] == b'\\' { 2 } else { 1 };
    }
    n = n.min(all.len());
    *s = &all[(n + 1).min(all.len())..];
    &all[..n]
}

fn value<'a>(s: &mut &'a [u8]) -> &'a [u8] {
    take(s, 0); // white space
    let (all, mut depth) = (*s, 0);
    while let Some(&c) = s.first() {
        if depth == 0 && matches!(c, b',' | b'}' | b']') {
            break;
        }
        *s = &s[1..];
        match c {
            b'"' => {
                quoted(s);
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    &all[..all.len() - s.len()]
}

/// The name and the value of a member of an object, after its first quote.
fn entry<'a>(s: &mut &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let name = quoted(s);
    take(s, b':');
    (name, value(s))
}

fn member<'a>(mut s: &'a [u8], name: &[u8]) -> &'a [u8] {
    let list = take(&mut s, b'[');
    let object = !list && take(&mut s, b'{');
    let nth = core::str::from_utf8(name).ok().and_then(|n| n.parse().ok());
    let mut i = 0;
    while list || object && take(&mut s, b'"') {
        let (key, value) = if list {
            (&[][..], value(&mut s))
        } else {
            entry(&mut s)
        };
        let found = if list { nth == Some(i) } else { key == name };
        if found {
            return value;
        }
        if !take(&mut s, b',') {
            break;
        }
        i += 1;
    }
    &[]
}

fn hex(s: &mut &[u8]) -> u32 {
    let (digits, rest) = s.split_at(s.len().min(4));
    *s = rest;
    digits
        .iter()
        .fold(0, |n, d| n * 16 + (*d as char).to_digit(16).unwrap_or(0))
}

fn character(s: &mut &[u8], out: &mut [u8; 4]) -> usize {
    let (c, escaped) = match **s {
        [b'\\', c, ..] => (c, true),
        [c, ..] => (c, false),
        [] => return 0,
    };
    *s = &s[1 + escaped as usize..];
    out[0] = match c {
        b'b' if escaped => 8,
        b'f' if escaped => 12,
        b'n' if escaped => 10,
        b'r' if escaped => 13,
        b't' if escaped => 9,
        c => c,
    };
    if !escaped || c != b'u' {
        return 1;
    }
    let mut r = hex(s);
    if r >> 10 == 0x36 && s.starts_with(b"\\u") {
        *s = &s[2..];
        r = 0x10000 + ((r & 0x3ff) << 10) + (hex(s) & 0x3ff);
    }
    char::from_u32(r)
        .unwrap_or('\u{fffd}')
        .encode_utf8(out)
        .len()
}
