// Package codecache keeps compiled plugins in a directory that only this user can write,
// and removes those that were used longest ago.
package codecache

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/probe"
)

// Entry is the file with the compiled code of one module, in a directory that stays open until
// Close. Code is run, so other users must not be able to write it. Those who can rename the
// directory can put another one in its place, but not one that passes as this user's.
// The zero Entry is that of a cache that keeps nothing.
type Entry struct {
	dir     *os.Root // nil: there is no cache
	module  [sha256.Size]byte
	name    string // of the file
	maxSize int64  // of all files together
}

// The names of files. One that is being written has a random name instead of a hash.
const (
	hashLength = 32 // of a module, in hexadecimal digits
	extension  = ".code"
	partial    = ".part"
)

// maxWriting is how long a file may take to be written. An older one was left by a process that
// was killed.
const maxWriting = time.Hour

// Open creates the cache's directory if needed, checks it, and returns the entry of a module. Root
// is the directory; empty disables the cache. MaxSize bounds all entries together, in bytes. An
// error is a *probe.FieldError. Each Entry needs a Close.
func Open(root string, maxSize int64, module []byte) (*Entry, error) {
	if root == "" {
		return &Entry{}, nil
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, probe.FieldErrorf("cache_dir", "cannot be created: %v", err)
	}
	dir, err := openPrivate(root)
	if err != nil {
		return nil, probe.FieldErrorf("cache_dir", "is not safe to run code from: %s: %v", root, err)
	}
	key := sha256.Sum256(module)
	return &Entry{dir, key, hex.EncodeToString(key[:])[:hashLength] + extension, maxSize}, nil
}

// openPrivate opens a directory that only this user can use.
func openPrivate(name string) (*os.Root, error) {
	named, err := os.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case !named.IsDir():
		return nil, errors.New("it is not a directory")
	}
	dir, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := dir.Stat(".")
	switch {
	case err != nil:
	case !os.SameFile(named, opened):
		err = errors.New("it was replaced meanwhile")
	default:
		err = private.Check(opened)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// Code returns the code of the module, though perhaps for another version of the compiler or for
// another processor; nil if there is none that Store has written for this module, in this directory. The caller closes it.
func (e *Entry) Code() *os.File {
	if e.dir == nil {
		return nil
	}
	f, err := e.dir.Open(e.name)
	if err != nil {
		return nil
	}
	if e.check(f) != nil {
		_ = f.Close()
		return nil
	}
	return f
}

var errForeign = errors.New("the file is not one that Store has written for the module")

// check returns nil if a file begins with the sum of the module and of the rest, which is read next.
func (e *Entry) check(f *os.File) error {
	info, err := f.Stat()
	if err == nil {
		err = private.Check(info)
	}
	if err != nil {
		return err
	}
	sum, err := e.newSum()
	if err != nil {
		return err
	}
	var have [sumSize]byte
	if _, err = io.ReadFull(f, have[:]); err == nil {
		_, err = io.Copy(sum, f)
	}
	if err == nil && !hmac.Equal(have[:], sum.Sum(nil)) {
		err = errForeign
	}
	if err != nil {
		return err
	}
	_, err = f.Seek(sumSize, io.SeekStart)
	return err
}

// A file begins with a sum over the module and the code, under a secret of the directory: code that was copied to the
// name of another module, or from another directory, is not used.
const (
	sumSize    = sha256.Size
	secretFile = "secret"
)

// newSum returns a sum that has the module.
func (e *Entry) newSum() (hash.Hash, error) {
	secret, err := e.secret()
	if errors.Is(err, fs.ErrNotExist) {
		if err = e.makeSecret(); err == nil {
			secret, err = e.secret()
		}
	}
	if err != nil {
		return nil, err
	}
	sum := hmac.New(sha256.New, secret)
	sum.Write(e.module[:])
	return sum, nil
}

// secret returns the secret of the directory. One that others could know is removed.
func (e *Entry) secret() ([]byte, error) {
	info, err := e.dir.Lstat(secretFile)
	if err != nil {
		return nil, err
	}
	if private.Check(info) == nil && info.Mode().IsRegular() && info.Size() == sumSize {
		return e.dir.ReadFile(secretFile)
	}
	if err := e.dir.Remove(secretFile); err != nil {
		return nil, err
	}
	return nil, fs.ErrNotExist
}

// makeSecret makes the secret, unless another process has made it.
func (e *Entry) makeSecret() error {
	var secret [sumSize]byte
	rand.Read(secret[:]) // never fails
	name := rand.Text() + partial
	err := e.dir.WriteFile(name, secret[:], 0o600)
	if err == nil {
		err = e.dir.Link(name, secretFile) // with all of its bytes, or not at all
	}
	_ = e.dir.Remove(name) // what remains is removed later
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Store writes the code of the module. Without a cache it does nothing.
func (e *Entry) Store(code io.Reader) error {
	if e.dir == nil {
		return nil
	}
	sum, err := e.newSum()
	if err != nil {
		return err
	}
	name := rand.Text() + partial
	f, err := e.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(make([]byte, sumSize)); err == nil {
		_, err = io.Copy(io.MultiWriter(f, sum), code)
	}
	if err == nil {
		_, err = f.WriteAt(sum.Sum(nil), 0)
	}
	if err == nil {
		err = f.Sync() // before it has its name
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = e.dir.Rename(name, e.name)
	}
	if err != nil {
		_ = e.dir.Remove(name) // what remains is removed later
	}
	return err
}

// Discard removes the module's code, which is damaged.
func (e *Entry) Discard() {
	if e.dir != nil {
		_ = e.dir.Remove(e.name) // what remains is found to be damaged again
	}
}

// Close marks the entry as used now, and removes the entries that were used longest ago until the
// rest is within the maximum size, and what killed processes have left.
func (e *Entry) Close() {
	if e.dir == nil {
		return
	}
	now := time.Now()
	_ = e.dir.Chtimes(e.name, now, now) // it may not exist
	e.evict(now)
	_ = e.dir.Close()
}

func (e *Entry) evict(now time.Time) {
	found, _ := fs.ReadDir(e.dir.FS(), ".")
	var others []fs.FileInfo
	total := int64(0)
	for _, f := range found {
		info, err := f.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case filepath.Ext(f.Name()) == partial && now.Sub(info.ModTime()) > maxWriting:
			_ = e.dir.Remove(f.Name())
		case filepath.Ext(f.Name()) == extension:
			total += info.Size()
			if f.Name() != e.name {
				others = append(others, info)
			}
		}
	}
	slices.SortFunc(others, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, old := range others {
		if total <= e.maxSize {
			return
		}
		_ = e.dir.Remove(old.Name()) // the next Close tries again
		total -= old.Size()
	}
}
