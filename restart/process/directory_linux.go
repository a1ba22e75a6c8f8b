package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// OpenDirectory returns the directory with instances that belongs to a name, which is a path next to an engine's state
// file. If there is none, it creates an empty one, or returns nil if create is false.
//
// A new directory is in /run, or else in the directory that systemd has created for the service ($RUNTIME_DIRECTORY): a
// disk that hangs or is full would keep guards from starting and ending processes. If this user may write to neither,
// the directory is at the name itself.
//
// before is the path of the directory under an earlier name, or "" if unknown. OpenDirectory moves it to a place of the
// current name if possible.
//
// It returns an error if another engine has the directory, which happens if the state file was moved or copied.
func OpenDirectory(name, before string, create bool) (*Directory, error) {
	if err := private.CheckParent(name); err != nil {
		return nil, err
	}
	places, err := placesOf(name)
	if err != nil {
		return nil, err
	}
	for _, path := range append([]string{before}, places...) {
		d, err := openOccupied(path)
		switch {
		case d != nil:
			if os.Rename(path, places[0]) == nil {
				d.path = places[0]
			}
			d.permanent = d.path == places[len(places)-1]
			return d, nil
		case err != nil && (path == before || !errors.Is(err, errNotOurs)):
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if !create {
		return nil, nil
	}
	return makeDirectory(places)
}

// placesOf returns the possible places of the directory for a name, the best one first and the name itself last. They
// are derived from the name, since a full disk may have no space to record one.
func placesOf(name string) (paths []string, err error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, err
	}
	beside := filepath.Join(dir, filepath.Base(name))
	sum := sha256.Sum256([]byte(beside))
	for _, dir := range private.RuntimeDirs() {
		paths = append(paths, filepath.Join(dir, "sonde-"+hex.EncodeToString(sum[:8])))
	}
	return append(paths, beside), nil
}

// openOccupied opens a directory if it has instances. Otherwise it removes the directory: the next one may be at a
// better place.
func openOccupied(path string) (*Directory, error) {
	if path == "" {
		return nil, nil
	}
	d, err := lockDirectory(path)
	if d == nil {
		return nil, err
	}
	if d.survivors, err = readSurvivors(path); len(d.survivors) > 0 {
		return d, nil
	}
	if err == nil {
		_ = os.Remove(path) // a read-only disk keeps it
	}
	d.Close()
	return nil, err
}

// makeDirectory creates a directory at the first place where that is possible.
func makeDirectory(places []string) (*Directory, error) {
	var failed error
	for _, path := range places {
		err := os.Mkdir(path, 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			failed = errors.Join(failed, err)
			continue
		}
		d, err := lockDirectory(path)
		if d != nil {
			d.permanent = path == places[len(places)-1]
			return d, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// errNotOurs is wrapped in the error about a directory of another user, or one that others can enter.
var errNotOurs = errors.New("cannot be used")

const (
	// directoryTries and directoryPause limit how long an engine waits for the directory: a killed engine may have left
	// a child that has not yet closed its descriptors.
	directoryTries = 20
	directoryPause = 20 * time.Millisecond
)

// lockDirectory opens a directory, and locks it for this engine. It returns nil if the directory does not exist.
func lockDirectory(path string) (*Directory, error) {
	for tries := 1; ; tries++ {
		var f *os.File
		err := checkPrivate(path)
		if err == nil {
			f, err = openLocked(path)
		}
		switch {
		case err == nil && f != nil:
			return &Directory{path: path, lock: f}, nil
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil && !errors.Is(err, unix.EWOULDBLOCK):
			return nil, err
		case tries == directoryTries:
			return nil, fmt.Errorf("another engine has the directory %s, since its state file was moved or copied; stop that engine first", path)
		}
		time.Sleep(directoryPause)
	}
}

// openLocked opens and locks a directory. It returns nil if the engine that held the lock has removed the directory.
func openLocked(path string) (_ *os.File, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	locked, named, err := guard.Lock(f)
	if locked && named {
		return f, nil
	}
	if err == nil && !locked {
		err = unix.EWOULDBLOCK
	}
	return nil, errors.Join(err, f.Close())
}
