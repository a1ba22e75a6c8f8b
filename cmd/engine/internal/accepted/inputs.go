// Package accepted keeps what the configuration in use was read from, so that an engine that is
// started again can go on with it when the files have been changed to what a reload would reject.
//
//	inputs.go  Inputs: what a configuration is read from; records it, and reads it again
//	bundle.go  Inputs of a configuration that is pushed to the engines of a fleet
//	pushed.go  Pushed: a revision of it
//	kept.go    Kept: what outlasts the engine, in a file beside its state file
package accepted

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/internal/files"
)

// MaxSize bounds the Inputs that are kept, in bytes: the files of an engine, and those of a revision.
const MaxSize = 64<<20 + revision.MaxContent

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

	folder string          // where files below FleetFolder are; empty: Files has all of them
	size   int             // of Files
	failed map[string]bool // files that exist, and cannot be read
}

// Clone returns Inputs that may be used beside these.
func (in *Inputs) Clone() *Inputs {
	c := *in
	c.Env, c.Files, c.Regular, c.failed = maps.Clone(in.Env), maps.Clone(in.Files), maps.Clone(in.Regular), maps.Clone(in.failed)
	return &c
}

// Checksum is that of what was read.
type Checksum [sha256.Size]byte

// Checksum returns the checksum of all texts and files, and of what the environment is.
func (in *Inputs) Checksum() Checksum {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{in, slices.Sorted(maps.Keys(in.failed))}) // a hash returns no error
	return Checksum(h.Sum(nil))
}

// Paths returns the files that the texts name, sorted.
func (in *Inputs) Paths() []string {
	all := maps.Clone(in.failed)
	if all == nil {
		all = map[string]bool{}
	}
	for path := range in.Files {
		all[path] = true
	}
	for path := range in.Regular {
		all[path] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// WithoutContent returns Inputs that have only what Paths and Again need.
func (in *Inputs) WithoutContent() *Inputs {
	names := &Inputs{Env: in.Env, Files: make(map[string][]byte, len(in.Files)), Regular: in.Regular, failed: in.failed}
	for path := range in.Files {
		names.Files[path] = nil
	}
	return names
}

// Again returns what texts and the files that were read before are now.
func (in *Inputs) Again(sources, varFiles []config.Source) *Inputs {
	now := &Inputs{Sources: sources, VarFiles: varFiles, Env: in.Env}
	for path := range in.Regular {
		now.IsFile(path)
	}
	for _, paths := range []iter.Seq[string]{maps.Keys(in.Files), maps.Keys(in.failed)} {
		for path := range paths {
			_, _ = now.ReadFile(path, MaxSize) // an error is recorded
		}
	}
	return now
}

// LookupEnv is config.Options.Env.
func (in *Inputs) LookupEnv(name string) (string, bool) {
	if value, known := in.Env[name]; known {
		if value == nil {
			return "", false
		}
		return *value, true
	}
	value, ok := os.LookupEnv(name)
	if in.Env == nil {
		in.Env = map[string]*string{}
	}
	if in.Env[name] = nil; ok {
		in.Env[name] = &value
	}
	return value, ok
}

// ReadFile is config.Options.ReadFile.
func (in *Inputs) ReadFile(path string, max int64) ([]byte, error) {
	if text, known := in.Files[path]; known && text == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	} else if known {
		return text, nil
	}
	text, err := in.readRegular(path, max)
	if in.size += len(text); in.size > MaxSize || err != nil && !errors.Is(err, fs.ErrNotExist) {
		if in.failed == nil {
			in.failed = map[string]bool{}
		}
		in.failed[path] = true
		return text, err
	}
	if in.Files == nil {
		in.Files = map[string][]byte{}
	}
	in.Files[path] = text
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
		if in.Regular == nil {
			in.Regular = map[string]bool{}
		}
		in.Regular[path] = is
	}
	return is
}

// encode returns the Inputs as JSON, and a checksum of it.
func (in *Inputs) encode() (text []byte, sum string, err error) {
	if err := in.checkSize(); err != nil {
		return nil, "", err
	}
	text, err = json.Marshal(in)
	return text, checksum(text), err
}

func checksum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// checkSize returns an error if the Inputs are too large to be kept.
func (in *Inputs) checkSize() error {
	size := in.size
	for _, s := range slices.Concat(in.Sources, in.VarFiles) {
		size += len(s.Bytes)
	}
	if size > MaxSize {
		return fmt.Errorf("the configuration and the files that it names have %d bytes, at most %d are kept", size, MaxSize)
	}
	return nil
}
