package accepted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/private"
)

// Pushed is a revision of the configuration of a fleet. The methods of nil return what an engine has before
// the first push. It must not be changed.
type Pushed struct {
	Ref    revision.Ref
	Bundle *revision.Bundle
}

// Number returns the number of the revision, 0 for none.
func (p *Pushed) Number() int64 {
	if p == nil {
		return 0
	}
	return p.Ref.Number
}

// Inputs returns Inputs that have the files of the revision.
func (p *Pushed) Inputs() *Inputs {
	if p == nil {
		return &Inputs{}
	}
	return OfBundle(p.Bundle)
}

// Sources returns the texts of an engine, and those of the revision.
func (p *Pushed) Sources(own []config.Source) []config.Source {
	if p == nil {
		return own
	}
	return append(own[:len(own):len(own)], OfBundle(p.Bundle).Sources...)
}

// PushedFile returns the name of the file in which the latest revision is kept that an engine with a state
// file has used.
func PushedFile(state string) string { return state + ".revision" }

// Fleet identifies a fleet by where its configuration is pushed to.
type Fleet struct {
	Endpoints []string `json:"endpoints"`
	Prefix    string   `json:"prefix"`
}

// is reports whether two are the same fleet. The store may have got other endpoints, but not all of them at a time.
func (f Fleet) is(other Fleet) bool {
	isCommon := func(endpoint string) bool { return slices.Contains(other.Endpoints, endpoint) }
	return f.Prefix == other.Prefix && slices.ContainsFunc(f.Endpoints, isCommon)
}

// pushedHeader is the first line of the file.
type pushedHeader struct {
	revision.Ref
	Fleet
}

// maxHeaderLine bounds it.
const maxHeaderLine = 64 << 10

// ReadPushed returns the revision that WritePushed has written to a file for a fleet, or nil if there is no such file. It is an
// error if it is of another fleet, or if other users can use the file, or could have put it there: what it says is run.
func ReadPushed(name string, of Fleet) (*Pushed, error) {
	text, err := readPrivate(name, revision.MaxSize+maxHeaderLine)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := decodePushed(text, of)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// decodePushed reads the text of the file.
func decodePushed(text []byte, of Fleet) (*Pushed, error) {
	line, compressed, _ := bytes.Cut(text, []byte("\n"))
	var header pushedHeader
	if err := json.Unmarshal(line, &header); err != nil {
		return nil, err
	}
	if !header.is(of) {
		return nil, errors.New("it is of another cluster, with other endpoints or another prefix")
	}
	b, err := revision.Decode(compressed, header.Digest)
	return &Pushed{header.Ref, b}, err
}

// readPrivate reads a regular file of at most max bytes that only this user can use, and could have put there.
func readPrivate(name string, max int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkPrivate(f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := private.CheckParent(name); err != nil {
		return nil, err
	}
	return files.ReadFrom(f, name, max)
}

// WritePushed replaces a file by one with the revision of a fleet: a line that says which, and the files. Without a revision
// it removes the file.
func WritePushed(name string, of Fleet, p *Pushed) error {
	if p == nil {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	line, err := json.Marshal(pushedHeader{p.Ref, of})
	if err != nil {
		return err
	}
	compressed, digest, err := p.Bundle.Encode()
	if err == nil && digest != p.Ref.Digest {
		err = fmt.Errorf("revision %d has other files than were pushed", p.Ref.Number)
	}
	if err != nil {
		return err
	}
	return files.Replace(name, append(append(line, '\n'), compressed...), 0o600)
}
