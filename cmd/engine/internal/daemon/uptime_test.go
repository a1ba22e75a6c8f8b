package daemon

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// The states of targets in the state file are restored, and the time since the last write counts as unknown.
func TestTheStateFileKeepsTheStatesOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := engine.New(engine.Config{})
		before.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: time.Now().Add(-3 * time.Hour)})
		time.Sleep(time.Minute)
		before.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Ended, Since: time.Now(), Managed: true, Reason: probe.ReasonBackOff})
		time.Sleep(time.Minute)
		left := store.Restored{Values: map[string][]byte{}, Written: time.Now()}
		for key, value := range (store.Subjects{(&saved{}).uptimeSubject(before.Records())}).Values() {
			left.Values[key] = value
		}
		time.Sleep(time.Hour)

		after, s := engine.New(engine.Config{}), &saved{left: left}
		(store.Subjects{s.uptimeSubject(after.Records())}).Restore(left, slog.New(slog.DiscardHandler))
		after.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Ended, Since: time.Now(), Managed: true, Reason: probe.ReasonBackOff})
		up, _ := after.Records().Uptime("web")
		var states []string
		for _, span := range up.Spans {
			state := span.State.String()
			if span.Unknown {
				state = "unknown"
			}
			states = append(states, state)
		}
		if want := []string{"unknown", "ready", "crash_looping", "unknown"}; !slices.Equal(states, want) {
			t.Errorf("got %v, want %v", states, want)
		}
	})
}
