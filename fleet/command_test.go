package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// restartOnce writes its process ID, and would take ten minutes. The next one reports whether that process is still
// running.
const restartOnce = `
if first=$$(cat "$FILE"); then
	if kill -0 "$$first"; then echo both >>"$FILE"; else echo again >>"$FILE"; fi
	exit 0
fi
echo $$$$ >"$FILE"
exec sleep 600
`

// A command belongs to its act: when the engine is cut off, the command is killed before the next owner runs its own.
func TestACommandEndsWithTheLeaseOfItsEngine(t *testing.T) {
	tier.Slow(t)
	w, b, file := newWorld(), coordtest.NewLocal(), filepath.Join(t.TempDir(), "restarts")
	restarts := func() string {
		text, _ := os.ReadFile(file)
		return string(text)
	}
	targets := func() fleet.Targets {
		d, err := command.New(command.Config{Command: []string{"/bin/sh", "-c", restartOnce}, Env: map[string]string{"FILE": file}})
		if err != nil {
			t.Fatal(err)
		}
		return w.with(d)
	}
	launch := func(name string) *member {
		cut := &cutOff{Backend: b}
		return startWith(t, coord.Config{Name: name, Backend: cut, TTL: coord.MinTTL}, cut, targets())
	}
	w.infect(crippled, 0)
	one := launch("one")
	testsync.Until(t, "the first command", func() bool { return strings.HasSuffix(restarts(), "\n") })
	one.backend.isCut.Store(true)
	two := launch("two")
	testsync.Until(t, "the second command", func() bool { return strings.Count(restarts(), "\n") > 1 })
	if !strings.HasSuffix(restarts(), "\nagain\n") {
		t.Errorf("the commands have written %q", restarts())
	}
	testsync.Until(t, "the restart", func() bool {
		in, ok := two.engine.Target(crippled)
		return ok && in.Instance.Restarts == 1
	})
	if in, _ := one.engine.Target(crippled); in.Instance.Restarts != 0 {
		t.Errorf("the engine that was cut off counts %d restarts", in.Instance.Restarts)
	}
}
