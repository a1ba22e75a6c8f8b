package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/boot"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/restart/container"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/restart/systemd"
)

// processes creates the drivers of targets. It holds the directory of the processes that outlive the engine, the processes that
// the previous engine left running, and the state of the outputs of all processes.
type processes struct {
	state     string // the state file of the engine block; empty for none
	runtimes  *container.Runtimes
	buses     systemd.Buses
	saved     *saved
	log       *slog.Logger
	sensitive func(values []string) // adds values to redact in outputs

	dir       *process.Directory       // of processes that outlive the engine; nil for none
	survivors process.Survivors        // left running by the previous engine
	sockets   sockets                  // of the container runtimes in use
	outputs   process.Outputs          // state of the processes' outputs
	located   atomic.Pointer[location] // of dir, for the state file
}

// openDir opens the directory of processes if it exists. before is its former path: see process.OpenDirectory.
func (p *processes) openDir(before string) (err error) {
	if p.dir, err = process.OpenDirectory(handlers.ProcessDir(p.state), before, false); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// takeOver finds the processes that the previous engine left running. The state file must be open.
func (p *processes) takeOver() error {
	if p.dir == nil {
		if err := p.openDir(p.directoryBefore()); err != nil {
			return err
		}
	}
	p.markLocation()
	p.survivors = p.dir.Survivors()
	return nil
}

// location is the entry about the directory of processes in the state file. It detects that the state file was moved on its
// own.
type location struct {
	Directory string `json:"directory"`
	State     string `json:"state"` // the file's absolute path
	Boot      string `json:"boot"`
}

// subject stores the location in the state file.
func (p *processes) subject() store.Subject {
	return store.Subject{Prefix: keyProcesses, Lasting: true, Value: func(string) (any, bool) {
		l := p.located.Load()
		return l, l != nil
	}}
}

// directoryBefore returns the directory of processes that the state file names. It returns "" if the state file is a copy,
// since the processes then belong to the original.
func (p *processes) directoryBefore() string {
	var l location
	if json.Unmarshal(p.saved.left.Values[keyProcesses], &l) != nil || l.Directory == "" {
		return ""
	}
	now, err := boot.ID()
	if err != nil || l.Boot != now {
		return ""
	}
	other, err := os.Stat(l.State)
	if errors.Is(err, fs.ErrNotExist) {
		return l.Directory
	}
	own, ownErr := os.Stat(p.saved.path)
	if err != nil || ownErr != nil || !os.SameFile(own, other) {
		return ""
	}
	return l.Directory
}

// markLocation records the location of a new directory of processes.
func (p *processes) markLocation() {
	if p.dir == nil {
		return
	}
	id, err := boot.ID()
	if err != nil {
		p.log.Warn("directory of processes not saved in the state file", "error", err)
		return
	}
	p.located.Store(&location{Directory: p.dir.Path(), State: p.saved.path, Boot: id})
	p.saved.mark(keyProcesses, false)
}

// makeDir creates the directory of processes that outlive the engine, if there is none.
func (p *processes) makeDir() (err error) {
	if p.dir != nil {
		return nil
	}
	if p.dir, err = process.OpenDirectory(handlers.ProcessDir(p.state), "", true); err != nil {
		return err
	}
	p.markLocation()
	return nil
}

// closeDir releases the directory of processes for the next engine, and removes it if it is empty.
func (p *processes) closeDir() {
	p.dir.Close()
	p.dir = nil
}

// removeDir removes a directory that was created for a configuration that was not put into use.
func (p *processes) removeDir() {
	if p.dir != nil {
		p.closeDir()
		p.located.Store(nil)
		p.saved.mark(keyProcesses, false)
	}
}

// units returns the unit of each target, which defines how it is started and restarted. It starts nothing, and creates nothing
// for a configuration that is only described.
func (p *processes) units(c *config.Config) (map[string]restart.Unit, error) {
	units := make(map[string]restart.Unit, len(c.Targets))
	for name, t := range c.Targets {
		u, err := p.unit(name, t, c.Described)
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", name, err)
		}
		units[name] = u
	}
	if !c.Described && p.sockets.use(units) {
		p.saved.mark(keySockets, true)
	}
	return units, nil
}

func (p *processes) unit(name string, t config.Target, isDescribed bool) (restart.Unit, error) {
	unit, _ := t.Settings.(restart.Unit)
	unit.StartAfter = t.StartAfter
	driver, err := p.driver(name, t, isDescribed)
	if err != nil || driver == nil {
		return unit, err
	}
	unit.Driver = driver
	unit.Revision, err = driverRevision(t)
	return unit, err
}

// driver returns the driver that starts and ends the instances of a target, or nil for a target that the engine only probes.
func (p *processes) driver(name string, t config.Target, isDescribed bool) (restart.Driver, error) {
	switch c := t.Driver.(type) {
	case process.Config:
		if c.Adopt && !isDescribed {
			if err := p.makeDir(); err != nil {
				return nil, err
			}
		}
		c.Target, c.Logger, c.Outputs, c.AdoptDir = name, p.log, &p.outputs, p.dir.Path()
		c.Sensitive = p.sensitive
		if isDescribed {
			c.Outputs, c.AdoptDir = nil, cmp.Or(c.AdoptDir, handlers.ProcessDir(p.state))
		}
		c.Survivor, _ = p.survivors.Of(name)
		return process.New(c)
	case container.Config:
		c.Runtimes, c.Engine, c.Logger = p.runtimes, engineOf(p.state), p.log
		return container.New(c)
	case systemd.Config:
		c.Target, c.Buses, c.Logger = name, &p.buses, p.log
		return systemd.New(c)
	case command.Config:
		c.Target, c.Log = name, p.log
		return command.New(c)
	}
	return nil, nil
}

// engineOf identifies an engine on this machine by its state file.
func engineOf(state string) string {
	path, err := filepath.Abs(state)
	if err != nil {
		path = state
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8])
}

// show returns the process of a target for the API. driver may be nil.
func (p *processes) show(target string, driver restart.Driver) (shown api.Process, isProcess bool) {
	shown.DroppedLines, isProcess = p.outputs.Dropped(target)
	shown.StatusText = p.outputs.Status(target)
	if err := p.outputs.LogError(target); err != nil {
		shown.LogError = err.Error()
	}
	if driver, ok := driver.(*process.Driver); ok {
		shown.Nice, shown.Rlimits = driver.Attributes()
	}
	return shown, isProcess
}

// addSurvivors adds the processes that outlived the previous engine to its restored memories, which may be older than the
// processes.
func (p *processes) addSurvivors(restored map[string]restart.Memory, units map[string]restart.Unit) {
	for target, u := range units {
		s, survived := p.survivors.Of(target)
		driver, isProcess := u.Driver.(*process.Driver)
		if !survived || !isProcess {
			continue
		}
		if s.Err != nil {
			p.log.Warn("description of a process not read, retrying", "target", target, "error", s.Err)
		}
		m := restored[target]
		m.Exited = false // so that no restart policy keeps the driver from ending it
		if driver.Resume(s.ID) {
			if m.Instance != s.ID {
				m.Started++
			}
			m.Instance, m.Since, m.Revision = s.ID, s.Started, u.RevisionID()
		}
		restored[target] = m
	}
}

// endPause is the time until the second attempt to end a process that outlived its target. It doubles after each attempt, up to
// maxEndPause.
const (
	endPause    = 2 * time.Second
	maxEndPause = time.Minute
)

// endSurvivors ends the processes of targets that are no longer processes, according to the current drivers. It returns when
// they have exited or ctx is done.
func (p *processes) endSurvivors(ctx context.Context, driverOf func(target string) restart.Driver) {
	isProcess := func(target string) bool {
		_, ok := driverOf(target).(*process.Driver)
		return ok
	}
	var ending sync.WaitGroup
	for _, s := range p.survivors {
		if s.Err != nil || !isProcess(s.Target) {
			ending.Go(func() { p.endSurvivor(ctx, s, isProcess) })
		}
	}
	ending.Wait()
}

func (p *processes) endSurvivor(ctx context.Context, s process.Survivor, isProcess func(target string) bool) {
	repeat(ctx, func(pause time.Duration) (isDone bool) {
		err := s.End(ctx, p.dir.Path(), p.log, isProcess)
		if err == nil || ctx.Err() != nil {
			return true
		}
		message := "cannot end the process of a removed target, retrying"
		if s.Target == "" {
			message = "description of a process not read, retrying"
		}
		p.log.Warn(message, "target", s.Target, "error", err, "retry_in", pause)
		return false
	})
}

// repeat calls try until it reports that it is done, or ctx is done. It passes try the pause until the next call.
func repeat(ctx context.Context, try func(pause time.Duration) (isDone bool)) {
	for pause := endPause; !try(pause); pause = min(2*pause, maxEndPause) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
