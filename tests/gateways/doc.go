// Package gateways tests outputs with real gateways, and with the libraries of real clients. It
// is a separate module, so that the engine does not depend on those libraries.
//
// The lab puts a gateway with its configuration from docs/gateways in front of three backends,
// which are processes, and runs `sonde run` next to it, unless the gateway embeds an engine. It
// removes backends and brings them back under a steady load, and no request may fail. `make
// gateways` runs more scenes, and prints how long each gateway takes from a verdict to its effect.
//
//	main_test.go      flags and roles of the test's program
//	backend_test.go   a backend
//	scene_test.go     a gateway with its backends and Sonde
//	gateways_test.go  the gateways: add new ones here
//	clients_test.go   clients of service discovery
//	load_test.go      requests at a steady rate
//	wire_test.go      the packets that a gateway sends to backends
//	events_test.go    seven events, the table, and responses that are cut off
//	away_test.go      Sonde is not running, or has no results yet
//	rotation_test.go  panic, shares, drain, and a new HAProxy
//	files_test.go     nftables, keepalived, and a hosts file
//	consul_test.go    HashiCorp's client
package gateways
