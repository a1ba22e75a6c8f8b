package discover_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestContainersAreFoundByTheirLabels(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		start := func(name string, labels map[string]string) {
			r.ContainerOf(t, name, docker.Spec{Cmd: []string{"sleep", "1000"}, Labels: labels, ExposedPorts: map[string]struct{}{"8080/tcp": {}, "53/udp": {}}})
		}
		start("web", map[string]string{"sonde.enable": "true", "sonde.readiness.http": "/", "team": "a"})
		start("no", map[string]string{"sonde.enable": "false"})
		start("owned", map[string]string{"sonde.enable": "true", "sonde.engine": "1"})
		f := discover.NewFinder(discover.FinderConfig{})
		f.Plan(map[string]discover.Spec{"d": {Source: discover.Docker{Match: map[string]string{"sonde.enable": "true"}, Host: r.Socket}}})()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		defer func() {
			cancel()
			testsync.Receive(t, "the end", ended)
		}()
		has := func(names string) {
			t.Helper()
			testsync.Until(t, names, func() bool {
				return strings.Join(slices.Sorted(maps.Keys(f.Found()["d"])), " ") == names
			})
		}
		has("web")
		port := uint16(8080)
		if r.Name == "podman" { // which does not say so for the network of the machine
			port = 0
		}
		if e := f.Found()["d"]["web"]; e.Port != port || e.Address != "" || !maps.Equal(e.Meta, map[string]string{"sonde.enable": "true", "sonde.readiness.http": "/"}) {
			t.Errorf("web: %+v", e)
		}
		start("new", map[string]string{"sonde.enable": "true"})
		has("new web")
		start("0123456789ab", map[string]string{"sonde.enable": "true"}) // as an ID begins: it could mean another container
		testsync.Until(t, "the name that is left out", func() bool { return f.Statuses()[0].LeftOut == 1 })
		has("new web")

		// A container that has exited is one still. One that is removed is none.
		if err := r.Client.Stop(t.Context(), r.Inspect(t, "web").ID, 0); err != nil {
			t.Fatal(err)
		}
		if err := r.Remove(t.Context(), r.Inspect(t, "new").ID, true); err != nil {
			t.Fatal(err)
		}
		has("web")

		// While the runtime is away, nothing is removed.
		if err := os.Rename(r.Socket, r.Socket+".away"); err != nil {
			t.Fatal(err)
		}
		testsync.Until(t, "the error", func() bool { return strings.Contains(f.Statuses()[0].Error, "unreachable") })
		has("web")
		if err := os.Rename(r.Socket+".away", r.Socket); err != nil {
			t.Fatal(err)
		}
		testsync.Until(t, "an answer", func() bool { return !strings.Contains(f.Statuses()[0].Error, "unreachable") })
		has("web")
	})
}
