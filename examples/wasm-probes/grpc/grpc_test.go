package main

import (
	"fmt"
	"testing"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
)

func TestARealServer(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		client, peer := lab.FreePort(t), lab.FreePort(t)
		at, between := "http://127.0.0.1:"+client, "http://127.0.0.1:"+peer
		etcd := lab.Start(t, &lab.Server{Name: "etcd", Dir: t.TempDir(), Args: []string{
			"--data-dir", "data", "--listen-client-urls", at, "--advertise-client-urls", at,
			"--listen-peer-urls", between, "--initial-advertise-peer-urls", between,
			"--initial-cluster", "default=" + between,
		}})
		etcd.Turns(t, way.Must(t, fmt.Sprintf(`{"port": %q}`, client)))
	})
}
