package accepted

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/private"
)

// File returns the name of the file that keeps the last accepted configuration of an engine with the given state file.
func File(state string) string { return state + ".accepted" }

// Kept is the last accepted configuration of an engine.
type Kept struct {
	Accepted time.Time     `json:"accepted"`       // when it was put into use
	MaxAge   time.Duration `json:"maxAge"`         // age beyond which the engine's state is discarded
	Fleet    Fleet         `json:"fleet,omitzero"` // to which the inputs' revision was pushed
	Inputs   *Inputs       `json:"inputs"`
}

// maxFile limits the size of the file, in bytes: JSON encodes bytes in base64.
const maxFile = 64<<10 + 2*maxSize

// Write writes the file. If it fails, it removes the file: an engine must not start with an earlier configuration, which may
// contain what was removed since then.
func (k Kept) Write(name string) error {
	var text []byte
	err := k.Inputs.checkSize()
	if err == nil {
		text, err = json.Marshal(k)
	}
	if err == nil {
		err = files.Replace(name, text, 0o600)
	}
	if err == nil {
		return nil
	}
	target, linkErr := files.Target(name)
	if linkErr != nil { // Read does not follow such a link either
		return err
	}
	if removeErr := os.Remove(target); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

// Read reads a file written by Write. It returns nil if the file does not exist. It returns an error if other users can access
// the file or could have created it, since commands in it are run.
func Read(name string) (*Kept, error) {
	name, err := files.Target(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkPrivate(f); err != nil {
		return nil, err
	}
	text, err := files.ReadFrom(f, name, maxFile)
	if err != nil {
		return nil, err
	}
	k := &Kept{Inputs: &Inputs{}}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err) // this includes an empty file, which Write never leaves
	}
	return k, nil
}

// checkPrivate returns an error unless a file is regular, only this user can access it, and only this user could have created
// it.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err := private.Check(info); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return private.CheckParent(f.Name())
}

// Pushed returns the pushed part of the inputs. It returns nil if there is none or k is nil.
func (k *Kept) Pushed() *Inputs {
	if k == nil || k.Inputs.Revision == (revision.Ref{}) {
		return nil
	}
	return OfRevision(k.Inputs.Revision, k.Inputs.pushed())
}

// Fleet identifies a fleet by the store to which its configuration is pushed.
type Fleet struct {
	Endpoints []string `json:"endpoints"`
	Prefix    string   `json:"prefix"`
}

// Is reports whether f and other are the same fleet. One common endpoint is enough, since a store's endpoints may be replaced
// one by one.
func (f Fleet) Is(other Fleet) bool {
	isCommon := func(endpoint string) bool { return slices.Contains(other.Endpoints, endpoint) }
	return f.Prefix == other.Prefix && slices.ContainsFunc(f.Endpoints, isCommon)
}
