package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/internal/files"
)

// Source is the text of a configuration file. Its name decides the syntax: JSON if it
// ends in .json, otherwise native. Relative paths in the text start at its folder.
type Source struct {
	Name  string
	Bytes []byte
}

// JSON reports whether the source is in the JSON syntax.
func (s Source) JSON() bool { return strings.HasSuffix(s.Name, ".json") }

// Read reads the files in paths. For a directory it reads each *.hcl and *.hcl.json file
// in it, in the order of their names, but not its subdirectories. It returns what it
// could read, and a diagnostic for each file that it could not.
func Read(paths []string) ([]Source, Diagnostics) {
	var r sourceReader
	for _, p := range paths {
		r.path(p)
	}
	return r.sources, r.diags
}

// IsSource reports whether Read reads files with a name in a directory.
func IsSource(name string) bool {
	return (strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".hcl.json")) && !strings.HasPrefix(name, ".")
}

type sourceReader struct {
	sources []Source
	diags   Diagnostics
	total   int
}

func (r *sourceReader) path(path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		r.refuse(path, err)
	case info.IsDir():
		r.dir(path)
	default:
		r.file(path, files.Read) // may be a pipe
	}
}

func (r *sourceReader) dir(path string) {
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		r.refuse(path, err)
		return
	}
	before := len(r.sources) + len(r.diags)
	for _, e := range entries {
		if IsSource(e.Name()) && !e.IsDir() {
			r.file(filepath.Join(path, e.Name()), files.ReadRegular)
		}
	}
	if len(r.sources)+len(r.diags) == before {
		r.refuse(path, errors.New("the directory has no *.hcl or *.hcl.json file"))
	}
}

func (r *sourceReader) file(path string, read func(string, int64) ([]byte, error)) {
	if slices.ContainsFunc(r.sources, func(s Source) bool { return s.Name == path }) {
		return
	}
	b, err := read(path, MaxSourceBytes)
	if err != nil {
		r.refuse(path, err)
		return
	}
	if r.total += len(b); r.total > maxSourcesBytes {
		r.refuse(path, fmt.Errorf("all files together are longer than %d bytes", maxSourcesBytes))
		return
	}
	r.sources = append(r.sources, Source{path, b})
}

func (r *sourceReader) refuse(path string, err error) {
	var hint string
	switch {
	case errors.Is(err, os.ErrNotExist):
		hint = "name a file or a directory that exists"
		err = errors.New("no such file or directory")
	case errors.Is(err, files.ErrTooLarge):
		hint = "split it into several files"
		err = fmt.Errorf("the file is longer than %d bytes", MaxSourceBytes)
	}
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	r.diags = append(r.diags, Diagnostic{Summary: fmt.Sprintf("cannot read %s: %v", path, err), Hint: hint})
}
