package codecache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// temporaryPrefix begins the names of temporary directories.
const temporaryPrefix = "sonde-plugin-"

// temporary is the directory of a compilation. It is locked while its process lives, so that
// another one can tell that it is in use.
type temporary struct {
	dir  string
	lock *os.File // nil: it could not be opened
}

var errInUse = errors.New("directory is locked by another process")

// makeTemporary makes a temporary directory, and removes those that no process uses.
func makeTemporary(parent string) (*temporary, error) {
	removeAbandoned(parent)
	for {
		dir, err := os.MkdirTemp(parent, temporaryPrefix)
		if err != nil {
			return nil, err
		}
		if err := checkPrivate(dir); err != nil {
			_ = os.Remove(dir)
			return nil, err
		}
		lock, err := lockDir(dir)
		if _, missing := os.Lstat(dir); missing == nil && !errors.Is(err, errInUse) {
			return &temporary{dir, lock}, nil
		}
		lock.Close() // before it was locked, another process has found it, and removes it
	}
}

func (t *temporary) remove() {
	_ = os.RemoveAll(t.dir) // what remains is removed later
	t.lock.Close()
}

// removeAbandoned removes the temporary directories of this user whose process was killed.
func removeAbandoned(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		if !strings.HasPrefix(e.Name(), temporaryPrefix) || checkPrivate(dir) != nil {
			continue // unrelated, or of another user
		}
		lock, err := lockDir(dir)
		if err == nil {
			_ = os.RemoveAll(dir)
		}
		lock.Close()
	}
}
