package run_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/notify/run"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/notifytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestTheErrorSaysThatTheCommandWasStarved(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(3)) {
		return
	}
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", "while :; do :; done"}})
	testsync.Longer(t, "a run that was starved", time.Second, time.Minute, func(timeout time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		err := s.Send(ctx, []notify.Notice{notice()})
		return err != nil && strings.Contains(err.Error(), "killed after its timeout; for ") // other errors are about the start
	})
}
