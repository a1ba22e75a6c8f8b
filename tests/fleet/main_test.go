// Package fleet tests engines that are processes of sonde-fleet and share their targets over a real etcd. It observes
// them from outside: the probes that their targets receive, the restart commands that run, and the changes of keys in
// etcd. It is a separate Go module, since it links the client of etcd.
//
//	main_test.go     flags, and the process of a restart command
//	world_test.go    targets, and the actions of engines on them
//	etcd_test.go     the nodes of an etcd
//	observer_test.go members and owners, by the keys of etcd
//	engine_test.go   the processes of engines
//	fleet_test.go    several engines with their targets, and the laws that they must keep
//	faults_test.go   random faults
//	scenes_test.go   scenes from operation: how soon failed targets are restarted and reported
//	outage_test.go   etcd is stopped, or its leader killed
//	cut_test.go      an engine is cut off from a part of its targets
//	scale_test.go    many targets: who takes over what, how soon, and what engines need
package fleet

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
)

var (
	runs    = flag.Int("runs", 8, "runs of random faults")
	fleets  = flag.Int("fleets", 4, "fleets that have random faults at a time")
	planted = flag.Bool("planted", false, "have random faults without each of the safeguards, until a law is broken")
	targets = flag.Int("targets", 2000, "targets whose engines are killed and stopped; a multiple of 1000")
	period  = flag.Duration("period", 2*time.Second, "of the probes of these")
	steady  = flag.Duration("steady", 5*time.Second, "how long nothing changes, and engines are measured")
	quiet   = flag.Bool("quiet", false, "require that shards are taken over within a second after a lease has ended: nothing else runs here")
	first   = flag.Uint64("seed", 1, "seed of the first fleet with random faults")
)

// All tests run in their own network, and listen on fixed ports there.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == restartCommand {
		if err := restart(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == hostsCommand {
		if err := serveHosts(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "100") // tests wait for most of their time
	os.Exit(faulttest.Main(m))
}

// needRoot skips the test if it has no network of its own.
func needRoot(t *testing.T) {
	t.Helper()
	tier.Needs(t, "etcd", "nft")
	if os.Geteuid() != 0 {
		t.Skip("needs root: engines are cut off from etcd by nftables, in a network of their own")
	}
}

// The folder of the program, and the root of the repository relative to it.
const (
	programDir = "../../cmd/engine/fleet"
	top        = "../../.."
)

// build returns the path of sonde-fleet.
func build(t *testing.T) string {
	t.Helper()
	return program.BuildOf(t, "cmd/engine/fleet", ".")
}
