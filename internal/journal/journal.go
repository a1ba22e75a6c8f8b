// Package journal keeps state in an append-only file of checksummed frames, all of which
// are read once, when the file is opened. It is for state that a program has in memory
// anyway, and does not want to lose.
//
// The file is never mapped into memory, and no content is trusted before its checksum
// was verified: whatever the file contains, the program cannot panic or fault. A frame that
// was being written when the program or the machine stopped is ignored. Frames that were
// written before a disk error are preserved.
//
//	file    the journal's magic, which ends with a newline, then frames
//	frame   length uint32, checksum of the content uint32, checksum of these two uint32,
//	        then the content; little endian; CRC-32C
//
//	journal.go  Journal: opens, appends, rewrites
//	read.go     reads the frames
//	lock.go     finds the file, and locks it against other processes
package journal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"os"
	"path/filepath"

	"github.com/sonde-probe/sonde/internal/private"
)

// maxFrame is the maximum length of a frame's content, in bytes.
const maxFrame = 1 << 20

const frameHeader = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errLocked is wrapped by the error of Open if another process has the file open.
var errLocked = errors.New("is in use by another process: use another file")

// errReplaced is wrapped by the error of Append or Rewrite if the file was moved or removed, and another file has its name.
var errReplaced = errors.New("was replaced by another file: stop the process that uses that file, and move it away")

// Journal is an open file. It is not safe for concurrent use by multiple goroutines.
type Journal struct {
	name   string
	magic  string
	file   *os.File
	end    int64  // end of the frames that are known to be good
	broken bool   // the end of the file may differ from what was written: only Rewrite repairs it
	buffer []byte // used by Append
}

// Open opens a file, or creates it with mode 0600, and locks it until Close. The magic identifies the kind and version of the
// file's contents. Read must be called before anything is appended.
//
// The directory must belong to this user or root, and must not be writable for all users; the file must not be writable for other
// users than its owner. A symbolic link is followed and preserved.
func Open(name, magic string) (*Journal, error) {
	if err := private.CheckParent(name); err != nil {
		return nil, err
	}
	magic += "\n"
	f, err := openLocked(name, newHead(magic))
	if err != nil {
		return nil, err
	}
	if name, err = filepath.EvalSymlinks(name); err == nil {
		err = private.CheckParent(name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Journal{name: name, magic: magic, file: f, broken: true}, nil
}

// newHead returns the contents of a new file before its first Rewrite: the magic and an empty frame. So only a damaged file is ever
// empty.
func newHead(magic string) []byte { return appendFrame([]byte(magic), nil) }

// Size returns the size of the frames that were read or written, in bytes.
func (j *Journal) Size() int64 { return j.end }

// Broken reports whether the file must be rewritten before anything can be appended.
func (j *Journal) Broken() bool { return j.broken }

// Append writes frames to the end of the file, without waiting for the disk: see Syncer. After an error, the file is truncated to
// its previous end; if that fails too, every Append fails until a Rewrite succeeds. The same applies after the file was moved or
// removed.
func (j *Journal) Append(frames iter.Seq[[]byte]) error {
	if j.broken {
		return fmt.Errorf("%s: must be rewritten after an error", j.name)
	}
	if inPlace, err := j.isInPlace(); !inPlace {
		j.broken = true
		return cmp.Or(err, fmt.Errorf("%s was moved or removed", j.name))
	}
	n, err := j.write(j.file, j.end, frames, false)
	if err != nil {
		j.broken = j.file.Truncate(j.end) != nil
		return err
	}
	j.end += n
	return nil
}

// Syncer returns a function that waits until everything is on disk that was appended before the call. It may be called from another
// goroutine, and does not wait for data that is appended meanwhile. After an error, the state of the disk is unknown: only Rewrite
// repairs it.
func (j *Journal) Syncer() func() error { return j.file.Sync }

// Rewrite replaces the file by one with only these frames. The old file stays until the new one is on disk, and stays in use after
// an error. If another file has its name, possibly in use by another process, Rewrite leaves it and returns errReplaced.
func (j *Journal) Rewrite(frames iter.Seq[[]byte]) error {
	if _, err := j.isInPlace(); err != nil {
		return err
	}
	f, size, err := j.create(frames)
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), j.name); err != nil {
		return errors.Join(err, discard(f))
	}
	_ = j.file.Close() // nothing is lost: the new file has everything
	j.file, j.end, j.broken = f, size, false
	return syncDirectory(j.name)
}

// isInPlace reports whether the file still has its name. The error is errReplaced if another file has that name.
func (j *Journal) isInPlace() (bool, error) {
	named, err := os.Lstat(j.name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	opened, err := j.file.Stat()
	if err != nil {
		return false, err
	}
	if !os.SameFile(opened, named) {
		return false, fmt.Errorf("%s %w", j.name, errReplaced)
	}
	return true, nil
}

// create writes a new file next to the journal's own. It removes a file left by a program that was killed, and does not follow
// symbolic links.
func (j *Journal) create(frames iter.Seq[[]byte]) (f *os.File, size int64, err error) {
	name := j.name + ".new"
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, err
	}
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, discard(f))
		}
	}()
	if err := lock(f); err != nil {
		return f, 0, err
	}
	if _, err := f.WriteString(j.magic); err != nil {
		return f, 0, err
	}
	n, err := j.write(f, int64(len(j.magic)), frames, true)
	if err != nil {
		return f, 0, err
	}
	return f, int64(len(j.magic)) + n, f.Sync()
}

func discard(f *os.File) error {
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeSize is the size of a write. While a whole file is written, it is synced every syncSize, so that the caller, who yields its
// frames, can tell whether the disk makes progress.
const (
	writeSize = 256 << 10
	syncSize  = 8 << 20
)

// write writes frames at an offset, and returns the number of bytes written.
func (j *Journal) write(f *os.File, at int64, frames iter.Seq[[]byte], whole bool) (n int64, err error) {
	b := j.buffer[:0]
	flush := func() error {
		_, err := f.WriteAt(b, at+n)
		before := n
		n += int64(len(b))
		b = b[:0]
		if err == nil && whole && n/syncSize > before/syncSize {
			err = f.Sync()
		}
		return err
	}
	for content := range frames {
		if len(content) > maxFrame {
			return n, fmt.Errorf("%s: frame of %d bytes, at most %d are allowed", j.name, len(content), maxFrame)
		}
		b = appendFrame(b, content)
		if len(b) < writeSize {
			continue
		}
		if err := flush(); err != nil {
			return n, err
		}
	}
	err = flush()
	if j.buffer = b; cap(b) > 2*writeSize {
		j.buffer = nil
	}
	return n, err
}

func appendFrame(b, content []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(content, castagnoli))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
	return append(b, content...)
}

// SetAside renames a file that cannot be read, by appending ".corrupt" to its name, and continues with a new file. It replaces a
// file that was set aside before.
func (j *Journal) SetAside() (name string, err error) {
	name = j.name + ".corrupt"
	if err := os.Rename(j.name, name); err != nil {
		return "", err
	}
	f, err := os.OpenFile(j.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	if err = lock(f); err == nil {
		err = begin(f, newHead(j.magic))
	}
	if err != nil {
		return "", errors.Join(err, f.Close())
	}
	_ = j.file.Close()
	j.file, j.end, j.broken = f, 0, true
	return name, syncDirectory(j.name)
}

// Close closes the file and releases its lock.
func (j *Journal) Close() error { return j.file.Close() }

func syncDirectory(name string) error {
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
