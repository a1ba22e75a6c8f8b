// Package abi is the contract between Sonde and a plugin, in its version 1: a
// WebAssembly core module that makes probe attempts. A plugin's author can read
// this package as the specification; nothing else is needed to write an SDK. It
// imports the standard library only.
//
// # The module
//
// A plugin is a core module for wasm32 (no component, no 64-bit memory, no
// threads). It is a reactor: it has no main that runs and ends, but functions that
// are called. It exports
//
//   - memory: its one memory.
//   - sonde_abi_v1: a function or a global, only there to be seen. It says that
//     the module follows this version. It is never called or read.
//   - sonde_run: () -> i32, one attempt. It returns an Outcome.
//   - sonde_configure: () -> i32, optional. It checks the settings that
//     InputSettings gives, once for each configuration, before anything is
//     dialled: 0 says that they are good. For any other number OutputField names
//     the wrong setting and OutputDetail says what is wrong with it. It cannot
//     dial.
//   - _initialize: () -> (), optional. It is called once for each instance, before
//     anything else. It cannot dial.
//
// and imports functions of the two modules that are described below, and of no
// other. A module that imports what its host does not know is refused when it is
// loaded, by the function's name. Within a version only additions are made; what
// changes the meaning of something is another version with another marker.
//
// A custom section named sonde.plugin holds the Manifest as JSON: the plugin's
// name, and the settings it takes. It is read without running the module.
//
// # Calls
//
// One instance makes one attempt at a time, then another one, perhaps for another
// target with other settings: an instance must not carry anything from one
// attempt to the next but what it can see to be still right. What a probe has to
// remember travels as its state (InputState, OutputState), and a connection to keep
// is held by the host (hold, held). An instance may be thrown away at any time
// between two calls, and is after a trap, an exit or a hard stop.
//
// Two deadlines stand over an attempt. At the first, the probe's timeout, each
// wait ends and each use of a descriptor fails with ETIMEDOUT, so that the plugin
// can end by itself and say what it was waiting for. Grace later the call is
// stopped wherever it is, and the instance is lost.
//
// # Numbers
//
// Arguments and results are i32 where nothing else is said. Texts and bytes are
// given as an address and a length in the module's own memory; the host uses them
// during the call only. Texts are UTF-8. A result of 0 or more is a success; a
// negative one is an Errno with its sign turned. Lengths, ids and durations that a
// host returns are never negative.
//
// # Module sonde_v1
//
//	input(kind, buf, limit) -> len
//
// Writes what kind asks for to buf and returns its length. When it is longer than
// limit, nothing is written: ask again with more room. A kind that the host does
// not know is -ENOTSUP.
//
//	output(kind, ptr, len) -> 0
//
// Says something about the attempt. What was said last counts. A kind that the host
// does not know is -ENOTSUP, what is too long for its kind -E2BIG.
//
//	log(level, ptr, len) -> 0
//	log_level() -> level
//
// Write one log record; log_level is the least level that anybody will see.
//
//	metric(kind, name_ptr, name_len, value f64) -> 0
//
// Sets a gauge, or adds to a counter, of the plugin as a whole. A name is a letter
// a-z and then up to MaxMetricName-1 letters, digits or underscores. The number of
// names is bounded: one too many is -ENOSPC.
//
//	clock(id) -> i64
//	remaining() -> i64
//
// Clock returns nanoseconds, ClockReal since 1970 began, ClockMonotonic since some
// time before the call. Remaining returns the nanoseconds to the attempt's
// deadline; 0 when it has passed.
//
//	random(buf, len) -> 0
//
// Fills buf with random bytes fit for keys, at most MaxRandom.
//
//	resolve(name_ptr, name_len, buf, limit) -> len
//
// Looks a host name up and writes its IP addresses, one a line, as input does.
// It needs a grant. Dial looks names up by itself.
//
//	dial(net_ptr, net_len, addr_ptr, addr_len, opts_ptr, opts_len, flags, timeout_ms) -> fd
//
// Connects and returns a descriptor. The network is tcp, tls, udp or unix. The
// address is host:port or, for unix, a path. An empty host is the target's own
// address; a port is a number or the name of one of the target's ports. Options are
// those of start_tls, and empty for the other networks. A timeout of 0 leaves the
// attempt's deadline. What is not granted is -ENOTCAPABLE.
//
//	start_tls(fd, opts_ptr, opts_len) -> 0
//
// Makes the handshake of a TLS client on a tcp or unix descriptor, which then
// carries what is inside. Nothing may be left unread. Options are lines as in
// InputTarget, of which none is needed: server_name (default: the host that was
// dialled), alpn (once for each protocol), verify=none, and ca_pem, cert_pem and
// key_pem.
//
//	conn_info(fd, what, buf, limit) -> len
//
// Writes what is known of a connection, as input does.
//
//	deadline(fd, which, ns i64) -> 0
//
// Lets reads, writes or both fail with -ETIMEDOUT in ns nanoseconds from now; 0
// leaves the attempt's own deadline alone. Nothing outlasts the attempt's.
//
//	read(fd, buf, len) -> n
//	write(fd, ptr, len) -> n
//	close(fd) -> 0
//
// Read blocks until something can be read and returns its length, or 0 when the
// peer has closed. Write blocks until all is written. Both block whatever the
// descriptor's flags are.
//
//	hold(fd, key_ptr, key_len) -> 0
//	held(key_ptr, key_len, flags) -> fd
//
// Hold gives a connection to the host to keep for the probe's next attempt, under a
// key that the plugin chooses (1 to MaxKey bytes). The descriptor is closed by it,
// the connection is not. A connection that was held under the key before is closed. Held
// takes it back, with a new descriptor, or returns -ENOENT; it is closed at the
// end of the attempt unless it is held again. When a held connection ends, the host may
// make the probe's next attempt at once instead of at its turn: the plugin finds the
// end as it uses the connection. All of a probe's held connections are closed when an
// attempt traps, and when the probe is removed or changed.
//
// # Module wasi_snapshot_preview1
//
// WASI lists the functions of WASI preview 1 that work. Descriptors 1 and 2 are
// the log, 0 is empty, and dial's are sockets: datagram ones for udp, stream ones
// else. There are no files, no directories and no listening sockets. The other
// functions of preview 1 can be imported and return ENOSYS. Descriptors begin at
// FirstFD and are never used twice in an instance; all are closed at the end of
// the attempt.
//
// A poll waits for several descriptors and a clock at once, and reads of descriptors
// with the NONBLOCK flag answer EAGAIN: that is what Go's runtime, wasi-libc and
// Rust's std need for ordinary sockets. Writes wait until all is written or a deadline
// passes, whatever the flags are.
package abi
