// Package accepted keeps what the configuration in use was read from, so that an engine that is
// started again can go on with it when the files have been changed to what a reload would reject.
//
//	inputs.go  Inputs: what a configuration is read from; records it, and reads it again
//	bundle.go  Inputs of a configuration that is pushed to the engines of a fleet
//	kept.go    Kept: what outlasts the engine, in a file beside its state file
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

// maxSize bounds the Inputs that are kept, in bytes: the files of an engine, and those of a revision.
const maxSize = 64<<20 + revision.MaxContent

// Inputs is what a configuration is read from: its texts, and the environment variables and files
// that they name, among them plugins. The methods read what is not known yet, and record it: Inputs
// that were kept answer as they did before. Files that handlers read for themselves, such as
// certificates, are not among them. The zero value is empty. It must not be used concurrently.
type Inputs struct {
	Sources  []config.Source    `json:"sources"`
	VarFiles []config.Source    `json:"varFiles,omitempty"`
	Env      map[string]*string `json:"env,omitempty"`     // nil: the variable is not set
	Files    map[string][]byte  `json:"files,omitempty"`   // nil: there is no such file
	Regular  map[string]bool    `json:"regular,omitempty"` // whether there is a regular file

	Discovered map[string]discover.Elements `json:"discovered,omitempty"` // what discover blocks have found last, by name

	Revision revision.Ref `json:"revision,omitzero"` // of the configuration of a fleet that is among them; zero for none

	folder string          // where files below fleetFolder are; empty: Files has all of them
	size   int             // of Files
	failed map[string]bool // files that exist, and cannot be read
}

// Clone returns Inputs that may be used beside these, and empty ones for nil.
func (in *Inputs) Clone() *Inputs {
	if in == nil {
		return &Inputs{}
	}
	c := *in
	c.Env, c.Files, c.Regular, c.failed = maps.Clone(in.Env), maps.Clone(in.Files), maps.Clone(in.Regular), maps.Clone(in.failed)
	c.Discovered = maps.Clone(in.Discovered)
	return &c
}

// Equal reports whether two have the same texts and files, and the same environment.
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

// Paths returns the files that the texts name, sorted.
func (in *Inputs) Paths() []string {
	all := slices.Concat(slices.Collect(maps.Keys(in.Files)), slices.Collect(maps.Keys(in.Regular)), slices.Collect(maps.Keys(in.failed)))
	slices.Sort(all)
	return slices.Compact(all)
}

// Again returns what texts and the files that were read before are now.
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

// note adds a value to a map that may be nil.
func note[V any](to *map[string]V, key string, value V) {
	if *to == nil {
		*to = map[string]V{}
	}
	(*to)[key] = value
}

// LookupEnv is config.Options.Env.
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

// ReadFile is config.Options.ReadFile.
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

// onDisk returns where a file is on the disk. The error is one of a file that does not exist.
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

// IsFile is config.Options.IsFile.
func (in *Inputs) IsFile(path string) bool {
	is, known := in.Regular[path]
	if !known {
		disk, err := in.onDisk(path)
		is = err == nil && files.IsRegular(disk)
		note(&in.Regular, path, is)
	}
	return is
}

// Elements is config.Options.Discovered. What files have is read at once; other sources answer later.
func (in *Inputs) Elements(d config.Discovery) discover.Elements {
	found, known := in.Discovered[d.Name]
	if of, isFile := d.Settings.(discover.File); isFile && !known {
		if found, _ = of.Read(); found != nil { // the source of the engine reports the error
			note(&in.Discovered, d.Name, found)
		}
	}
	return found
}

// checkSize returns an error if the Inputs are too large to be kept.
func (in *Inputs) checkSize() error {
	size := in.size
	for _, s := range slices.Concat(in.Sources, in.VarFiles) {
		size += len(s.Bytes)
	}
	if size > maxSize {
		return fmt.Errorf("the configuration and the files that it names have %d bytes, at most %d are kept", size, maxSize)
	}
	return nil
}
