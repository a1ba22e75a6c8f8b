// Package abi is the contract between Sonde and a plugin, in version 1. A plugin is a
// WebAssembly core module that makes probe attempts. For a plugin's author this package is
// the specification: nothing else is needed to write an SDK. It imports the standard
// library only.
//
// # The module
//
// A plugin is a core module for wasm32: not a component, without 64-bit memory and without threads.
// It is a reactor: instead of a main function it exports functions that the host calls. It exports
//
//   - memory: its only memory.
//   - sonde_abi_v1: a function or a global that marks the module as following this
//     version. It is never called or read.
//   - sonde_run: () -> i32, makes one attempt. It returns the outcome as a number of probe.Outcome: 0 for
//     unknown (the attempt could not be made and the target is not to blame), 1 for success, 2 for a warning
//     (counts as success; OutputDetail describes the problem), 3 for failure. Any other number is a fault of the
//     plugin and makes the attempt unknown.
//   - sonde_configure: () -> i32, optional. It checks the settings in InputSettings once for each
//     configuration, before the first attempt. 0 means that they are valid; for any other number
//     OutputField names the wrong setting and OutputDetail describes the problem. Its changes to
//     memory are discarded: to pass data to attempts with these settings, write it as OutputPrepared;
//     they read it as InputPrepared. sonde_configure cannot dial.
//   - _initialize: () -> (), optional. It is called once, before any other function, and prepares
//     the state from which all attempts start. It has no settings and no target, and cannot dial.
//
// and imports functions only, from the two modules described below. A module that imports a
// function that the host lacks is rejected when it is loaded; the error names the function. Within
// a version functions are only added; a change of meaning requires a new version with a new marker.
//
// A custom section named sonde.plugin holds the Manifest as JSON: the plugin's name and
// the settings it takes. The host reads it without running the module.
//
// # Calls
//
// Each call of sonde_run and sonde_configure starts with the memory and the globals as _initialize
// left them: nothing remains of earlier calls. Expensive work that is the same for all attempts
// belongs in _initialize. Data that a probe keeps between attempts is its state (InputState,
// OutputState); the host keeps connections (hold, held).
//
// After _initialize the host copies the memory and the mutable globals that hold numbers. A module
// that could change any other state is rejected: one with instructions that change tables
// (table.set, table.init, table.copy, table.grow, table.fill) or create references (ref.func), with
// passive data segments, or with mutable globals that hold references or vectors.
//
// A pseudo-random number generator that is seeded in _initialize therefore returns the same numbers
// in each attempt: seed it in sonde_run, or use random. A timer that is started in _initialize has
// already expired when an attempt runs.
//
// An attempt has two deadlines. At the first, the probe's timeout, every wait ends and
// every use of a descriptor fails with ETIMEDOUT, so that the plugin can return and report
// what it was waiting for. Grace later, the call is stopped.
//
// # Numbers
//
// Arguments and results are i32 unless noted. Strings and bytes are passed as an address and a
// length in the module's memory, which the host uses only during the call. Strings are UTF-8. A
// result of 0 or more is a success; a negative one is an Errno, negated. Lengths, ids and durations
// that the host returns are never negative.
//
// # Module sonde_v1
//
//	input(kind, buf, limit) -> len
//
// Writes the input of a kind to buf and returns its length. If the length exceeds limit, nothing is
// written: call again with a larger buffer. An unknown kind returns -ENOTSUP.
//
//	output(kind, ptr, len) -> 0
//
// Reports something about the attempt. The last call for each kind counts. An unknown kind returns
// -ENOTSUP; a value that is too long for its kind returns -E2BIG.
//
//	log(level, ptr, len) -> 0
//	log_level() -> level
//
// log writes one log record; log_level returns the lowest level that is logged.
//
//	metric(kind, name_ptr, name_len, value f64) -> 0
//
// Sets a gauge or adds to a counter of the whole plugin, or sets a number about this attempt. A name is a letter a-z
// followed by up to MaxMetricName-1 letters, digits or underscores. Beyond the maximum number of names it returns
// -ENOSPC.
//
//	clock(id) -> i64
//	remaining() -> i64
//
// Clock returns nanoseconds: ClockReal since 1970, ClockMonotonic since an arbitrary earlier time.
// Remaining returns the nanoseconds until the attempt's deadline, or 0 if it has passed.
//
//	random(buf, len) -> 0
//
// Fills buf with random bytes that are suitable for keys; len is at most MaxRandom.
//
//	resolve(name_ptr, name_len, buf, limit) -> len
//
// Looks up a host name and writes its IP addresses, one per line, as input does. It needs a grant.
// Dial does not need it: it looks up names itself.
//
//	dial(net_ptr, net_len, addr_ptr, addr_len, opts_ptr, opts_len, flags, timeout_ms) -> fd
//
// Connects and returns a descriptor. The network is tcp, tls, udp or unix. The address is host:port
// or, for unix, a path. An empty host is the target's own address; a port is a number or the name
// of one of the target's ports. The options for tls are those of start_tls; for other networks they
// are empty. A timeout of 0 means the attempt's deadline. A destination that is not granted returns
// -ENOTCAPABLE. At most 8 addresses of a name are tried, in order; if all fail, the returned error
// is the first one that concerns the target.
//
//	start_tls(fd, opts_ptr, opts_len) -> 0
//
// Performs a TLS handshake as the client on a tcp or unix descriptor. Afterwards the descriptor
// transfers plaintext over TLS. All bytes received before must have been read. Options are lines as
// in InputTarget, all optional: server_name (default: the dialled host), alpn (one line per
// protocol), verify=none, ca_pem, cert_pem and key_pem.
//
//	conn_info(fd, what, buf, limit) -> len
//
// Writes a property of a connection, as input does.
//
//	deadline(fd, which, ns i64) -> 0
//
// Sets a deadline ns nanoseconds from now, after which reads, writes or both fail with -ETIMEDOUT;
// 0 removes it. The attempt's own deadline always applies.
//
//	read(fd, buf, len) -> n
//	write(fd, ptr, len) -> n
//	close(fd) -> 0
//
// Read waits for bytes and returns their number, or 0 when the peer has closed the connection.
// Write waits until all bytes are written. Both wait regardless of the descriptor's flags.
//
//	hold(fd, key_ptr, key_len) -> 0
//	held(key_ptr, key_len, flags) -> fd
//
// Hold passes a connection to the host, which keeps it for the probe's next attempt under a key
// that the plugin chooses (1 to MaxKey bytes). It closes the descriptor but not the connection, and
// closes any connection that was already held under the key. Held returns the connection with a new
// descriptor, or -ENOENT; the connection is closed at the end of the attempt unless it is held
// again. When the peer closes a held connection, the host may start the probe's next attempt at
// once instead of at its scheduled time: the plugin notices the close when it uses the connection.
// All held connections of a probe are closed when an attempt traps, and when the probe is removed
// or changed.
//
// # Module wasi_snapshot_preview1
//
// WASI lists the functions of WASI preview 1 that work. Descriptor 0 is empty. Descriptors 1 and 2 are the log,
// with one record per line. Descriptors from dial are sockets: datagram sockets for udp, stream sockets
// otherwise. There are no files, directories or listening sockets. The other functions of preview 1 can be
// imported and return ENOSYS. Descriptors of connections start at FirstFD and are never reused within an
// attempt; all are closed at its end.
//
// poll_oneoff waits for several descriptors and a clock at once. Reads of descriptors with the NONBLOCK flag
// return EAGAIN if no data is available. Go's runtime, wasi-libc and Rust's std need both for ordinary sockets.
// Writes wait until all bytes are written or a deadline passes, regardless of flags. A read or write of a
// connection uses only the first non-empty buffer of its vector, and returns the number of bytes transferred. A
// datagram must be written from a single buffer, otherwise the error is ENOTSUP. A write to the log uses all
// buffers, at most 1024.
package abi
