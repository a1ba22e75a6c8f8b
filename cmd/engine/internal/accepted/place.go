package accepted

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/journal"
	"github.com/sonde-probe/sonde/internal/private"
)

// Header says to which engine Inputs belong.
type Header struct {
	Accepted  time.Time     `json:"accepted"`            // when the configuration was put into use
	State     string        `json:"state,omitempty"`     // the engine's state file, an absolute path; empty for none
	MaxAge    time.Duration `json:"maxAge,omitempty"`    // after which the state is forgotten
	Revision  revision.Ref  `json:"revision,omitzero"`   // of the configuration that was pushed to the fleet; zero for none
	Processes string        `json:"processes,omitempty"` // the directory of its processes that outlive it; empty for none

	Sum string `json:"sum"` // of the Inputs
}

// Kept are Inputs that were found.
type Kept struct {
	Header
	Inputs *Inputs
}

// Pushed returns what of the Inputs was pushed, nil for nothing.
func (k *Kept) Pushed() *Pushed {
	if k.Revision == (revision.Ref{}) {
		return nil
	}
	return &Pushed{k.Revision, k.Inputs.pushed()}
}

// Has reports whether Inputs are the kept ones.
func (k *Kept) Has(in *Inputs) bool {
	_, sum, err := in.encode()
	return err == nil && sum == k.Sum
}

// Place is the file with the Inputs of an engine, which has it until Close. It is in memory, only
// this user can read it, and it is gone after a boot. The methods of nil do nothing. A Place must
// not be used concurrently.
type Place struct {
	path string
	file *os.File // locked; nil before Keep
}

// prefix is what the names of the files begin with.
const prefix = "sonde-config-"

// fileName matches the names of files that are not being written.
var fileName = regexp.MustCompile(`^` + prefix + `[0-9a-f]+$`)

// PlaceOf returns the place of the engine with a command line, which has the working directory and
// whatever else says what the engine reads, or nil if there is no directory for it.
func PlaceOf(commandLine []string) *Place {
	dir := private.OfUser()
	text, err := json.Marshal(commandLine)
	if dir == "" || err != nil {
		return nil
	}
	sum := sha256.Sum256(text)
	return &Place{path: filepath.Join(dir, prefix+hex.EncodeToString(sum[:8]))}
}

const (
	// lockTries and lockPause bound how long Find waits for the lock: an engine that was killed may
	// have left a child that has not yet closed its descriptors.
	lockTries = 20
	lockPause = 20 * time.Millisecond
)

// Find returns what the previous engine has kept, if goesOn says so, or nil.
func (p *Place) Find(goesOn func(Header) bool) (*Kept, error) {
	if p == nil {
		return nil, nil
	}
	for tries := 1; journal.IsLocked(p.path); tries++ {
		if tries == lockTries {
			return nil, nil // it is that of an engine that runs
		}
		time.Sleep(lockPause)
	}
	f, err := open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !goesOn(f.header) {
		return nil, nil
	}
	k := &Kept{Header: f.header}
	k.Inputs, err = f.inputs()
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Reader returns a function that reads what Keep has kept, or nil if it has kept nothing. The
// function may be called by another goroutine.
func (p *Place) Reader() func() (*Inputs, error) {
	if p == nil || p.file == nil {
		return nil
	}
	path := p.path
	return func() (*Inputs, error) {
		f, err := open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return f.inputs()
	}
}

// inputs reads the rest of a file.
func (f *file) inputs() (*Inputs, error) {
	in := &Inputs{}
	text, err := files.ReadFrom(f.rest, f.Name(), maxFile)
	if err == nil && checksum(text) != f.header.Sum {
		err = errors.New("wrong checksum")
	}
	if err == nil {
		err = json.Unmarshal(text, in)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return in, nil
}

const (
	maxFile   = 2 * MaxSize // JSON has bytes in base64
	maxHeader = 64 << 10
)

// file is an open file: a line with the header, and the Inputs.
type file struct {
	*os.File
	header Header
	rest   io.Reader
}

// open opens a file that only this user can read and write to, and reads its header.
func open(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	o := &file{File: f}
	if err := o.readHeader(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return o, nil
}

func (f *file) readHeader() error {
	if err := checkPrivate(f.File); err != nil {
		return err
	}
	r := bufio.NewReaderSize(f, maxHeader)
	f.rest = r
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, &f.header)
}

// checkPrivate returns an error unless a file is regular, and only this user can use it.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	return private.Check(info)
}

// Keep replaces what is kept. After an error nothing is. While another engine with the same command
// line runs Keep does nothing.
func (p *Place) Keep(h Header, in *Inputs) error {
	if p == nil || p.file == nil && journal.IsLocked(p.path) {
		return nil
	}
	file, err := p.write(h, in)
	if err != nil {
		p.Remove()
		return err
	}
	p.Close()
	p.file = file
	return nil
}

// write writes and locks the file.
func (p *Place) write(h Header, in *Inputs) (_ *os.File, err error) {
	text, sum, err := in.encode()
	if err != nil {
		return nil, err
	}
	h.Sum = sum
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p.path+".new", os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Write(append(append(line, '\n'), text...))
	}
	if err == nil {
		err = os.Rename(f.Name(), p.path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return f, nil
}

// Remove removes the file, unless it is that of another engine, and closes the place.
func (p *Place) Remove() {
	if p == nil {
		return
	}
	if p.file != nil || !journal.IsLocked(p.path) {
		_ = os.Remove(p.path)
	}
	p.Close()
}

// Close leaves the file to the next engine.
func (p *Place) Close() {
	if p != nil && p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}

// RemoveOthers removes the files that no engine will go on with. It may be called concurrently with
// the other methods.
func (p *Place) RemoveOthers(goesOn func(Header) bool) {
	if p == nil {
		return
	}
	dir := filepath.Dir(p.path)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !fileName.MatchString(e.Name()) || path == p.path || journal.IsLocked(path) {
			continue
		}
		f, err := open(path)
		if err == nil {
			_ = f.Close()
		}
		if err != nil || !goesOn(f.header) {
			_ = os.Remove(path)
		}
	}
}
