// Package codecache stores compiled plugins in a directory that only this user can write. It evicts
// the least recently used ones.
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

// Entry is the cache file of one module's compiled code. Its directory stays open until Close. The
// code is executed, so other users must not be able to write it. Users who can rename the directory
// can replace it, but the replacement does not pass the check of owner and permissions. The zero
// Entry belongs to a disabled cache.
type Entry struct {
	dir     *os.Root // nil if the cache is disabled
	module  [sha256.Size]byte
	name    string // of the file
	maxSize int64  // of all code files together
}

// File names. While a file is being written it has a random name instead of a hash.
const (
	hashLength = 32 // of a module, in hexadecimal digits
	extension  = ".code"
	partial    = ".part"
)

// maxWriting is the maximum time to write a file. An older unfinished file was left by a process
// that was killed.
const maxWriting = time.Hour

// Open creates the cache's directory if needed, checks its owner and permissions, and returns the
// entry of a module. root is the directory; an empty root disables the cache. maxSize bounds all
// entries together, in bytes. An error is a *probe.FieldError. Each Entry needs a Close.
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
		err = errors.New("it was replaced while it was being opened")
	default:
		err = private.Check(opened)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// Code returns the code that Store has written for this module in this directory, or nil if there is none. The code may
// be for another version of the compiler or for another processor. The caller must close the file.
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

var errForeign = errors.New("file was not written by this cache for this module")

// check verifies the sum at the start of a file, and seeks to the code after it.
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

// A file begins with an HMAC of the module and the code, under a secret of the directory: code that was copied to the
// name of another module, or from another directory, is rejected.
const (
	sumSize    = sha256.Size
	secretFile = "secret"
)

// newSum returns the HMAC after the module was written to it.
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

// secret returns the secret of the directory. It removes a secret that other users could have read.
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

// makeSecret creates the secret, unless another process has created it.
func (e *Entry) makeSecret() error {
	var secret [sumSize]byte
	rand.Read(secret[:]) // never fails
	name := rand.Text() + partial
	err := e.dir.WriteFile(name, secret[:], 0o600)
	if err == nil {
		err = e.dir.Link(name, secretFile) // atomic: the complete file, or none
		if err != nil && !errors.Is(err, fs.ErrExist) {
			err = e.dir.Rename(name, secretFile) // without hard links; if two processes do this at once, code is compiled once more
		}
	}
	_ = e.dir.Remove(name) // if that fails, a later Close removes it
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
		err = f.Sync() // before the file gets its final name
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = e.dir.Rename(name, e.name)
	}
	if err != nil {
		_ = e.dir.Remove(name) // if that fails, a later Close removes it
	}
	return err
}

// Discard removes the module's damaged code.
func (e *Entry) Discard() {
	if e.dir != nil {
		_ = e.dir.Remove(e.name) // if that fails, the code is found to be damaged again
	}
}

// Close marks the entry as used now. It removes the least recently used entries until the others
// are within the maximum size, and unfinished files of killed processes.
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
