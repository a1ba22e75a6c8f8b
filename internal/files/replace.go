package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sonde-probe/sonde/internal/private"
)

// Replace writes a file atomically: readers see the old text or the new one. If the name is a symbolic link, the link
// is kept and its target is replaced. It is an error if users other than this one, root, and members of this process's
// groups could have created the link. Errors contain the name of the file.
func Replace(name string, text []byte, mode os.FileMode) error {
	if err := replace(name, text, mode); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func replace(name string, text []byte, mode os.FileMode) (err error) {
	if name, err = Target(name); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), temporaryPrefix(name)+"*")
	if err != nil {
		return fmt.Errorf("create a file in %s: %w", filepath.Dir(name), cause(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(cause(err), cause(os.Remove(f.Name())))
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Target returns the file that Replace replaces: the target of a symbolic link, or else name. It returns an error if
// others could have created the link.
func Target(name string) (string, error) {
	target, err := filepath.EvalSymlinks(name)
	if err != nil { // the file does not exist
		return name, nil
	}
	_, err = FollowLinks(name, func(link string) error {
		if err := private.CheckParent(link); err != nil {
			return fmt.Errorf("symbolic link %w", err)
		}
		return nil
	})
	return target, err
}

// temporaryPrefix returns the prefix of the names of Replace's temporary files. Digits follow.
func temporaryPrefix(name string) string { return "." + filepath.Base(name) + "." }

// RemoveTemporary removes the temporary files of a Replace whose program was killed. No other program must be replacing
// the file at the same time.
func RemoveTemporary(name string) error {
	name, err := Target(name)
	if err != nil {
		return err
	}
	dir := filepath.Dir(name)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		digits, isOurs := strings.CutPrefix(e.Name(), temporaryPrefix(name))
		if isOurs && digits != "" && strings.Trim(digits, "0123456789") == "" {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// maxLinks is the maximum number of symbolic links that are followed, as in Linux.
const maxLinks = 40

// FollowLinks returns the file to which a chain of symbolic links leads, or else name. The file need not exist. It
// calls check for each link.
func FollowLinks(name string, check func(link string) error) (string, error) {
	for range maxLinks {
		to, err := os.Readlink(name)
		if err != nil { // not a link, or removed in the meantime
			return name, nil
		}
		if err := check(name); err != nil {
			return "", err
		}
		if dir, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil && !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		name = to
	}
	return "", fmt.Errorf("%s leads to more than %d symbolic links", name, maxLinks)
}

// cause returns an error without the name of the temporary file, which differs each time.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
