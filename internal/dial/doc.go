// Package dial resolves names, connects and makes TLS handshakes, for the built-in
// handlers and for plugins, and decides what network errors mean.
//
// It measures each phase (probe.Timings) and gives each error an outcome and a reason
// (probe.Reason). An error of the target or of the network, including a timeout, is a
// Failure. An error of this machine, such as too many open files, no free port or a wrong
// source address, is Unknown: it says nothing about the target.
//
// # Files
//
//	dial.go        Config and Dialer: where a handler connects to
//	hostname.go    which host names are valid
//	resolve.go     the addresses of a name
//	family.go      which IP addresses of a name are used
//	addresses.go   attempts at all addresses of a name
//	lookup.go      lookups by package net, and what it hides of their errors
//	nameservers.go which name servers do not answer
//	hosts.go       that package net has read the hosts file
//	resolvconf.go  that it asks the name servers of resolv.conf only
//	allow.go       which addresses an attempt of /probe may connect to; wasmhost/internal/grant has what a plugin may
//	connect.go     connections to addresses and unix sockets
//	tls.go         the tls block of a handler, and handshakes
//	validity.go    how long certificates are valid
//	wallclock.go   the times that it may be, if the clock was set
//	error.go       Classify: the outcome and reason of an error
//	keepalive.go   the keepalive block of a handler
//	trace.go       the connection in the probe.Trace of an attempt
//	network.go     the network block of a target
//	nonblock.go    the same for the attempts of package nonblock
//	socket_*.go    socket options
package dial
