package httpgateway

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/files"
)

const (
	maxFile       = 64 << 20    // bytes of a file that is compared before it is replaced
	writeInterval = time.Second // between attempts to write files
)

// directory is where a server keeps an answer about each group in a file.
type directory struct {
	file  func(group string) string // its path
	about func(groups ...int) query
}

// write keeps the files up to date until ctx is done.
func (d *directory) write(ctx context.Context, s *server) {
	written := make([]string, len(s.session.Groups)) // versions of the files
	for ctx.Err() == nil {
		views := s.session.Views()
		if d.writeChanged(s, written) {
			group.AwaitReplaced(ctx, views)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(writeInterval):
		}
	}
}

// writeChanged writes the files of groups whose answers have another version than the one that
// was written, and reports whether all were written.
func (d *directory) writeChanged(s *server, written []string) (all bool) {
	all = true
	for i, g := range s.session.Groups {
		a, release, err := s.answer(d.about(i))
		if errors.Is(err, errUndecided) {
			continue
		}
		name := d.file(g.View().Group)
		results := map[string]error{"file " + name: err}
		if err == nil {
			if a.version == written[i] {
				s.session.Cured("file " + name) // of an answer that could not be made meanwhile
				release()
				continue
			}
			maps.Copy(results, a.problems)
			if err = replace(name, a.text); err != nil {
				results["file "+name] = err
			} else {
				written[i] = a.version
			}
			release()
		}
		all = all && err == nil
		s.session.Report(results)
	}
	return all
}

// replace replaces a file, if it has another text.
func replace(name string, text []byte) error {
	before, err := files.ReadRegular(name, maxFile)
	if err == nil && bytes.Equal(before, text) {
		return nil
	}
	return files.Replace(name, text, 0o644)
}
