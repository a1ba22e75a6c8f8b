package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Source is the text of a configuration file. Its name decides the syntax: JSON
// when it ends in .json, else native. Relative paths in it start at its folder.
type Source struct {
	Name  string
	Bytes []byte
}

// JSON reports whether the source is in the JSON syntax.
func (s Source) JSON() bool { return strings.HasSuffix(s.Name, ".json") }

// Read reads files, and of directories every *.hcl and *.hcl.json in them, in
// the order of their names. It does not descend into further directories. What
// cannot be read is in the diagnostics, and the rest is returned.
func Read(paths []string) ([]Source, Diagnostics) {
	var r sourceReader
	for _, p := range paths {
		r.path(p)
	}
	return r.sources, r.diags
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
		r.file(path)
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
		name := e.Name()
		wanted := strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".hcl.json")
		if wanted && !e.IsDir() && !strings.HasPrefix(name, ".") {
			r.file(filepath.Join(path, name))
		}
	}
	if len(r.sources)+len(r.diags) == before {
		r.refuse(path, errors.New("the directory has no *.hcl and no *.hcl.json file"))
	}
}

func (r *sourceReader) file(path string) {
	if slices.ContainsFunc(r.sources, func(s Source) bool { return s.Name == path }) {
		return
	}
	b, err := readBounded(path)
	if err != nil {
		r.refuse(path, err)
		return
	}
	if r.total += len(b); r.total > MaxSourcesBytes {
		r.refuse(path, fmt.Errorf("all files together are longer than %d bytes", MaxSourcesBytes))
		return
	}
	r.sources = append(r.sources, Source{path, b})
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxSourceBytes+1))
	if err == nil && len(b) > MaxSourceBytes {
		err = fmt.Errorf("the file is longer than %d bytes", MaxSourceBytes)
	}
	return b, err
}

func (r *sourceReader) refuse(path string, err error) {
	var hint string
	if errors.Is(err, os.ErrNotExist) {
		hint = "name a file or a directory that exists"
		err = errors.New("there is no such file")
	}
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	r.diags = append(r.diags, Diagnostic{Summary: fmt.Sprintf("cannot read %s: %v", path, err), Hint: hint})
}
