package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// endings has a report and the expected result for each row of the table in the package documentation.
var endings = map[string]struct {
	report  sandbox.Report
	outcome probe.Outcome
	reason  probe.Reason
	fault   bool
}{
	"returned success or warning":                            {sandbox.Report{Value: 1, Starved: true, Late: true, Computes: true, Limit: "dials", Refused: "x"}, probe.Success, "", false},
	"returned a number that is not an outcome":               {sandbox.Report{Value: 4, Limit: "dials"}, probe.Unknown, reasonOutcome, false},
	"returned, after a destination was denied":               {sandbox.Report{Value: 3, Refused: "tcp://x:1", NoMemory: errTest}, probe.Unknown, ReasonGrant, false},
	"returned, after the engine refused it memory":           {sandbox.Report{Value: 3, NoMemory: errTest, Limit: "dials"}, probe.Unknown, probe.ReasonResources, false},
	"returned, after it reached a limit":                     {sandbox.Report{Value: 3, Late: true, Starved: true, Limit: "dials"}, probe.Unknown, ReasonLimit, false},
	"returned late, while others had the processors":         {sandbox.Report{Value: 3, Late: true, Starved: true, Computes: true}, probe.Unknown, ReasonBusy, false},
	"returned late, after it computed for most of the time":  {sandbox.Report{Value: 3, Late: true, Computes: true, Reason: "redis.loading"}, probe.Unknown, reasonTimeout, false},
	"returned, after this machine failed a call of the host": {sandbox.Report{Value: 3, Last: sandbox.HostError{Reason: probe.ReasonTCPSource, Local: true}}, probe.Unknown, probe.ReasonTCPSource, false},
	"returned a failure of a network inside the module":      {sandbox.Report{Value: 3, Apart: true, Reason: "memcached.set", Detail: "dial tcp 127.0.0.1:11211: connect: Connection refused"}, probe.Unknown, reasonNetwork, false},
	"returned unknown or failure":                            {sandbox.Report{Value: 3, Last: sandbox.HostError{Reason: probe.ReasonTCPRefused}}, probe.Failure, probe.ReasonTCPRefused, false},
	"stopped, while others had the processors":               {sandbox.Report{Ending: sandbox.Stopped, Starved: true, Computes: true}, probe.Unknown, ReasonBusy, false},
	"stopped, while this process was stalled":                {sandbox.Report{Ending: sandbox.Stopped, Stalled: true, Computes: true}, probe.Unknown, ReasonBusy, false},
	"stopped, after it computed for most of the time":        {sandbox.Report{Ending: sandbox.Stopped, Computes: true, RanAway: true}, probe.Unknown, reasonTimeout, true},
	"stopped, after it waited for most of the time":          {sandbox.Report{Ending: sandbox.Stopped, RanAway: true}, probe.Failure, reasonTimeout, true},
	"trapped, after the engine refused it memory":            {sandbox.Report{Ending: sandbox.OutOfMemory, NoMemory: errTest}, probe.Unknown, probe.ReasonResources, false},
	"trapped at a limit":                                     {sandbox.Report{Ending: sandbox.LimitReached, Limit: "fuel"}, probe.Unknown, ReasonLimit, true},
	"trapped at its memory limit":                            {sandbox.Report{Ending: sandbox.OutOfMemory}, probe.Unknown, reasonMemory, true},
	"overflowed its stack":                                   {sandbox.Report{Ending: sandbox.StackOverflow}, probe.Unknown, reasonStack, true},
	"exited":                                                 {sandbox.Report{Ending: sandbox.Exited}, probe.Unknown, reasonExit, true},
	"trapped":                                                {sandbox.Report{Ending: sandbox.Trapped, Starved: true, Stalled: true, Computes: true}, probe.Unknown, reasonTrap, true},

	"stopped, after the attempt was cancelled":  {sandbox.Report{Ending: sandbox.Stopped, Computes: true}, probe.Unknown, probe.ReasonStopped, false},
	"returned, after the attempt was cancelled": {sandbox.Report{Value: 3, Limit: "dials"}, probe.Unknown, probe.ReasonStopped, false},
}

var errTest = errors.New("as in a test")

func TestTheEndOfACallSaysWhoIsToBlame(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^//\t(.*?) *\| ([a-z ]+?)(, and fault)? *\|(?: ([a-z]+\.\w+|of that call)?.*)?$`).FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(endings) {
		t.Errorf("the table has %d rows, the test has %d", len(rows), len(endings))
	}
	for _, row := range rows {
		test, found := endings[row[1]]
		if !found {
			t.Errorf("no report for the row %q", row[1])
			continue
		}
		t.Run(row[1], func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if strings.HasSuffix(row[1], "cancelled") {
				cancel()
			}
			test.report.Waited = time.Second
			if test.report.Ending != sandbox.Returned {
				test.report.Err = errTest
			}
			got, fault := (&Plugin{loaded: new(loaded)}).resultOf(ctx, test.report)
			if got.Outcome != test.outcome || got.Reason != test.reason || fault != test.fault || got.Lost != time.Second {
				t.Errorf("got %+v, fault of the plugin: %v", got, fault)
			}
			isFault := row[2] == "fault" || row[3] != ""
			if fault != isFault || strings.Contains(row[4], ".") && row[4] != string(got.Reason) ||
				row[2] != "as returned" && row[2] != "fault" && row[2] != got.Outcome.String() {
				t.Errorf("the table says %q", row[0])
			}
			got, _ = (&Plugin{loaded: &loaded{onTrap: probe.Failure}}).resultOf(ctx, test.report)
			if row[2] == "fault" && got.Outcome != probe.Failure {
				t.Errorf("with on_trap = \"failure\" got %+v", got)
			}
		})
	}
}

// A stopped call can be starved, because calls compete for the processors, and nevertheless be to blame.
func TestACallThatRunsAwayIsBlamedAlsoWhenStarved(t *testing.T) {
	for name, test := range map[string]struct {
		report       sandbox.Report
		fewer, fault bool
	}{
		"starved":             {sandbox.Report{Starved: true}, true, false},
		"ran away":            {sandbox.Report{Starved: true, RanAway: true}, false, true},
		"ran away in a stall": {sandbox.Report{Starved: true, RanAway: true, Stalled: true}, false, false},
	} {
		test.report.Ending, test.report.Err = sandbox.Stopped, errTest
		got, fault := (&Plugin{loaded: new(loaded)}).resultOf(t.Context(), test.report)
		if more, fewer := resizing(test.report); more || fewer != test.fewer || fault != test.fault || got.Reason != ReasonBusy {
			t.Errorf("%s: more instances: %v, fewer: %v, fault: %v, got %+v", name, more, fewer, fault, got)
		}
	}
}

// Several runaway calls compete for the processors, while other calls of the plugin return. Fewer
// and fewer run at the same time, until each computes for long enough to be blamed, and their
// probes are suspended.
func TestCallsThatRunAwayTogetherAreBlamedInTheEnd(t *testing.T) {
	for _, healthy := range []int{0, 1, 100} {
		for _, bad := range []int{4, 64, 1000} {
			t.Run(fmt.Sprintf("%d beside %d", bad, healthy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { runAway(t, bad, healthy) })
			})
		}
	}
}

// runAway makes attempts that never return, in rounds of a second, until one of their probes or the
// plugin is suspended.
func runAway(t *testing.T, bad, healthy int) {
	const slots, much = 1, 10 * time.Millisecond
	p := &Plugin{loaded: new(loaded), logger: slog.New(slog.DiscardHandler)}
	p.pool = newPool(bad+healthy, func() int { return bad + healthy }, func() {}, func(*sandbox.Instance) {})
	hs, good := make([]Handler, bad), Handler{plugin: p}
	for n := range hs {
		hs[n].plugin = p
	}
	next := 0
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond) // so that nothing waits
		together := 0
		for ; together < bad; together++ {
			i, _, err := p.pool.get(ctx, laneFast)
			if err != nil {
				break
			}
			if i == nil {
				p.pool.started()
			}
		}
		cancel()
		time.Sleep(time.Second)
		for range together {
			computed := time.Second * slots / time.Duration(together)
			r := sandbox.Report{Ending: sandbox.Stopped, Err: errors.New("stopped"), Starved: together > 1, RanAway: computed > much}
			_, fault := p.resultOf(t.Context(), r)
			hs[next%bad].record(r, fault, "bad")
			next++
			p.pool.put(new(sandbox.Instance))
		}
		for range healthy {
			good.record(sandbox.Report{Ending: sandbox.Returned, Value: 1}, false, "good")
		}
		if _, plugin, probes := p.breaker.suspensions(time.Now()); plugin+probes > 0 {
			return
		}
	}
	t.Error("neither a probe nor the plugin is suspended")
}
