package years

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// life is one life of the engine: everything that package daemon creates from a configuration, without signals, listeners and
// processes.
type life struct {
	story    *story
	began    time.Time
	engine   *engine.Engine
	restarts *restart.Controller
	state    *store.Store // nil without a state file
	probes   map[probe.ID]flat
	dead     chan struct{} // closed when the engine is killed
	ending   chan struct{} // closed when it is killed or stopped

	stopRestarts, stopRest context.CancelFunc
	running, restarting    sync.WaitGroup
}

// isDead reports whether the engine was killed: its later actions have no effect.
func (l *life) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// stopping reports whether the engine was stopped or killed.
func (l *life) stopping() bool {
	select {
	case <-l.ending:
		return true
	default:
		return false
	}
}

// anchorID is a probe of the story itself, in addition to those of the configuration.
var anchorID = probe.ID{Target: "anchor", Kind: probe.Readiness}

// begin starts the engine with a configuration and the state of the previous life.
func (s *story) begin() *life {
	l := &life{story: s, began: time.Now(), dead: make(chan struct{}), ending: make(chan struct{}), probes: flatten(s.specs)}
	log := slog.New(&logHandler{life: l})
	l.engine = engine.New(engine.Config{Logger: log})
	c := restart.Config{Engine: l.engine, Budget: s.budget, Logger: log}
	if s.keeps {
		c.Changed = l.mark
		var err error
		if l.state, err = store.Open(store.Config{Path: s.path(), Logger: log}); err != nil {
			s.Fatalf("story %d: %v", s.seed, err)
		}
	}
	var err error
	if l.restarts, err = restart.New(c); err != nil {
		s.Fatal(err)
	}
	parsed := l.parse()
	s.world.setStatic(s.specs)
	s.model.edit(s.specs, false)
	units := l.units(parsed)
	if err := l.restarts.Apply(units); err != nil {
		s.Fatal(err)
	}
	if err := l.resume(parsed.Set, units); err != nil {
		s.Fatal(err)
	}
	l.run()
	return l
}

// run starts all parts.
func (l *life) run() {
	restarts, stopRestarts := context.WithCancel(context.Background())
	rest, stopRest := context.WithCancel(context.Background())
	l.stopRestarts, l.stopRest = stopRestarts, stopRest
	changes := l.engine.Subscribe()
	l.restarting.Go(func() { _ = l.restarts.Run(restarts) })
	l.running.Go(func() { _ = l.engine.Run(rest) })
	l.running.Go(func() { l.story.model.watch(rest, l, changes) })
	if l.state != nil {
		l.running.Go(func() { l.state.Run(rest, l.engine, values{l.restarts}) })
	}
}

// stop stops the engine like SIGTERM.
func (l *life) stop() {
	close(l.ending)
	l.stopRestarts()
	l.restarting.Wait()
	l.stopRest()
	l.running.Wait()
}

// kill kills the engine like SIGKILL; the disk then has the result of crash.
func (l *life) kill(crash func(file []byte) []byte) {
	synctest.Wait()
	at := time.Now()
	var file []byte
	if l.state != nil {
		file = l.story.readState()
	}
	close(l.dead)
	close(l.ending)
	l.stopRestarts()
	l.stopRest()
	l.restarts.Kill()
	l.restarting.Wait()
	l.running.Wait()
	if !time.Now().Equal(at) {
		l.story.Errorf("story %d: a killed engine needed %v to end", l.story.seed, time.Since(at))
	}
	if l.state != nil {
		l.story.writeState(crash(file))
	}
	l.story.world.endChildren()
}

// parse returns the configuration, with the anchor added.
func (l *life) parse() *config.Config {
	o := config.Options{
		Handlers: map[string]config.Handler{
			"quick": config.Of(func(c script) (*quick, error) { return &quick{l, c.Kind}, nil }),
			"slow":  config.Of(func(c script) (*slow, error) { return &slow{quick: quick{l, c.Kind}}, nil }),
		},
		Drivers:        map[string]config.Driver{"runs": config.DriverOf[runs](nil, nil)},
		TargetSettings: config.SettingsOf(restart.Unit.Check),
	}
	c, diags := config.Parse([]config.Source{{Name: "story.hcl", Bytes: text(l.story.specs)}}, o)
	if diags.HasErrors() {
		l.story.Fatalf("story %d: %v\n%s", l.story.seed, diags, text(l.story.specs))
	}
	c.Set[anchorID] = probe.Probe{Handler: &anchor{l.story.world}, HandlerName: "anchor", Revision: "1", Rule: probe.Rule{Period: 10 * time.Minute}, Target: probe.Target{Address: "localhost"}}
	c.Targets[anchorID.Target] = config.Target{}
	return c
}

// units returns how each target is started and restarted, as in package daemon.
func (l *life) units(c *config.Config) map[string]restart.Unit {
	units := make(map[string]restart.Unit, len(c.Targets))
	for name, t := range c.Targets {
		u, _ := t.Settings.(restart.Unit)
		if r, ok := t.Driver.(runs); ok {
			u.Driver, u.Revision = newDriver(l, name, r), fmt.Sprint(r)
		}
		units[name] = u
	}
	return units
}

// reload applies the configuration again, as package daemon does.
func (l *life) reload() {
	c := l.parse()
	units := l.units(c)
	l.story.world.setStatic(l.story.specs)
	want := l.story.model.edit(l.story.specs, true)
	changes, err := l.engine.Change(engine.Change{Set: c.Set, All: true})
	if err == nil {
		err = l.restarts.Apply(units)
	}
	if err != nil {
		l.story.model.broken("change", "", "the reload failed: %v", err)
		return
	}
	l.probes = flatten(l.story.specs)
	if changes.Kept = 0; changes != want {
		l.story.model.broken("change", "", "the reload made the changes %+v, want %+v", changes, want)
	}
}

// resume applies the first configuration with the state of the previous engine, as package daemon does.
func (l *life) resume(set probe.Set, units map[string]restart.Unit) error {
	if l.state == nil {
		if _, err := l.engine.Apply(set); err != nil {
			return err
		}
		l.story.world.endUnwanted(units)
		l.story.model.resumed(l, nil)
		return nil
	}
	state := l.state.Restored()
	if l.story.resume == config.Forget {
		state = store.Restored{}
	}
	restored := restoredFrom(state)
	l.story.world.endUnwanted(units)
	for name, u := range units {
		d, ok := u.Driver.(outliving)
		in := l.story.world.living(name)
		if !ok || in == nil || !d.Resume(in.id) {
			continue
		}
		m := restored[name]
		if m.Instance != in.id {
			m.Started++
		}
		m.Instance, m.Since, m.Exited, m.Revision = in.id, in.born, false, u.RevisionID()
		restored[name] = m
	}
	instances := l.restarts.Restore(restored)
	memories := make(map[probe.ID]engine.Memory, len(state.Memories))
	for id, m := range state.Memories {
		if _, ok := set[id]; !ok || instances[id.Target] != m.State.Instance {
			continue
		}
		if l.story.resume == config.Verify {
			m = m.Renewed(id.Kind)
		}
		if err := m.Check(probe.Rule{Kind: id.Kind}); err != nil {
			l.story.model.broken("flap", id.Target, "the state of %v is refused: %v", id, err)
			continue
		}
		memories[id] = m
	}
	if _, err := l.engine.Change(engine.Change{Set: set, Memories: memories}); err != nil {
		return err
	}
	l.story.model.resumed(l, instances)
	return nil
}

const keyRestarts = "restarts/"

func restoredFrom(state store.Restored) map[string]restart.Memory {
	r := map[string]restart.Memory{}
	for id, m := range state.Memories {
		r[id.Target] = restart.Memory{Instance: m.State.Instance, Since: m.InstanceSince}
	}
	for key, value := range state.Values {
		if target, ok := strings.CutPrefix(key, keyRestarts); ok {
			var m restart.Memory
			_ = json.Unmarshal(value, &m)
			r[target] = m.Shifted(state.Shift)
		}
	}
	return r
}

func (l *life) mark(target string) { l.state.Mark(keyRestarts + target) }

// values are the values about restarts in the state file.
type values struct{ restarts *restart.Controller }

// Value implements store.Values.
func (v values) Value(key string) ([]byte, bool) {
	m, ok := v.restarts.Memory(strings.TrimPrefix(key, keyRestarts))
	return marshal(m), ok
}

// Values implements store.Values.
func (v values) Values() iter.Seq2[string, []byte] {
	all := map[string][]byte{}
	for _, target := range v.restarts.Remembered() {
		m, _ := v.restarts.Memory(target)
		all[keyRestarts+target] = marshal(m)
	}
	return maps.All(all)
}

func marshal(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// stall stops the engine for a time: its loop, and all attempts. The stall begins with an attempt of the anchor, which the engine
// may delay.
func (l *life) stall(d time.Duration) {
	next := &stall{lasts: d, begins: make(chan struct{})}
	l.story.world.setNextStall(next)
	l.engine.Trigger(anchorID)
	<-next.begins
	time.Sleep(d + time.Millisecond)
}

// logHandler passes the error records to the model.
type logHandler struct {
	life  *life
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError || *seed != 0 && *logs
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	text, target := r.Message, ""
	note := func(a slog.Attr) bool {
		if a.Key == "target" {
			target = a.Value.String()
		}
		text += " " + a.String()
		return true
	}
	for _, a := range h.attrs {
		note(a)
	}
	r.Attrs(note)
	l := h.life
	if l.isDead() {
		return nil
	}
	if r.Level >= slog.LevelError {
		l.story.model.logged(r.Message, target, text)
	} else {
		l.story.trace.note(target, "log", text)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.life, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
