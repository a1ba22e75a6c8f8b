// Command benchprober runs the kubelet's prober, from the Kubernetes modules, with many pods that have one readiness probe each, so
// that tests/bench can measure the cost of an attempt. The prober's dependencies are fakes that do nothing. With -serve it is a
// gRPC server that reports to be healthy.
//
// It prints its counts as JSON when all pods are added, and again for each line of its standard input. It exits at the end of its
// standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	var l load
	flag.BoolVar(&l.http, "http", false, "attempt a GET of / rather than a connection")
	flag.BoolVar(&l.tcp, "tcp", false, "attempt a connection")
	flag.BoolVar(&l.grpc, "grpc", false, "attempt a call of gRPC's health service")
	serving := flag.Bool("serve", false, "serve gRPC's health service, at a port that is printed")
	flag.IntVar(&l.pods, "pods", 2000, "how many pods, each at an address of its own, with a period of 1s")
	flag.IntVar(&l.port, "port", 9, "the `port` to probe")
	flag.Parse()
	part := func() error { return run(l) }
	if *serving {
		part = serve
	}
	if err := part(); err != nil {
		fmt.Fprintln(os.Stderr, "benchprober:", err)
		os.Exit(1)
	}
}

// load is the configuration from the flags.
type load struct {
	http, tcp, grpc bool
	pods, port      int
}

// counts are the numbers of attempts so far, and of those that did not succeed.
type counts struct{ Attempts, Failures uint64 }

func run(l load) error {
	handlers := 0
	for _, given := range []bool{l.http, l.tcp, l.grpc} {
		if given {
			handlers++
		}
	}
	if handlers != 1 {
		return errors.New("one of -http, -tcp and -grpc must be given")
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
