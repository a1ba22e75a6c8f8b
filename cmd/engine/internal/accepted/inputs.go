// Package accepted keeps the inputs of the configuration in use. If the files have been changed to a configuration that a
// reload would reject, a restarted engine can continue with the kept inputs.
//
//	inputs.go  Inputs: the inputs of a configuration; records them and reads them again
//	bundle.go  Inputs of a configuration that is pushed to the engines of a fleet
//	kept.go    Kept: the file beside the state file that keeps Inputs for the next start
package accepted

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/internal/files"
)

// maxSize limits the size of Inputs that are kept, in bytes: the files of an engine plus those of a revision.
const maxSize = 64<<20 + revision.MaxContent

// Inputs are all inputs of a configuration: its sources, and the environment variables and files that they name, including
// plugins. The methods read a value on first use and record it, so kept Inputs return the recorded values again. Files that
// handlers read themselves, such as certificates, are not included. The zero value is empty. It must not be used concurrently.
type Inputs struct {
	Sources  []config.Source    `json:"sources"`
	VarFiles []config.Source    `json:"varFiles,omitempty"`
	Env      map[string]*string `json:"env,omitempty"`     // nil: the variable is not set
	Files    map[string][]byte  `json:"files,omitempty"`   // nil: the file does not exist
	Regular  map[string]bool    `json:"regular,omitempty"` // whether the path is a regular file

	Discovered map[string]discover.Elements `json:"discovered,omitempty"` // the last results of discover blocks, by name

	Revision revision.Ref `json:"revision,omitzero"` // of the pushed configuration; zero for none

	folder string          // where the files below fleetFolder are; empty if Files has all of them
	size   int             // of Files
	failed map[string]bool // files that exist but cannot be read
}

// Clone returns an independent copy. For nil it returns empty Inputs.
func (in *Inputs) Clone() *Inputs {
	if in == nil {
		return &Inputs{}
	}
	c := *in
	c.Env, c.Files, c.Regular, c.failed = maps.Clone(in.Env), maps.Clone(in.Files), maps.Clone(in.Regular), maps.Clone(in.failed)
	c.Discovered = maps.Clone(in.Discovered)
	return &c
}

// Equal reports whether in and other have the same sources, files and environment.
func (in *Inputs) Equal(other *Inputs) bool {
	content := func(in *Inputs) []any {
		return []any{in.Sources, in.VarFiles, in.Env, in.Files, in.Regular, in.failed, in.Discovered}
	}
	equal := func(a, b any) bool {
		v, w := reflect.ValueOf(a), reflect.ValueOf(b)
		return v.Len() == 0 && w.Len() == 0 || reflect.DeepEqual(a, b)
	}
	return slices.EqualFunc(content(in), content(other), equal)
}

// Paths returns the files that the sources name, sorted.
func (in *Inputs) Paths() []string {
	all := slices.Concat(slices.Collect(maps.Keys(in.Files)), slices.Collect(maps.Keys(in.Regular)), slices.Collect(maps.Keys(in.failed)))
	slices.Sort(all)
	return slices.Compact(all)
}

// Again returns the Inputs with new sources, and with the current content of the files that were read before.
func (in *Inputs) Again(sources, varFiles []config.Source) *Inputs {
	now := &Inputs{Sources: sources, VarFiles: varFiles, Env: in.Env, Discovered: in.Discovered}
	for path := range in.Regular {
		now.IsFile(path)
	}
	for _, paths := range []iter.Seq[string]{maps.Keys(in.Files), maps.Keys(in.failed)} {
		for path := range paths {
			_, _ = now.ReadFile(path, maxSize) // an error is recorded
		}
	}
	return now
}

// note sets a value in a map, which may be nil.
func note[V any](to *map[string]V, key string, value V) {
	if *to == nil {
		*to = map[string]V{}
	}
	(*to)[key] = value
}

// LookupEnv implements config.Options.Env.
func (in *Inputs) LookupEnv(name string) (string, bool) {
	value, known := in.Env[name]
	if !known {
		if text, ok := os.LookupEnv(name); ok {
			value = &text
		}
		note(&in.Env, name, value)
	}
	if value == nil {
		return "", false
	}
	return *value, true
}

// ReadFile implements config.Options.ReadFile.
func (in *Inputs) ReadFile(path string, max int64) ([]byte, error) {
	if text, known := in.Files[path]; known && text == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	} else if known {
		return text, nil
	}
	text, err := in.readRegular(path, max)
	if in.size += len(text); in.size > maxSize || err != nil && !errors.Is(err, fs.ErrNotExist) {
		note(&in.failed, path, true)
	} else {
		note(&in.Files, path, text)
	}
	return text, err
}

func (in *Inputs) readRegular(path string, max int64) ([]byte, error) {
	disk, err := in.onDisk(path)
	if err != nil {
		return nil, err
	}
	return files.ReadRegular(disk, max)
}

// onDisk returns the path of a file on the disk, or an error that matches fs.ErrNotExist.
func (in *Inputs) onDisk(path string) (string, error) {
	name, isOfFleet := inFleet(path)
	switch {
	case !isOfFleet:
		return path, nil
	case in.folder == "":
		return "", &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return filepath.Join(in.folder, filepath.FromSlash(name)), nil
}

// IsFile implements config.Options.IsFile.
func (in *Inputs) IsFile(path string) bool {
	is, known := in.Regular[path]
	if !known {
		disk, err := in.onDisk(path)
		is = err == nil && files.IsRegular(disk)
		note(&in.Regular, path, is)
	}
	return is
}

// Elements implements config.Options.Discovered. It reads file sources immediately; results of other sources arrive later.
func (in *Inputs) Elements(d config.Discovery) discover.Elements {
	found, known := in.Discovered[d.Name]
	if of, isFile := d.Settings.(discover.File); isFile && !known {
		if found, _ = of.Read(); found != nil { // the engine's finder reports the error
			note(&in.Discovered, d.Name, found)
		}
	}
	return found
}

// checkSize returns an error if the Inputs are too large to keep.
func (in *Inputs) checkSize() error {
	size := in.size
	for _, s := range slices.Concat(in.Sources, in.VarFiles) {
		size += len(s.Bytes)
	}
	if size > maxSize {
		return fmt.Errorf("the configuration and its files have %d bytes: at most %d can be kept", size, maxSize)
	}
	return nil
}
