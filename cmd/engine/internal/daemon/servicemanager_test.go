package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
)

func TestTheLimitOfTheServiceManagerIsThatOfThisProcess(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, test := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"60000000", own, time.Minute},
		{"60000000", "", time.Minute},
		{"60000000", "1", 0},
		{"60000000", "x", 0},
		{"", own, 0},
		{"0", own, 0},
		{"-1", own, 0},
		{"1s", own, 0},
		{"9223372036854775", own, 9223372036854775 * time.Microsecond},
		{"9223372036854776", own, 0}, // overflows a time.Duration
	} {
		if got := watchdogLimit(test.usec, test.pid); got != test.want {
			t.Errorf("WATCHDOG_USEC=%q WATCHDOG_PID=%q: %v, want %v", test.usec, test.pid, got, test.want)
		}
	}
}

// countReports runs reportAlive with a limit of one minute, and counts the reports that the service manager receives.
func countReports(t *testing.T, ctx context.Context, alive func() error) (reportsIn func(time.Duration) int64, ended <-chan struct{}) {
	t.Helper()
	own, managers := net.Pipe()
	done := make(chan struct{})
	var reports atomic.Int64
	go func() {
		buffer := make([]byte, 100)
		for {
			n, err := managers.Read(buffer)
			if errors.Is(err, io.EOF) {
				return
			}
			if got := string(buffer[:n]); err != nil || got != isAlive {
				t.Errorf("the service manager reads %q, error %v", got, err)
				return
			}
			reports.Add(1)
		}
	}()
	go func() {
		defer close(done)
		defer own.Close()
		m := serviceManager{conn: own, limit: time.Minute}
		m.reportAlive(ctx, alive)
	}()
	return func(period time.Duration) int64 {
		before := reports.Load()
		time.Sleep(period)
		synctest.Wait()
		return reports.Load() - before
	}, done
}

func TestTheServiceManagerHearsNothingWhileTheLoopHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{parts: parts{engine: engine.New(engine.Config{}), targets: &targets{}}}
		ctx, cancel := context.WithCancel(t.Context())
		reportsIn, ended := countReports(t, ctx, d.alive)
		expect := func(when string, period time.Duration, want int64) {
			t.Helper()
			if got := reportsIn(period); got != want {
				t.Errorf("%s: %d reports in %v, want %d", when, got, period, want)
			}
		}
		expect("before the engine runs", time.Hour, 0)
		running := make(chan error, 1)
		d.targets.runs.Store(true)
		go func() { running <- d.engine.Run(ctx) }()
		expect("without probes", time.Hour, 60*aliveReports)
		handler := nonblocktest.Stuck{Release: make(chan struct{})}
		if _, err := d.engine.Apply(probe.Set{{Target: "web", Kind: probe.Readiness}: {Handler: handler}}); err != nil {
			t.Fatal(err)
		}
		d.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: time.Now()})
		if got := reportsIn(time.Minute); got == 0 || got == aliveReports {
			t.Errorf("%d reports while the loop is late for %v, and then hangs", got, maxLoopDelay)
		}
		expect("while the loop hangs", time.Hour, 0)
		close(handler.Release)
		expect("when the loop is back", time.Hour, 60*aliveReports)
		cancel()
		<-ended
		<-running
	})
}
