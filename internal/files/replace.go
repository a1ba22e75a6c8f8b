package files

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file atomically: readers see the old text or the new one.
// A symbolic link is kept, and the file that it points to is replaced.
func Replace(name string, text []byte, mode os.FileMode) (err error) {
	if target, linkErr := filepath.EvalSymlinks(name); linkErr == nil {
		name = target
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
