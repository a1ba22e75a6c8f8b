package years

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// runs is the block of a target that says how it is started.
type runs struct {
	How      how `hcl:"how"`
	Revision int `hcl:"revision"`
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *how) UnmarshalText(b []byte) error {
	*h = how(b)
	return nil
}

// driver starts and ends the instances of a target during one life of the engine.
type driver struct {
	life *life
	runs
	target *target
	resume string // the ID of the instance to resume
}

// outliving is a driver whose instances outlive the engine.
type outliving struct{ *driver }

// Outlives implements restart.Outliving.
func (outliving) Outlives() bool { return true }

// SetStop implements restart.Outliving.
func (outliving) SetStop(restart.StopSettings) {}

// outside is a driver whose instances run outside the engine.
type outside struct{ *driver }

// SetFailed implements restart.External.
func (outside) SetFailed(func(error)) {}

// newDriver returns the driver of a target.
func newDriver(l *life, name string, c runs) restart.Driver {
	w := l.story.world
	w.mu.Lock()
	defer w.mu.Unlock()
	d := &driver{life: l, runs: c, target: w.known(name)}
	switch c.How {
	case adopted:
		return outliving{d}
	case external:
		return outside{d}
	}
	return d
}

// Resume implements restart.Resumer.
func (d *driver) Resume(id string) bool {
	w := d.life.story.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.How == external {
		d.resume = id
		return true
	}
	in := d.target.instance
	return d.How == adopted && in != nil && in.id == id && in.how == adopted && in.revision == d.Revision
}

// Run implements restart.Driver.
func (d *driver) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	in, err := d.begin()
	if err != nil {
		return restart.Exit{Code: -1, Err: err}
	}
	began(restart.Begun{ID: in.id})
	if d.How == external {
		return d.runOutside(ctx, in, end)
	}
	var kill <-chan time.Time
	for {
		select {
		case <-d.life.dead:
			return restart.Exit{Code: -1, Err: errors.New("the engine was killed")}
		case <-in.ended:
			return restart.Exit{Code: in.code}
		case <-kill:
			d.target.end(in, 143)
		case grace := <-end:
			d.life.story.model.ends(d, in)
			kill = time.After(min(grace, time.Duration(d.target.noise(0, in.born)*float64(20*time.Second))))
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), restart.ErrReleased) {
				return restart.Exit{Code: -1, Err: restart.ErrReleased}
			}
			if !d.life.isDead() {
				d.target.end(in, 137)
			}
			return restart.Exit{Code: 137}
		}
	}
}

// runOutside restarts the target by a command, which may fail.
func (d *driver) runOutside(ctx context.Context, in *instance, end <-chan time.Duration) restart.Exit {
	for {
		select {
		case <-ctx.Done():
			return restart.Exit{}
		case <-d.life.dead:
			return restart.Exit{}
		case <-end:
		}
		d.life.story.model.ends(d, in)
		select {
		case <-time.After(time.Duration(d.target.noise(1, in.born) * float64(5*time.Second))):
		case <-ctx.Done():
			return restart.Exit{}
		}
		if d.target.noise(2, time.Now()) < 0.8 {
			d.target.end(in, 0)
			return restart.Exit{}
		}
		select {
		case <-end: // it arrived while the command ran
		default:
		}
	}
}

// begin starts an instance, or resumes one.
func (d *driver) begin() (*instance, error) {
	w, t := d.life.story.world, d.target
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.life.isDead() {
		return nil, errors.New("the engine was killed")
	}
	in := t.instance
	switch {
	case in != nil && d.How == adopted && in.how == adopted && in.revision == d.Revision:
		return in, nil
	case in != nil && d.How == external && in.id == d.resume:
		d.resume = ""
		return in, nil
	case in != nil && d.How == external: // it is already running, as another instance for the engine
		t.finish(in, 0)
	case in != nil && in.how == adopted:
		t.finish(in, 137) // an instance left by an earlier engine
	case in != nil:
		w.story.model.broken("once", t.name, "an instance is started while %s runs", in.id)
	}
	if d.How != external && t.random.chance(0.03) && !w.calm {
		t.starts++
		return nil, errors.New("scripted: cannot be started")
	}
	return t.start(d.runs), nil
}

// start starts an instance. The caller must hold world.mu.
func (t *target) start(c runs) *instance {
	now, r := time.Now(), t.random
	t.starts++
	in := &instance{id: fmt.Sprintf("%s-%d", t.name, t.starts), how: c.How, revision: c.Revision, born: now, ended: make(chan struct{})}
	in.readyAt = now.Add(r.about(choose(r, time.Second, 10*time.Second, 2*time.Minute)))
	if r.chance(0.25) {
		in.sickAt = now.Add(r.about(12 * time.Hour))
	}
	if in.how != external && r.chance(0.15) {
		in.exitsAt, in.code = now.Add(r.about(choose(r, time.Second, time.Hour, 24*time.Hour))), r.IntN(2)
	}
	t.instance = in
	t.world.story.trace.add(t.name, "started", in.id, 0)
	if !in.exitsAt.IsZero() {
		t.world.story.exits.Go(func() { t.exitLater(in) })
	}
	return in
}

// exitLater ends an instance at the time when it exits by itself.
func (t *target) exitLater(in *instance) {
	timer := time.NewTimer(time.Until(in.exitsAt))
	defer timer.Stop()
	select {
	case <-timer.C:
		t.end(in, in.code)
	case <-in.ended:
	case <-t.world.story.over:
	}
}

// end ends an instance if it is running.
func (t *target) end(in *instance, code int) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	t.finish(in, code)
}

// finish is end for callers that hold world.mu.
func (t *target) finish(in *instance, code int) {
	if t.instance != in {
		return
	}
	t.instance, in.code = nil, code
	close(in.ended)
	t.world.story.trace.add(t.name, "ended", in.id, int64(code))
}

var _ restart.Outliving = outliving{}
var _ restart.External = outside{}
var _ restart.Resumer = outside{}
var _ probe.EndpointHandler = (*quick)(nil)
var _ probe.StatefulHandler = (*slow)(nil)
