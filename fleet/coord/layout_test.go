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
			why := " in etcd: check the prefix in the cluster block, or write 1 to the key layout"
			if value == "2" {
				why = "written by a later version of Sonde: this version supports layouts up to 1; update this program"
			}
			if got := strings.Contains(log.String(), why); got != isRefused {
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

// A later release writes its layout while an engine of this release is a member. The engine stops acting, reports why,
// and rejoins when the layout is one that it supports.
func TestAMemberStopsWhenTheLayoutIsOfALaterRelease(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		var log testsync.Buffer
		co, end := run(t, coord.Config{Name: "one", Backend: b, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Minute)
		if st := co.Status(); st.Left == 0 || st.Refusal != "" {
			t.Fatalf("at first: %+v", st)
		}
		put := func(value string) {
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "layout", Value: []byte(value)}}}); err != nil {
				t.Fatal(err)
			}
		}
		put("2")
		time.Sleep(time.Second)
		want := "unsupported layout 2 in etcd, written by a later version of Sonde: this version supports layouts up to 1; update this program"
		if st := co.Status(); st.Left != 0 || st.Refusal != want {
			t.Errorf("with the layout of a later release: %v left, refusal %q", st.Left, st.Refusal)
		}
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is %s", log.String())
		}
		put("1")
		time.Sleep(time.Minute)
		if st := co.Status(); st.Left == 0 || st.Refusal != "" || !st.IsMember {
			t.Errorf("with its own layout again: %+v", st)
		}
		end()
	})
}
