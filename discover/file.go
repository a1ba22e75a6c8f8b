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

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (f File) Check() error {
	if len(f.Files) == 0 {
		return probe.FieldErrorf("files", "must not be empty")
	}
	for _, pattern := range f.Files {
		switch _, err := filepath.Match(pattern, ""); {
		case err != nil:
			return probe.FieldErrorf("files", "has %q, which is no pattern: %v", pattern, err)
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

// filePeriod is how often the files are looked at, as those of a configuration are.
const filePeriod = time.Second

// groupFile is a file as it was read last.
type groupFile struct {
	info     os.FileInfo
	elements Elements // of the last time that it could be read
	err      error
}

// Read reads the files once. The error is that of an answer.
func (f File) Read() (Elements, error) {
	read, _ := f.read(nil)
	return merged(read)
}

// Run implements Source. It looks at the files each second, and reads those that have changed. The first answer comes at once.
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

// read returns the files as they are, and whether one is not as before.
func (f File) read(before map[string]groupFile) (now map[string]groupFile, changed bool) {
	now = map[string]groupFile{}
	for _, pattern := range f.Files {
		names, _ := filepath.Glob(pattern) // Check has parsed it
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

// isAs reports whether nothing has changed about the file.
func (g groupFile) isAs(info os.FileInfo, err error) bool {
	if err != nil || g.info == nil {
		return err != nil && g.info == nil
	}
	return files.IsSame(info, g.info)
}

// again returns the file as it is now, with the elements of before if it cannot be read.
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

// merged returns the elements of all files, and the errors.
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
