// Command benchprober runs the kubelet's prober, from the Kubernetes modules, with many
// pods that have one readiness probe each, so that tests/bench can measure the cost of an
// attempt. The prober's dependencies are fakes that do nothing.
//
// It prints its counts as JSON when all pods are added, and again for each line of its
// standard input. It ends with its standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	var l load
	flag.BoolVar(&l.http, "http", false, "attempt a GET of / rather than a connection")
	flag.BoolVar(&l.tcp, "tcp", false, "attempt a connection")
	flag.IntVar(&l.pods, "pods", 2000, "how many pods, each at an address of its own, with a period of 1s")
	flag.IntVar(&l.port, "port", 9, "the `port` to probe")
	flag.Parse()
	if err := run(l); err != nil {
		fmt.Fprintln(os.Stderr, "benchprober:", err)
		os.Exit(1)
	}
}

// load is the configuration from the flags.
type load struct {
	http, tcp  bool
	pods, port int
}

// counts are the attempts so far, and those that did not succeed.
type counts struct{ Attempts, Failures uint64 }

func run(l load) error {
	if l.http == l.tcp {
		return fmt.Errorf("one of -http and -tcp must be given")
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	k := newKubelet(ctx)
	for i := range l.pods {
		k.add(ctx, l.pod(i), l.status(i))
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(k.counts()); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := out.Encode(k.counts()); err != nil {
			return err
		}
	}
	return nil
}
