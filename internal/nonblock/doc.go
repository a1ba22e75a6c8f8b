// Package nonblock makes attempts and watches connections on non-blocking descriptors:
// one goroutine serves any number of them.
//
// The engine makes the attempts of a Stepper on its own goroutine. A Stepper for
// connections is built from an Exchange and a Protocol. Handlers that keep connections
// between attempts share a Watcher.
//
// It works on Linux. On other systems NewSet returns errors.ErrUnsupported, a Watcher
// watches nothing, and an Exchange leaves every attempt to the handler's Probe.
//
// # Files
//
//	attempt.go         Stepper, Attempt and Spares: the contract between the engine and handlers
//	exchange.go        Exchange, Protocol and Fault
//	exchange_linux.go  connects, sends and reads without waiting
//	fallback.go        fallbackSet: addresses that need Probe
//	kept.go            Kept: a connection that attempts use in turn
//	set_linux.go       Set: an epoll set
//	socket_linux.go    system calls on sockets
//	network.go         NetworkError: why this machine cannot use a target's network
//	network_*.go       OpenIn: sockets in another network namespace
//	loss.go            Lossy: makes retransmissions a warning
//	loss_*.go          the number of retransmissions
//	watcher.go         Watcher: reports the end of connections
package nonblock
