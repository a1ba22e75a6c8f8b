package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// lockTries and lockPause limit how long Open waits for the lock: a process that was killed may have left a child that has not
	// closed its descriptors yet.
	lockTries = 20
	lockPause = 20 * time.Millisecond
)

// openLocked opens a file, or creates it with a head, and locks it. On a read-only file system, the file is opened for reading
// only.
func openLocked(name string, head []byte) (*os.File, error) {
	for tries := 1; ; tries++ {
		f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK, 0o600) // opening a pipe would wait
		created := errors.Is(err, os.ErrNotExist)
		if created {
			f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
		}
		if errors.Is(err, syscall.EROFS) {
			if readable, readErr := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0); readErr == nil {
				f, err = readable, nil
			}
		}
		if err != nil {
			return nil, err
		}
		current, err := lockCurrent(f)
		if err == nil && current && created {
			err = begin(f, head)
		}
		if err == nil && current {
			return f, nil
		}
		_ = f.Close()
		if err != nil && (!errors.Is(err, errLocked) || tries == lockTries) {
			return nil, err
		}
		time.Sleep(lockPause)
	}
}

// begin writes the head of a locked file that was just created, unless another process has already done so. After an error it
// removes the file, since an empty file counts as damaged.
func begin(f *os.File, head []byte) error {
	if info, err := f.Stat(); err != nil || info.Size() > 0 {
		return err
	}
	_, err := f.WriteAt(head, 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		return nil
	}
	name, linkErr := filepath.EvalSymlinks(f.Name())
	if linkErr == nil {
		linkErr = os.Remove(name)
	}
	return errors.Join(err, linkErr)
}

// lockCurrent locks a file, and reports whether the file still has its name: the process that held the lock may have replaced it.
func lockCurrent(f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	switch mode := opened.Mode(); {
	case !mode.IsRegular():
		return false, fmt.Errorf("%s is not a regular file: use another path", f.Name())
	case mode.Perm()&0o022 != 0:
		return false, fmt.Errorf("%s is writable for users other than its owner: run chmod 600 %[1]s", f.Name())
	}
	if stat, ok := opened.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 { // a rewrite would replace it under one name only
		return false, fmt.Errorf("%s has %d names: remove the others (find -inum %d)", f.Name(), stat.Nlink, stat.Ino)
	}
	if err := lock(f); err != nil {
		return false, err
	}
	named, err := os.Stat(f.Name())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("%s %w", f.Name(), errLocked)
		default:
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
