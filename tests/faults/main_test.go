//go:build linux

// Package faults checks that a fault of the prober never changes the verdict of a
// healthy target, and that real failures are still published.
//
// `sonde run` probes healthy targets by exec, http, tcp, a name and a plugin, while it is
// stopped, starved, cut off, or lacks descriptors, ports, threads, memory, disk space or
// a reader of its log. Targets are addresses of a server in another network namespace.
// `make faults` injects all faults, while HAProxy, if installed, checks the same targets
// as Sonde. The other tests drop packets on the path to one server. They run only in
// .ci/run, and need root, iproute2 and nftables.
//
//	main_test.go       flags and roles of the test's program
//	server_test.go     the server that represents all targets, and their name server
//	world_test.go      the two namespaces
//	prober_test.go     sonde with its targets
//	haproxy_test.go    HAProxy with the same targets
//	fault_test.go      the faults
//	faults_test.go     the test of the faults, and its table
//	keepalive_test.go  the four states of the peer of a kept connection
//	reset_test.go      lost resets
//	commands_test.go   kill -9 during exec attempts, and a command that forks without end
//	busy_test.go       busy loops next to exec and http
package faults

import (
	"flag"
	"os"
	"testing"

	"github.com/sonde-probe/sonde/tests/faulttest"
)

var count = flag.Int("targets", 300, "number of targets")

// roleVariable is the environment variable that makes the test's program a server.
const roleVariable = "SONDE_FAULTS_SERVER"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(roleVariable) != "" {
		os.Exit(serve())
	}
	os.Exit(faulttest.Main(m))
}
