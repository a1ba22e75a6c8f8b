// Package wasmhost makes handlers from WebAssembly modules: a plugin is one file,
// in whatever language, that follows package abi.
//
// Load checks a module and compiles it in the background; Plugin.New makes a
// handler for one set of settings. All handlers of a plugin share its instances,
// of which there is a bounded number. An attempt takes one, runs it and gives it
// back; when all are busy, attempts wait in the order in which they came, for half of
// their time at most: an attempt that got its instance too late would blame the target.
//
// # What a plugin can do
//
// It can do nothing but compute until it is granted more. By default it may
// connect to the probe's own target and to nothing else. It sees no files, no
// environment, no names and no other plugin, and its memory, time, traffic, log and
// calls of the host are bounded: see Grant and Limits. The host makes its
// connections and its TLS handshakes, and looks names up.
//
// A connection that it holds between two attempts is watched: when it ends, its probe is
// woken and need not wait for its turn (Handler.ProbeWaking). One goroutine watches all
// of a plugin's, of which there are at most Limits.Held.
//
// # What becomes of its faults
//
// What the plugin does wrong is never held against the target: a trap, an exit, a
// limit or a grant that stood in the way make the attempt Unknown, with a reason
// that begins with "plugin.". Lateness is a Failure, as it is for other handlers.
// An instance whose call did not return is thrown away. A plugin that does nothing
// else is suspended for a while.
//
// # A hole
//
// A call that goes on abi.Grace after its deadline is stopped where it next begins
// a loop or calls the host. Code that does neither is not stopped before it ends by
// itself: functions that call themselves often without being deep, say, as the
// plainest computation of Fibonacci numbers does. Such code takes a processor as
// long as it likes, and the Go garbage collector waits for it, and everything else
// for the collector. Only run modules from people who would not do that, until
// calls are metered.
//
// Code that calls itself without end is stopped when its stack is full. That takes
// about a tenth of a second and 150 MB for each call that does it. A plugin has few
// instances until its calls return, and again after such a call, and one that does
// little else is suspended; but one that means harm can do it in all instances at
// once. Limits.Instances bounds that.
package wasmhost
