package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
)

// File finds elements in files.
type File struct {
	Files []string `hcl:"files" doc:"files in the format of Prometheus' file_sd_config, with the endings .json, .yml or .yaml; * and ? are wildcards in the last part of a path. A change is found within a second or two. A file that cannot be read leaves its elements as they were"`
}

// Check validates the configuration. It returns a *probe.FieldError, or nil.
func (f File) Check() error {
	if len(f.Files) == 0 {
		return probe.FieldErrorf("files", "must not be empty")
	}
	for _, pattern := range f.Files {
		switch _, err := filepath.Match(pattern, ""); {
		case err != nil:
			return probe.FieldErrorf("files", "has %q, which is not a valid pattern: %v", pattern, err)
		case !isGroupFile(pattern):
			return probe.FieldErrorf("files", "has %q, which must end in .json, .yml or .yaml", pattern)
		case strings.ContainsAny(filepath.Dir(pattern), "*?["):
			return probe.FieldErrorf("files", "has %q, with a wildcard in a directory: only the last part of a path may have one", pattern)
		}
	}
	return nil
}

func isGroupFile(name string) bool {
	return slices.Contains([]string{".json", ".yml", ".yaml"}, filepath.Ext(name))
}

// filePeriod is the interval at which files are checked, the same as for files of a configuration.
const filePeriod = time.Second

// groupFile is the state of a file when it was last read.
type groupFile struct {
	info     os.FileInfo
	elements Elements // from the last successful read
	err      error
}

// Read reads the files once. Its error is of the kind passed to the found function of Source.Run.
func (f File) Read() (Elements, error) {
	read, _ := f.read(nil)
	return merged(read)
}

// Run implements Source. It checks the files each second, and reads those that have changed. It
// reports the first result immediately.
func (f File) Run(ctx context.Context, found func(Elements, error)) {
	read, isFirst := map[string]groupFile{}, true
	repeat(ctx, func() time.Duration {
		now, changed := f.read(read)
		if read = now; changed || isFirst {
			found(merged(read))
		}
		isFirst = false
		return filePeriod
	})
}

// read returns the current state of the files, and whether any file has changed.
func (f File) read(before map[string]groupFile) (now map[string]groupFile, changed bool) {
	now = map[string]groupFile{}
	for _, pattern := range f.Files {
		names, _ := filepath.Glob(pattern) // Check has validated the pattern
		if len(names) == 0 && !strings.ContainsAny(pattern, "*?[") {
			names = []string{pattern}
		}
		for _, name := range names {
			was, isKnown := before[name]
			info, err := os.Stat(name)
			if isKnown && was.isAs(info, err) {
				now[name] = was
				continue
			}
			changed = true
			now[name] = was.again(name, info, err)
		}
	}
	return now, changed || len(now) != len(before)
}

// isAs reports whether the file is unchanged.
func (g groupFile) isAs(info os.FileInfo, err error) bool {
	if err != nil || g.info == nil {
		return err != nil && g.info == nil
	}
	return files.IsSame(info, g.info)
}

// again returns the file with its current content. If it cannot be read, the elements stay
// those of the last successful read.
func (g groupFile) again(name string, info os.FileInfo, err error) groupFile {
	now := groupFile{info: info, elements: g.elements, err: err}
	if err != nil {
		now.info = nil
		return now
	}
	text, err := files.ReadRegular(name, maxAnswer)
	if err == nil {
		var all Elements
		if all, err = parseGroups(text, filepath.Ext(name) != ".json"); all != nil {
			now.elements = all
		}
	}
	if err != nil {
		now.err = fmt.Errorf("%s: %w", name, err)
	}
	return now
}

// merged returns the elements of all files, and their errors.
func merged(read map[string]groupFile) (all Elements, err error) {
	all = Elements{}
	left, errs := &LeftOutError{}, []error(nil)
	for _, name := range slices.Sorted(maps.Keys(read)) {
		one := read[name]
		maps.Copy(all, one.elements)
		if some, ok := errors.AsType[*LeftOutError](one.err); ok {
			left.N, left.First = left.N+some.N, cmp.Or(left.First, name+": "+some.First)
		} else if one.err != nil {
			errs = append(errs, one.err)
		}
	}
	if len(errs) == 0 && left.N > 0 {
		return all, left
	}
	return all, errors.Join(errs...)
}
