package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// minSignalGrace is the minimum time that a process has to exit after its restart.PreStop (minimumGracePeriodInSeconds
// in k8s.io/kubernetes/pkg/kubelet/kuberuntime).
const minSignalGrace = 2 * time.Second

// preStop is a running restart.PreStop.
type preStop struct {
	by     time.Time // the end of the grace period, which includes the PreStop
	timer  *time.Timer
	cancel context.CancelFunc
	done   chan error // capacity 1
}

// requestEnd asks the command to exit within a grace period. It first runs the unit's PreStop, once.
func (i *instance) requestEnd(grace time.Duration) {
	hook := i.stop().PreStop
	switch {
	case i.preStop != nil:
		if by := time.Now().Add(grace); by.Before(i.preStop.by) {
			i.preStop.by = by
			i.preStop.timer.Reset(grace)
		}
		return
	case i.asked, hook == nil, grace == 0:
		i.asked = true
		i.terminate(grace)
		return
	}
	i.asked = true
	ctx, cancel := context.WithCancel(context.Background())
	p := &preStop{by: time.Now().Add(grace), timer: time.AfterFunc(grace, cancel), cancel: cancel, done: make(chan error, 1)}
	i.preStop = p
	go func() { p.done <- i.runPreStop(ctx, hook) }()
}

// preStopDone returns a channel that receives the result of the running PreStop; nil if none is running.
func (i *instance) preStopDone() <-chan error {
	if i.preStop == nil {
		return nil
	}
	return i.preStop.done
}

// afterPreStop asks the command to exit within the rest of the grace period.
func (i *instance) afterPreStop(err error) {
	if err != nil {
		i.log.Warn("pre_stop failed; the process is asked to exit anyway", "pid", i.tree.Pid, "error", err)
	}
	by := i.preStop.by
	i.preStop.timer.Stop()
	i.preStop.cancel()
	i.preStop = nil
	i.terminate(max(time.Until(by), minSignalGrace))
}

// endPreStop cancels a PreStop that is no longer needed.
func (i *instance) endPreStop() {
	if i.preStop != nil {
		i.preStop.timer.Stop()
		i.preStop.cancel()
		<-i.preStop.done
		i.preStop = nil
	}
}

var errPreStopTime = errors.New("it has not ended within the grace period")

// runPreStop runs the PreStop, until ctx is done.
func (i *instance) runPreStop(ctx context.Context, p *restart.PreStop) (err error) {
	switch {
	case p.Sleep > 0:
		select {
		case <-ctx.Done():
		case <-time.After(p.Sleep):
			return nil
		}
	case p.URL != "":
		err = p.Request(ctx)
	default:
		err = i.runPreStopCommand(ctx, p)
	}
	if ctx.Err() != nil {
		return errPreStopTime
	}
	return err
}

func (i *instance) runPreStopCommand(ctx context.Context, p *restart.PreStop) error {
	plan, err := command.Command{Words: p.Command, Env: i.driver.config.Env, Dir: i.driver.config.Dir, User: i.driver.config.User}.Plan()
	if err != nil {
		return err
	}
	output := &command.Output{Max: maxOutput, Last: true}
	end, err := plan.Run(ctx, output, output)
	if err == nil && end.Status != 0 {
		err = fmt.Errorf("%v: %s", end, command.LastLines(probe.CleanText(output.String(), maxOutput), maxPreStopText))
	}
	return err
}

// maxPreStopText is the maximum size of a command's output in an error, in bytes.
const maxPreStopText = 200
