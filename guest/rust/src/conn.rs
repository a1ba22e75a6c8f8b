//! Connections made by the host.
use crate::host::{self, done, Error};
use crate::Text;
use core::fmt;

/// A connection, closed when it is dropped. With `std` it also implements `Read` and `Write`, and converts into
/// a `TcpStream`.
pub struct Conn(i32);

/// Connects. The network is tcp, tls, udp or unix; options are lines for TLS, "server_name=example.org\n".
pub fn dial(
    network: &str,
    address: fmt::Arguments,
    options: fmt::Arguments,
) -> Result<Conn, Error> {
    let (n, a, o) = (network, Text::new(address), Text::new(options));
    let fd = unsafe {
        host::dial(
            n.as_ptr(),
            n.len(),
            a.as_bytes().as_ptr(),
            a.len,
            o.as_bytes().as_ptr(),
            o.len,
            0,
            0,
        )
    };
    done(fd).map(|fd| Conn(fd as i32))
}

/// Returns the connection that was held under a key.
pub fn held(key: &str) -> Result<Conn, Error> {
    done(unsafe { host::held(key.as_ptr(), key.len(), 0) }).map(|fd| Conn(fd as i32))
}

impl Conn {
    pub fn fd(&self) -> i32 {
        self.0
    }
    /// Makes reads fail with ETIMEDOUT ns nanoseconds from now; 0: at the attempt's deadline.
    pub fn read_deadline(&mut self, ns: i64) {
        unsafe { host::deadline(self.0, 1, ns) };
    }
    /// Waits for bytes; 0 means that the peer has closed the connection.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        done(unsafe { host::read(self.0, buf.as_mut_ptr(), buf.len()) })
    }
    pub fn send(&mut self, b: &[u8]) -> Result<(), Error> {
        done(unsafe { host::write(self.0, b.as_ptr(), b.len()) }).map(drop)
    }
    pub fn start_tls(&mut self, options: fmt::Arguments) -> Result<(), Error> {
        let o = Text::new(options);
        done(unsafe { host::start_tls(self.0, o.as_bytes().as_ptr(), o.len) }).map(drop)
    }
    /// Hands the connection to the host, which keeps it for the probe's next attempt.
    pub fn hold(self, key: &str) -> Result<(), Error> {
        done(unsafe { host::hold(self.0, key.as_ptr(), key.len()) })?;
        core::mem::forget(self);
        Ok(())
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        unsafe { host::close(self.0) };
    }
}

#[cfg(feature = "std")]
mod with_std {
    use super::{Conn, Error};
    use std::{io, net::TcpStream, os::wasi::io::FromRawFd};
    impl From<Error> for io::Error {
        fn from(e: Error) -> io::Error {
            io::Error::from_raw_os_error(e.0)
        }
    }
    impl io::Read for Conn {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            Ok(self.recv(buf)?)
        }
    }
    impl io::Write for Conn {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            self.send(b)?;
            Ok(b.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl From<Conn> for TcpStream {
        fn from(c: Conn) -> TcpStream {
            let c = std::mem::ManuallyDrop::new(c);
            unsafe { TcpStream::from_raw_fd(c.fd()) }
        }
    }
}
