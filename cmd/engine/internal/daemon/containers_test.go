package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/container"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// Only the containers of the engine with this state file are removed, and only when their runtime responds.
func TestContainersOfTargetsThatWereRemovedMeanwhileAreEnded(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		log := new(testsync.Buffer)
		logger := slog.New(slog.NewTextHandler(log, nil))
		p := &processes{state: filepath.Join(t.TempDir(), "state"), runtimes: new(container.Runtimes), saved: &saved{log: logger}, log: logger}
		for name, labels := range map[string]map[string]string{
			"kept":    {"sonde.engine": engineOf(p.state), "sonde.target": "kept"},
			"removed": {"sonde.engine": engineOf(p.state), "sonde.target": "removed"},
			"other":   {"sonde.engine": engineOf("other"), "sonde.target": "removed"},
			"foreign": {"sonde.engine": engineOf(p.state)},
			"plain":   nil,
		} {
			r.ContainerOf(t, name, docker.Spec{Cmd: []string{"sleep", "1000"}, Labels: labels})
		}
		kept, err := container.New(container.Config{Target: "kept", Engine: engineOf(p.state), Image: dockertest.Image, Host: r.Socket, Runtimes: p.runtimes})
		if err != nil {
			t.Fatal(err)
		}
		// The configuration has no container at the socket, but the state file names it as used by the previous engine.
		if err := p.sockets.subject().Restore(map[string][]byte{"": []byte(`["` + r.Socket + `"]`)}, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(r.Socket, r.Socket+".away"); err != nil {
			t.Fatal(err)
		}
		var ending sync.WaitGroup
		defer ending.Wait()
		ending.Go(func() {
			p.endContainers(t.Context(), func(target string) restart.Driver {
				return map[string]restart.Driver{"kept": kept}[target]
			})
		})
		testsync.Until(t, "the error in the log", func() bool {
			return strings.Contains(log.String(), "cannot remove containers of removed targets, retrying")
		})
		if err := os.Rename(r.Socket+".away", r.Socket); err != nil {
			t.Fatal(err)
		}
		ending.Wait()
		var names []string
		list, err := r.List(t.Context(), nil)
		for _, c := range list {
			names = append(names, strings.TrimPrefix(c.Names[0], "/"))
		}
		if slices.Sort(names); err != nil || strings.Join(names, " ") != "foreign kept other plain" {
			t.Errorf("containers %v, %v", names, err)
		}
		if all := p.sockets.all(); len(all) != 0 {
			t.Errorf("sockets to ask: %v", all)
		}
	})
}
