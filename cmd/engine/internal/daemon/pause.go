package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/pause"
)

// pause pauses targets for an operator, or ends that, and waits until etcd has it, for targets that the engines of a cluster
// share, or else the state file.
func (d *daemon) pause(ctx context.Context, r api.PauseRequest) (api.Paused, error) {
	done := api.Paused{Target: r.Target, Group: r.Group, Operation: r.Operation, At: time.Now(), By: r.By}
	targets := []string{r.Target}
	if r.Group != "" {
		g := d.groups.Get(r.Group)
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
		result, err = d.pauses.Unpause(storing, r.Group, targets, r.By)
	} else {
		p := pause.Pause{At: done.At, By: r.By, Why: r.Reason}
		if r.For > 0 {
			p.Until = done.At.Add(r.For)
		}
		done.Until = p.Until
		result, err = d.pauses.Pause(storing, r.Group, targets, p)
	}
	switch {
	case errors.Is(err, pause.ErrNoTarget) && r.Group != "":
	case errors.Is(err, pause.ErrNoTarget):
		return api.Paused{}, api.ErrNoTarget
	case err != nil:
		return api.Paused{}, err
	}
	done.Targets, done.Changed, done.Local = result.Targets, result.Changed, result.Local
	done.Saved = result.Local == 0 && !slices.ContainsFunc(targets, d.isOwn) || d.saved(ctx)
	return done, nil
}

// isOwn reports whether a target is not shared with other engines.
func (d *daemon) isOwn(target string) bool { return !d.cluster.isShared(target) }

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
	var stored map[string]pause.Stored
	if err := json.Unmarshal(value, &stored); err != nil {
		d.log.Warn("state of paused targets discarded", "error", err)
		return
	}
	pauses := map[string]pause.Pause{}
	for target, p := range stored {
		if exists(target) && !p.IsEnd {
			pauses[target] = p.Shifted(state.Shift)
		}
	}
	d.pauses.Restore(pauses)
}

// markPauses says that targets were paused, or are no longer.
func (d *daemon) markPauses() {
	if d.state != nil {
		d.state.Mark(keyPauses)
	}
}
