package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/restart"
)

// operations are the operations on targets. They return once the state file contains them, so that they survive if the engine
// is killed afterwards.
type operations struct {
	restarts *restart.Controller
	pauses   *pause.Keeper
	groups   *group.Groups
	saved    *saved
	isShared func(target string) bool // with the other engines of a cluster
}

// operate stops, starts or restarts a target.
func (o *operations) operate(ctx context.Context, target string, operation api.Operation, by string) (changed, saved bool, err error) {
	switch operation {
	case api.OperationStop:
		changed, err = o.restarts.Stop(target, by)
	case api.OperationStart:
		changed, err = o.restarts.Start(target, by)
	default:
		changed, err = o.restarts.Restart(target, by)
	}
	switch {
	case errors.Is(err, restart.ErrNoTarget):
		return false, false, api.ErrNoTarget
	case err != nil:
		return false, false, err
	}
	return changed, o.saved.flush(ctx), nil
}

// pause pauses or unpauses targets for an operator. It waits until the pauses are stored: in etcd for targets that the engines
// of a cluster share, else in the state file.
func (o *operations) pause(ctx context.Context, r api.PauseRequest) (api.Paused, error) {
	done := api.Paused{Target: r.Target, Group: r.Group, Operation: r.Operation, At: time.Now(), By: r.By}
	targets := []string{r.Target}
	if r.Group != "" {
		g := o.groups.Get(r.Group)
		if g == nil {
			return api.Paused{}, api.ErrNoGroup
		}
		targets = nil
		for m := range g.View().Members() { // may name targets that do not exist
			targets = append(targets, m.Target)
		}
	}
	storing, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	result, err := pause.Result{}, error(nil)
	if r.Operation == api.OperationUnpause {
		result, err = o.pauses.Unpause(storing, r.Group, targets, r.By)
	} else {
		p := pause.Pause{At: done.At, By: r.By, Why: r.Reason}
		if r.For > 0 {
			p.Until = done.At.Add(r.For)
		}
		done.Until = p.Until
		result, err = o.pauses.Pause(storing, r.Group, targets, p)
	}
	switch {
	case errors.Is(err, pause.ErrNoTarget) && r.Group != "":
	case errors.Is(err, pause.ErrNoTarget):
		return api.Paused{}, api.ErrNoTarget
	case err != nil:
		return api.Paused{}, err
	}
	done.Targets, done.Changed, done.Local = result.Targets, result.Changed, result.Local
	isOwn := func(target string) bool { return !o.isShared(target) }
	done.Saved = result.Local == 0 && !slices.ContainsFunc(targets, isOwn) || o.saved.flush(ctx)
	return done, nil
}
