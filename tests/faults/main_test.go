//go:build linux

// Package faults checks that a fault of the prober never changes the verdict of a
// healthy target, and that real failures are still published.
//
// `sonde run` probes thousands of healthy targets by exec, http, tcp and a plugin,
// while it is stopped, starved, cut off, or lacks descriptors, ports, threads, memory
// or a reader of its log. Targets are addresses of a server in another network
// namespace. The tests need root, iproute2 and nftables; `make faults` runs all of them
// for longer.
//
//	main_test.go    namespaces, and the roles of the test's program
//	server_test.go  the server that is all targets, and their name server
//	world_test.go   the two namespaces, and a prober with its targets
//	fault_test.go   the faults
//	faults_test.go  the tests
package faults

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

var (
	long  = flag.Bool("long", false, "all faults, not only some")
	count = flag.Int("targets", 300, "number of targets")
)

// roleVariable is the environment variable that makes the test's program play a role.
const roleVariable = "SONDE_FAULTS_ROLE"

// TestMain runs the tests in a network and a mount namespace of their own.
func TestMain(m *testing.M) {
	flag.Parse()
	switch role := os.Getenv(roleVariable); {
	case role == "server":
		os.Exit(serve())
	case role == "tests" || os.Geteuid() != 0:
		os.Exit(m.Run())
	default:
		os.Exit(runInNamespaces())
	}
}

// runInNamespaces runs this program with its arguments again, as the tests, and
// returns its exit code.
func runInNamespaces() int {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the child handles them
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), roleVariable+"=tests")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS, // makes / private
		Pdeathsig:    syscall.SIGKILL,
	}
	if err := c.Run(); err != nil {
		if c.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "faults: namespaces:", err)
			return 1
		}
		return c.ProcessState.ExitCode()
	}
	return 0
}
