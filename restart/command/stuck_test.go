package command

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	run "github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// A command that was killed but hangs in the kernel may still have an effect. No other command must run at the same
// time: neither from this driver, nor from the next owner in a fleet, which waits until Run has returned or has
// reported a failure.
func TestACommandThatWasKilledIsWaitedFor(t *testing.T) {
	for name, cut := range map[string]bool{"after its timeout": false, "after the end of its context": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(testsync.Buffer)
				made, err := New(Config{Command: []string{"true"}, Timeout: time.Minute, Log: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				d := made.(*driver)
				exited, runs := make(chan struct{}), 0
				d.run = func(_ run.Plan, ctx context.Context, _, _ io.Writer) (run.End, error) {
					runs++
					<-ctx.Done()
					return run.End{Killed: true, Stuck: exited, Lost: 40 * time.Second}, nil
				}
				failures := make(chan error, 1)
				d.SetFailed(func(reason error) { failures <- reason })
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				end, ended := make(chan time.Duration, 1), make(chan restart.Exit, 1)
				go func() { ended <- d.Run(ctx, func(restart.Begun) {}, end) }()
				end <- time.Second
				time.Sleep(time.Second)
				interrupted := errors.New("the lease has ended")
				if cut {
					cancel(interrupted)
				}
				time.Sleep(time.Hour)
				end <- time.Second // has no effect
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(ended)+len(failures) > 0 || runs != 1 {
					t.Errorf("the driver has returned %d times, failed %d times, and made %d runs", len(ended), len(failures), runs)
				}
				if !strings.Contains(log.String(), "has not exited") {
					t.Errorf("it has logged %q", log)
				}
				close(exited)
				synctest.Wait()
				if !cut {
					if reason := <-failures; !strings.Contains(reason.Error(), "killed after 1m0s (timeout); for 40s of that time it could not run") {
						t.Errorf("it has failed for %v", reason)
					}
					cancel(interrupted)
				}
				if exit := <-ended; exit.Err != interrupted || runs != 1 {
					t.Errorf("after %d runs it has returned %+v", runs, exit)
				}
			})
		})
	}
}

func TestTheDefaultIsThatOfTheTag(t *testing.T) {
	f, _ := reflect.TypeFor[Config]().FieldByName("Timeout")
	if d, err := time.ParseDuration(f.Tag.Get("default")); err != nil || d != defaultTimeout {
		t.Errorf("the default is %v, but shown is %q", defaultTimeout, f.Tag.Get("default"))
	}
}
