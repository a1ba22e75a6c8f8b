package daemon

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/internal/files"
)

// keep keeps the inputs of the configuration that was put into use, for plans and, beside the state file, for the next start.
// It does not wait for a disk that hangs.
func (d *daemon) keep(p *handlers.Plugins) {
	d.inputs, p.Inputs = p.Inputs, nil
	if d.inputs == nil || d.settings.State == "" {
		return
	}
	k := accepted.Kept{Accepted: d.reloads().Accepted, MaxAge: maxStateAge(d.settings), Inputs: d.inputs}
	if d.pushed != nil {
		k.Revision, k.Fleet = d.pushed.Ref, fleetOf(d.cluster.config)
	}
	text, err := k.Encode()
	if err == nil {
		err = d.keptFile.replace(accepted.File(d.settings.State), text)
	}
	if err != nil {
		d.log.Warn("accepted configuration not kept: the next start has the one before, if any", "error", err)
	}
}

// keptFile is the file with the configuration that was accepted last, which one goroutine writes at a time.
type keptFile struct {
	write   func(name string, text []byte) error
	writing chan struct{} // of capacity 1: full while the disk has not responded
}

func newKeptFile() keptFile {
	write := func(name string, text []byte) error { return files.Replace(name, text, 0o600) }
	return keptFile{write, make(chan struct{}, 1)}
}

// replace writes the file, in the background if the disk hangs.
func (f keptFile) replace(name string, text []byte) error {
	late := time.After(diskTimeout)
	errHangs := fmt.Errorf("the disk of %s does not respond", name)
	select {
	case f.writing <- struct{}{}:
	case <-late:
		return errHangs
	}
	written := make(chan error, 1)
	go func() {
		defer func() { <-f.writing }()
		written <- f.write(name, text)
	}()
	select {
	case err := <-written:
		return err
	case <-late:
		return errHangs
	}
}
