// Package gateways tests outputs with real gateways, and with the libraries of real clients. It
// is a module of its own, so that these are no dependencies of the engine.
//
// The lab puts a gateway with its configuration of docs/gateways in front of three backends,
// which are processes, and `sonde run` beside it, unless the gateway has an engine inside. It
// takes backends away and brings them back under a steady load, and no request may fail. `make
// gateways` plays more, and prints how long each gateway takes from a verdict to its effect.
//
//	main_test.go      flags and roles of the test's program
//	backend_test.go   a backend
//	scene_test.go     a gateway with its backends and Sonde
//	gateways_test.go  the gateways: add a further one here
//	clients_test.go   clients of service discovery
//	load_test.go      requests at a steady rate
//	wire_test.go      what a gateway sends to backends, seen on the network
//	events_test.go    seven events, the table, and answers that are cut
//	away_test.go      Sonde is away, and knows nothing yet
//	rotation_test.go  panic, shares, drain, and a new HAProxy
//	files_test.go     nftables, keepalived, and a file of hosts
//	consul_test.go    HashiCorp's client
package gateways
