package coord_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestAnEngineDoesNotJoinAFleetOfALaterRelease(t *testing.T) {
	tier.Slow(t)
	for value, isRefused := range map[string]bool{"1": false, "2": true, "x": true, "": true, "0": true, "-5": true} {
		synctest.Test(t, func(t *testing.T) {
			b := coordtest.NewLocal()
			put := coord.Change{Key: "layout", Value: []byte(value)}
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{put}}); err != nil {
				t.Fatal(err)
			}
			var log testsync.Buffer
			co, end := run(t, coord.Config{Name: "one", Backend: b, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			time.Sleep(time.Minute)
			if got := !co.Status().IsMember; got != isRefused {
				t.Errorf("layout %q: it is refused: %v", value, got)
			}
			if got := strings.Contains(log.String(), "of a later version of Sonde"); got != isRefused {
				t.Errorf("layout %q: the log is %s", value, log.String())
			}
			if err := coord.CheckLayout(context.Background(), b); (err != nil) != isRefused {
				t.Errorf("layout %q: the commands say %v", value, err)
			}
			end()
		})
	}
}

func TestTheFirstEngineWritesTheLayout(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		_, end := run(t, coord.Config{Name: "one", Backend: b})
		time.Sleep(time.Second)
		if e, err := b.Get(t.Context(), "layout"); err != nil || string(e.Value) != "1" {
			t.Errorf("the layout is %q, %v", e.Value, err)
		}
		end()
	})
}
