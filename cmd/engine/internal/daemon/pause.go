package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/adapter/pause"
	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/adapter/store"
)

// pause pauses targets for an operator, or ends that, and waits until the state file has it.
func (d *daemon) pause(ctx context.Context, r httpapi.PauseRequest) (httpapi.Paused, error) {
	targets := []string{r.Target}
	if r.Group != "" {
		g := d.groups.Get(r.Group)
		if g == nil {
			return httpapi.Paused{}, httpapi.ErrNoGroup
		}
		targets = nil
		for m := range g.View().Members() {
			targets = append(targets, m.Target)
		}
	}
	done := httpapi.Paused{Target: r.Target, Group: r.Group, Operation: r.Operation, At: time.Now(), By: r.By}
	p := pause.Pause{At: done.At, By: r.By, Why: r.Reason}
	if r.For > 0 {
		p.Until = done.At.Add(r.For)
	}
	done.Until = p.Until
	for _, target := range targets {
		changed, err := d.pauseTarget(target, r.Operation, p)
		if _, maintained := errors.AsType[*pause.MaintenanceError](err); maintained && r.Group != "" { // it is not paused
			err = nil
		}
		switch {
		case errors.Is(err, pause.ErrNoTarget) && r.Group != "": // a group may name targets that do not exist
			continue
		case errors.Is(err, pause.ErrNoTarget):
			return httpapi.Paused{}, httpapi.ErrNoTarget
		case err != nil:
			return httpapi.Paused{}, err
		}
		if done.Targets++; changed {
			done.Changed++
		}
	}
	done.Saved = d.saved(ctx)
	return done, nil
}

func (d *daemon) pauseTarget(target string, o httpapi.Operation, p pause.Pause) (changed bool, err error) {
	if o == httpapi.OperationUnpause {
		return d.pauses.Unpause(target, p.By)
	}
	return d.pauses.Pause(target, p)
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

// restorePauses pauses the targets that operators had paused, however long ago, if they still have
// units.
func (d *daemon) restorePauses(state store.Restored, units map[string]restart.Unit) {
	value, ok := state.Values[keyPauses]
	if !ok {
		return
	}
	var pauses map[string]pause.Pause
	if err := json.Unmarshal(value, &pauses); err != nil {
		d.log.Warn("state of paused targets discarded", "error", err)
		return
	}
	maps.DeleteFunc(pauses, func(target string, _ pause.Pause) bool { _, configured := units[target]; return !configured })
	for target, p := range pauses {
		pauses[target] = p.Shifted(state.Shift)
	}
	d.pauses.Restore(pauses)
}

// markPauses says that targets were paused, or are no longer.
func (d *daemon) markPauses() {
	if d.state != nil {
		d.state.Mark(keyPauses)
	}
}
