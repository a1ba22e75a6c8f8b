package command

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// A command can open the read end of its output through /proc, and read first. The engine's read must not block in that case.
func TestCommandThatReadsItsOwnOutputDoesNotBlockTheEngine(t *testing.T) {
	tier.Slow(t)
	plan := script(t, `for i in 1 2 3 4; do cat </proc/self/fd/1 >/dev/null & done; sleep 0.03; echo x; sleep 600`)
	for range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		end, err := plan.Run(ctx, new(Output), new(Output))
		cancel()
		if took := time.Since(began); err != nil && !shortage.IsFork(err) || !end.Killed || took > testsync.Timeout {
			t.Fatalf("got %+v, %v after %v", end, err, took)
		}
		if end.Stuck != nil {
			testsync.Receive(t, "the command's death", end.Stuck)
		}
	}
}

// If a descriptor of a command cannot be opened, at any step of the start, the command is not started, or it is killed and reaped.
func TestStartWithoutDescriptorsLeavesNothingBehind(t *testing.T) {
	plan := planOf(t, Command{Words: []string{"/bin/true"}})
	before := filesAfter(t, plan)
	var refused, ran int
	for number := range uint64(before + 16) {
		restore := faulttest.Descriptors(t, number)
		end, err := plan.Run(t.Context(), new(Output), new(Output))
		restore()
		switch {
		case err != nil:
			refused++
		case end.Status == 0:
			ran++
		default:
			t.Errorf("with %d descriptors: %+v", number, end)
		}
		awaitFiles(t, before)
	}
	if refused == 0 || ran == 0 {
		t.Errorf("%d refused, %d ran", refused, ran)
	}
	noChildIsLeft(t)
}

// Without descriptors, it is unknown how long a command has waited for a processor.
func TestADelayThatCannotBeReadIsReported(t *testing.T) {
	plan := script(t, `echo started; exec sleep 600`)
	for name, short := range map[string]bool{"descriptors": false, "no descriptors": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			output, ended := new(testsync.Buffer), make(chan End, 1)
			go func() {
				end, err := plan.Run(ctx, output, output)
				if err != nil {
					t.Error(err)
				}
				ended <- end
			}()
			testsync.Until(t, "the command", func() bool { return output.String() != "" })
			if short {
				faulttest.NoDescriptors(t)
			}
			cancel()
			if end := testsync.Receive(t, "the end", ended); !end.Killed || shortage.Is(end.Unmeasured) != short {
				t.Errorf("got %+v", end)
			}
		})
	}
}
