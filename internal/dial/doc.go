// Package dial resolves names, connects and makes TLS handshakes, for the built-in
// handlers and for plugins, and classifies network errors.
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
//	lookup.go      lookups by package net, and the errors that it hides
//	nameservers.go name servers that do not respond
//	hosts.go       makes package net read the hosts file
//	resolvconf.go  makes package net query only the name servers in resolv.conf
//	allow.go       which addresses an attempt for /probe may connect to; for plugins, see wasmhost/internal/grant
//	connect.go     connections to addresses and unix sockets
//	tls.go         the tls block of a handler, and handshakes
//	validity.go    how long certificates are valid
//	wallclock.go   the range of possible times after the clock was set
//	error.go       Classify: the outcome and reason of an error
//	keepalive.go   the keepalive block of a handler
//	trace.go       the connection in the probe.Trace of an attempt
//	network.go     the network block of a target
//	nonblock.go    addresses, options and results for the attempts of package nonblock
//	socket_*.go    socket options
package dial
