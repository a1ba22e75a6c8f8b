// Package lab runs the same test of a plugin in two ways: as a function in this process,
// and as a module in the host. It also starts the servers that plugins probe.
package lab
