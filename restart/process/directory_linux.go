package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// OpenDirectory returns the directory with instances that a name stands for, which is beside an
// engine's state file. If there is none it makes an empty one, or returns nil unless create is true.
//
// A new directory is in /run, or else in that which systemd has made for the service
// ($RUNTIME_DIRECTORY), and the name is a symbolic link to it: a disk that hangs or is full would
// keep guards from starting and ending processes. Where this user may write to neither, the
// directory has the name itself.
//
// Before is where the directory was when the name was another one; "" if that is unknown.
//
// An error can be that another engine has the directory: its state file was moved or copied.
func OpenDirectory(name, before string, create bool) (*Directory, error) {
	if err := private.CheckParent(name); err != nil {
		return nil, err
	}
	beside, err := resolve(name)
	if err != nil {
		return nil, err
	}
	named, err := filepath.EvalSymlinks(beside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if named != beside && !inMemoryName.MatchString(filepath.Base(named)) {
		named = "" // the link is not one of ours
	}
	inMemory := placesInMemory(beside)
	for _, path := range append([]string{named, before}, inMemory...) {
		d, err := openOccupied(path, beside)
		switch {
		case d != nil:
			return d, nil
		case err != nil && (path == named || path == before || !errors.Is(err, errNotOurs)):
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if !create {
		return nil, nil
	}
	return makeDirectory(beside, inMemory)
}

// resolve returns the absolute path of a name that may not exist, in a directory that does.
func resolve(name string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil {
		return "", err
	}
	dir, err = filepath.Abs(dir)
	return filepath.Join(dir, filepath.Base(name)), err
}

// placesInMemory returns where a directory can be. They follow from its name: a disk that is full
// may have no room for the link.
func placesInMemory(beside string) (paths []string) {
	sum := sha256.Sum256([]byte(beside))
	for _, dir := range private.RuntimeDirs() {
		paths = append(paths, filepath.Join(dir, directoryPrefix+hex.EncodeToString(sum[:8])))
	}
	return paths
}

// directoryPrefix is what the names of directories in memory begin with.
const directoryPrefix = "sonde-"

// inMemoryName matches the names of directories in memory.
var inMemoryName = regexp.MustCompile(`^` + directoryPrefix + `[0-9a-f]{16}$`)

// openOccupied opens a directory if it has instances. Otherwise it is removed: the next one may be
// at a better place.
func openOccupied(path, beside string) (*Directory, error) {
	if path == "" {
		return nil, nil
	}
	d, err := lockDirectory(path)
	if d == nil {
		return nil, err
	}
	if d.survivors, err = readSurvivors(path); len(d.survivors) > 0 {
		link(beside, path)
		return d, nil
	}
	if err == nil {
		removeEmpty(path) // a disk that can only be read keeps it
	}
	d.Close()
	return nil, err
}

// makeDirectory makes a directory at the first place where that is possible.
func makeDirectory(beside string, inMemory []string) (*Directory, error) {
	var failed error
	for _, path := range append(inMemory, beside) {
		if path == beside {
			removeLink(beside)
		}
		err := os.Mkdir(path, 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			failed = errors.Join(failed, err)
			continue
		}
		d, err := lockDirectory(path)
		if d != nil {
			link(beside, path)
			return d, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// link makes the name a symbolic link, and removes the one of an earlier name. Where it cannot be
// made, the directory is found by placesInMemory. A link in the directory says what its name is.
func link(beside, path string) {
	if path != beside {
		name := filepath.Join(path, nameLink)
		if earlier, _ := os.Readlink(name); earlier != beside {
			if to, _ := os.Readlink(earlier); to == path {
				removeLink(earlier)
			}
		}
		removeLink(name)
		_ = os.Symlink(beside, name)
	}
	if to, _ := os.Readlink(beside); path == beside || to == path {
		return
	}
	removeLink(beside)
	_ = os.Symlink(path, beside)
}

func removeLink(name string) {
	if info, err := os.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		_ = os.Remove(name)
	}
}

// errNotOurs is in the error for a directory of another engine or user.
var errNotOurs = errors.New("cannot be used")

const (
	// directoryTries and directoryPause bound how long an engine waits for the directory: one
	// that was killed may have left a child that has not yet closed its descriptors.
	directoryTries = 20
	directoryPause = 20 * time.Millisecond
)

// lockDirectory opens a directory, and locks it for this engine. It returns nil if there is none.
func lockDirectory(path string) (*Directory, error) {
	for tries := 1; ; tries++ {
		var f *os.File
		err := checkPrivate(path)
		if err == nil {
			f, err = openLocked(path)
		}
		switch {
		case err == nil && f != nil:
			return &Directory{path: path, permanent: !inMemoryName.MatchString(filepath.Base(path)), lock: f}, nil
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil && !errors.Is(err, unix.EWOULDBLOCK):
			return nil, err
		case tries == directoryTries:
			return nil, fmt.Errorf("directory %s %w: another engine has it, whose state file was moved or copied; stop that engine first", path, errNotOurs)
		}
		time.Sleep(directoryPause)
	}
}

// openLocked opens and locks a directory. It returns nil if the engine that had the lock has
// removed it.
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
