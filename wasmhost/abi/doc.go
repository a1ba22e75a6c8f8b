// Package abi is the contract between Sonde and a plugin, in version 1. A plugin is a
// WebAssembly core module that makes probe attempts. For a plugin's author this package is
// the specification: nothing else is needed to write an SDK. It imports the standard
// library only.
//
// # The module
//
// A plugin is a core module for wasm32: not a component, without 64-bit memory and
// without threads. It is a reactor: it has no main function that runs and ends, but
// exports functions that the host calls. It exports
//
//   - memory: its only memory.
//   - sonde_abi_v1: a function or a global that marks the module as following this
//     version. It is never called or read.
//   - sonde_run: () -> i32, one attempt. It returns its outcome, in the numbers of probe.Outcome: 0 for unknown,
//     the attempt could not be made and the target is not to blame; 1 for success; 2 for a warning, which counts
//     as success, and OutputDetail describes the problem; 3 for failure. Any other number is a fault of the
//     plugin and makes the attempt unknown.
//   - sonde_configure: () -> i32, optional. It checks the settings in InputSettings once
//     for each configuration, before the first attempt. 0 means that they are valid; for
//     any other number OutputField names the wrong setting and OutputDetail describes the
//     problem. What it stores in memory is not kept: OutputPrepared is what attempts with
//     these settings get as InputPrepared. It cannot dial.
//   - _initialize: () -> (), optional. It is called before anything else, and prepares
//     what all attempts start from. It has no settings and no target, and cannot dial. It
//     is called once.
//
// and imports functions only, from the two modules described below. A module that imports
// a function that its host does not have is rejected when it is loaded, by the function's
// name. Within a version functions are only added; a change of meaning is a new version
// with a new marker.
//
// A custom section named sonde.plugin holds the Manifest as JSON: the plugin's name and
// the settings it takes. The host reads it without running the module.
//
// # Calls
//
// Each call of sonde_run and sonde_configure starts with the memory and the globals as
// _initialize has left them: nothing remains of the calls before. What is expensive and the
// same for all attempts belongs in _initialize. What a probe has to remember is its state
// (InputState, OutputState); a connection to keep is held by the host (hold, held).
//
// The host copies what _initialize has left: the memory, and the mutable globals that are
// numbers. A module that may change anything else is rejected: one with instructions that change
// tables (table.set, table.init, table.copy, table.grow, table.fill) or make references (ref.func),
// with passive data segments, or with mutable globals that are references or vectors.
//
// So a generator of pseudo-random numbers that _initialize has seeded would give the same
// numbers in each attempt: seed it in sonde_run, or use random. A timer that _initialize
// has started is over in an attempt.
//
// An attempt has two deadlines. At the first, the probe's timeout, every wait ends and
// every use of a descriptor fails with ETIMEDOUT, so that the plugin can return and report
// what it was waiting for. Grace later, the call is stopped.
//
// # Numbers
//
// Arguments and results are i32 unless noted. Texts and bytes are passed as an address
// and a length in the module's memory, which the host uses only during the call. Texts are
// UTF-8. A result of 0 or more is a success; a negative one is an Errno, negated. Lengths,
// ids and durations that the host returns are never negative.
//
// # Module sonde_v1
//
//	input(kind, buf, limit) -> len
//
// Writes the input of a kind to buf and returns its length. If that is more than limit,
// nothing is written: call again with a larger buffer. An unknown kind is -ENOTSUP.
//
//	output(kind, ptr, len) -> 0
//
// Reports something about the attempt. The last call for each kind counts. An unknown kind
// is -ENOTSUP, a value too long for its kind -E2BIG.
//
//	log(level, ptr, len) -> 0
//	log_level() -> level
//
// Write one log record; log_level is the lowest level that is logged.
//
//	metric(kind, name_ptr, name_len, value f64) -> 0
//
// Sets a gauge, or adds to a counter, of the plugin as a whole, or a number about the attempt. A name is a letter a-z
// followed by up to MaxMetricName-1 letters, digits or underscores. The number of names is
// limited: -ENOSPC.
//
//	clock(id) -> i64
//	remaining() -> i64
//
// Clock returns nanoseconds: ClockReal since 1970, ClockMonotonic since some time before
// the call. Remaining returns the nanoseconds until the attempt's deadline; 0 when it has
// passed.
//
//	random(buf, len) -> 0
//
// Fills buf with at most MaxRandom random bytes, fit for keys.
//
//	resolve(name_ptr, name_len, buf, limit) -> len
//
// Looks up a host name and writes its IP addresses, one per line, as input does. It needs
// a grant. Dial looks up names itself.
//
//	dial(net_ptr, net_len, addr_ptr, addr_len, opts_ptr, opts_len, flags, timeout_ms) -> fd
//
// Connects and returns a descriptor. The network is tcp, tls, udp or unix. The address is
// host:port or, for unix, a path. An empty host is the target's own address; a port is a
// number or the name of one of the target's ports. Options are those of start_tls for
// tls, and empty otherwise. A timeout of 0 means the attempt's deadline. A destination
// that is not granted is -ENOTCAPABLE. At most 8 addresses of a name are tried, in order;
// the error is that of the first one which says something about the target.
//
//	start_tls(fd, opts_ptr, opts_len) -> 0
//
// Makes a TLS client's handshake on a tcp or unix descriptor, which then transfers
// plaintext over TLS. All bytes received before must have been read. Options are lines as
// in InputTarget, all optional: server_name (default: the host that was dialled), alpn
// (once per protocol), verify=none, ca_pem, cert_pem and key_pem.
//
//	conn_info(fd, what, buf, limit) -> len
//
// Writes a property of a connection, as input does.
//
//	deadline(fd, which, ns i64) -> 0
//
// Makes reads, writes or both fail with -ETIMEDOUT ns nanoseconds from now; 0 removes that
// deadline. The attempt's own deadline always applies.
//
//	read(fd, buf, len) -> n
//	write(fd, ptr, len) -> n
//	close(fd) -> 0
//
// Read waits for bytes and returns their number, or 0 when the peer has closed the
// connection. Write waits until all bytes are written. Both wait whatever the descriptor's
// flags are.
//
//	hold(fd, key_ptr, key_len) -> 0
//	held(key_ptr, key_len, flags) -> fd
//
// Hold hands a connection to the host, to keep for the probe's next attempt under a key of
// the plugin's choice (1 to MaxKey bytes). It closes the descriptor but not the
// connection, and closes a connection that was held under the key before. Held returns the
// connection with a new descriptor, or -ENOENT; the connection is closed at the end of the
// attempt unless it is held again. When a held connection ends, the host may start the
// probe's next attempt at once instead of at its scheduled time: the plugin notices the
// end when it uses the connection. All held connections of a probe are closed when an
// attempt traps, and when the probe is removed or changed.
//
// # Module wasi_snapshot_preview1
//
// WASI lists the functions of WASI preview 1 that work. Descriptors 1 and 2 are the log,
// with a record for each line, 0 is empty, and those of dial are sockets: datagram sockets
// for udp, stream sockets otherwise. There are no files, directories or listening sockets. The other functions of
// preview 1 can be imported and return ENOSYS. The descriptors of connections start at
// FirstFD and are never used twice in an attempt; all are closed at its end.
//
// A poll waits for several descriptors and a clock at once, and reads of descriptors with
// the NONBLOCK flag return EAGAIN: that is what Go's runtime, wasi-libc and Rust's std
// need for ordinary sockets. Writes wait until all bytes are written or a deadline passes,
// whatever the flags are. A read or a write of a connection uses the first part of its vector that is not empty,
// and returns its length; a datagram that is written has one part, or the error is ENOTSUP. A write to the log
// uses all parts, at most 1024.
package abi
