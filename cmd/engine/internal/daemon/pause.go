package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/adapter/pause"
	"github.com/sonde-probe/sonde/adapter/store"
)

// pause pauses targets for an operator, or ends that, and waits until the state file has it, or etcd for those that the
// engines of a cluster share.
func (d *daemon) pause(ctx context.Context, r httpapi.PauseRequest) (httpapi.Paused, error) {
	done := httpapi.Paused{Target: r.Target, Group: r.Group, Operation: r.Operation, At: time.Now(), By: r.By}
	p := pause.Pause{At: done.At, By: r.By, Why: r.Reason}
	if r.For > 0 {
		p.Until = done.At.Add(r.For)
	}
	done.Until = p.Until
	targets, err := []string{r.Target}, error(nil)
	if r.Group != "" {
		targets, err = d.pauseGroup(&done, p)
	} else {
		done.Targets = 1
		done.Changed, err = d.pauseTarget(r.Target, r.Operation, p)
	}
	if err != nil {
		return httpapi.Paused{}, err
	}
	storing, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	done.Unstored = d.pauses.Unsaved(storing, targets)
	done.Saved = done.Unstored == 0 && !slices.ContainsFunc(targets, d.isOwn) || d.saved(ctx)
	return done, nil
}

// isOwn reports whether a target is not shared with other engines.
func (d *daemon) isOwn(target string) bool { return !d.cluster.isShared(target) }

func (d *daemon) pauseTarget(target string, o httpapi.Operation, p pause.Pause) (changed int, err error) {
	isChanged := false
	if o == httpapi.OperationUnpause {
		isChanged, err = d.pauses.Unpause(target, p.By)
	} else {
		isChanged, err = d.pauses.Pause(target, p)
	}
	if errors.Is(err, pause.ErrNoTarget) {
		err = httpapi.ErrNoTarget
	}
	if isChanged {
		changed = 1
	}
	return changed, err
}

// pauseGroup pauses the members that a group has now, and returns them. It may name targets that do not exist.
func (d *daemon) pauseGroup(done *httpapi.Paused, p pause.Pause) (targets []string, err error) {
	g := d.groups.Get(done.Group)
	if g == nil {
		return nil, httpapi.ErrNoGroup
	}
	for m := range g.View().Members() {
		targets = append(targets, m.Target)
	}
	if done.Operation == httpapi.OperationUnpause {
		done.Targets, done.Changed = d.pauses.UnpauseAll(done.Group, targets, p.By)
	} else {
		done.Targets, done.Changed = d.pauses.PauseAll(done.Group, targets, p)
	}
	return targets, nil
}

// saved waits until the state file has what was marked, and reports whether it does.
func (d *daemon) saved(ctx context.Context) bool {
	if d.state == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	err := d.state.Flush(ctx)
	if err != nil {
		d.log.Warn("what an operator asked for is not in the state file yet, trying again", "error", err)
	}
	return err == nil
}

// restorePauses pauses the targets that operators had paused, however long ago, if there still are any.
func (d *daemon) restorePauses(state store.Restored, exists func(target string) bool) {
	value, ok := state.Values[keyPauses]
	if !ok {
		return
	}
	var orders map[string]pause.Order
	if err := json.Unmarshal(value, &orders); err != nil {
		d.log.Warn("state of paused targets discarded", "error", err)
		return
	}
	maps.DeleteFunc(orders, func(target string, _ pause.Order) bool { return !exists(target) })
	for target, o := range orders {
		o.Pause = o.Shifted(state.Shift)
		orders[target] = o
	}
	d.pauses.Restore(orders)
}

// markPauses says that targets were paused, or are no longer.
func (d *daemon) markPauses() {
	if d.state != nil {
		d.state.Mark(keyPauses)
	}
}
