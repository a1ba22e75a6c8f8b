package main

import (
	"errors"
	"os"
	"path/filepath"
)

// replaceFile writes a file so that every reader sees the old text or the new
// one, whole. A link stays a link: the file it leads to is replaced.
func replaceFile(name string, text []byte, mode os.FileMode) (err error) {
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
