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

// File returns the name of the file with the configuration that an engine with a state file has accepted last.
func File(state string) string { return state + ".accepted" }

// Kept is the configuration that an engine has accepted last.
type Kept struct {
	Accepted time.Time     `json:"accepted"`       // when it was put into use
	MaxAge   time.Duration `json:"maxAge"`         // after which the engine's state is forgotten
	Fleet    Fleet         `json:"fleet,omitzero"` // to which a revision was pushed that is among the inputs
	Inputs   *Inputs       `json:"inputs"`
}

// maxFile bounds the file, in bytes: JSON has bytes in base64.
const maxFile = 64<<10 + 2*maxSize

// Write writes a file. After an error there is none: a start must not go on with an earlier configuration, since that may have
// what was removed after it.
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

// Read reads a file that Write has written. It returns nil if there is none. It is an error if other users can use the
// file, or could have put it there: what it says is run.
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
		return nil, fmt.Errorf("%s is damaged: %w", name, err) // also an empty one, which Write never leaves
	}
	return k, nil
}

// checkPrivate returns an error unless a file is regular, and only this user can use it and could have put it there.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: it is not a regular file", f.Name())
	}
	if err := private.Check(info); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return private.CheckParent(f.Name())
}

// Pushed returns what of the inputs was pushed, nil for nothing and for nil.
func (k *Kept) Pushed() *Inputs {
	if k == nil || k.Inputs.Revision == (revision.Ref{}) {
		return nil
	}
	return OfRevision(k.Inputs.Revision, k.Inputs.pushed())
}

// Fleet identifies a fleet by where its configuration is pushed to.
type Fleet struct {
	Endpoints []string `json:"endpoints"`
	Prefix    string   `json:"prefix"`
}

// Is reports whether two are the same fleet. The store may have got other endpoints, but not all of them at a time.
func (f Fleet) Is(other Fleet) bool {
	isCommon := func(endpoint string) bool { return slices.Contains(other.Endpoints, endpoint) }
	return f.Prefix == other.Prefix && slices.ContainsFunc(f.Endpoints, isCommon)
}
