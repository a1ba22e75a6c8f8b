package daemon

import (
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/internal/files"
)

// keep keeps the inputs of the configuration that was put into use: in memory for plans, and beside the state file for the next
// start. It does not wait for the disk.
func (d *daemon) keep(p *handlers.Plugins) {
	d.inputs, p.Inputs = p.Inputs, nil
	if d.inputs == nil || d.keptFile == nil {
		return
	}
	k := accepted.Kept{Accepted: d.reloads().Accepted, MaxAge: maxStateAge(d.settings), Inputs: d.inputs}
	if d.pushed != nil {
		k.Fleet = fleetOf(d.cluster.config)
	}
	d.keptFile.replace(k)
}

// startKeeping creates the keptFile of an engine that has locked its state file. The caller must call stop at the end.
func (d *daemon) startKeeping() (stop func()) {
	if d.settings.State == "" {
		return func() {}
	}
	name := accepted.File(d.settings.State)
	d.keptFile = newKeptFile(func(k accepted.Kept) error { return k.Write(name) }, d.log)
	go func() {
		if err := files.RemoveTemporary(name); err != nil {
			d.log.Warn("temporary files of the accepted configuration not removed", "error", err)
		}
		d.keptFile.run()
	}()
	return d.keptFile.close
}

// keepTimeout is how long the program waits at exit for the configuration to be written.
const keepTimeout = 2 * time.Second

// keptFile is the file with the last accepted configuration. A goroutine writes it, since its disk may hang.
type keptFile struct {
	write  func(accepted.Kept) error
	log    *slog.Logger
	latest chan accepted.Kept // of capacity 1: the next configuration to write
	ended  chan struct{}      // closed when run returns
}

func newKeptFile(write func(accepted.Kept) error, log *slog.Logger) *keptFile {
	return &keptFile{write: write, log: log, latest: make(chan accepted.Kept, 1), ended: make(chan struct{})}
}

// replace queues a configuration for run, replacing one that is still queued. It must not be called concurrently.
func (f *keptFile) replace(k accepted.Kept) {
	select {
	case <-f.latest:
	default:
	}
	f.latest <- k
}

// run writes each queued configuration until close is called. It logs a warning if the disk hangs.
func (f *keptFile) run() {
	defer close(f.ended)
	for k := range f.latest {
		late := time.AfterFunc(diskTimeout, func() {
			f.log.Warn("accepted configuration not saved yet: the disk of the state file does not respond")
		})
		if err := f.write(k); err != nil {
			f.log.Warn("accepted configuration not saved: the next start can use only the configuration files", "error", err)
		}
		late.Stop()
	}
}

// close waits until the latest configuration is written, at most keepTimeout.
func (f *keptFile) close() {
	close(f.latest)
	select {
	case <-f.ended:
	case <-time.After(keepTimeout):
		f.log.Warn("accepted configuration not saved: the disk of the state file does not respond")
	}
}
