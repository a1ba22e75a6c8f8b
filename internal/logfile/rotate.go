package logfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// append appends lines to the file, and begins a new one where they have no room. After an error it
// returns what it has not written.
//
// It opens the file each time: another program may have renamed or removed it, and another process
// may write to it, such as the next engine.
func (f *File) append(lines []byte) (rest []byte, err error) {
	if f.to != nil {
		n, err := f.to.Write(lines)
		return lines[n:], err
	}
	for len(lines) > 0 {
		if lines, err = f.appendOnce(lines); err != nil {
			return lines, err
		}
	}
	return nil, nil
}

// appendOnce appends as many lines as the file has room for. Without room for one it rotates.
func (f *File) appendOnce(lines []byte) (rest []byte, err error) {
	file, err := open(f.config.Path)
	if err != nil {
		return lines, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return lines, err
	}
	if !info.Mode().IsRegular() {
		return lines, irregularError(f.config.Path)
	}
	size := info.Size()
	fits := firstLines(lines, f.config.MaxSize-size)
	if len(fits) == 0 && size > 0 {
		return lines, f.rotateOnce(file, info)
	}
	if len(fits) == 0 {
		fits = firstLine(lines)
	}
	n, err := file.Write(fits)
	return lines[n:], err
}

// open opens a file to append to it. The file itself may be no symbolic link; the directories above
// it may, so that they must not be another user's. It does not wait for the reader of a pipe.
func open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640)
	switch {
	case errors.Is(err, syscall.ELOOP):
		err = symlinkError(path)
	case errors.Is(err, syscall.ENXIO):
		err = irregularError(path)
	}
	return file, err
}

// firstLines returns the lines that begin a text, up to a size. An unfinished line counts if it is
// the last.
func firstLines(text []byte, size int64) []byte {
	if int64(len(text)) <= size {
		return text
	}
	return text[:bytes.LastIndexByte(text[:max(size, 0)], '\n')+1]
}

func firstLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	return text[:min(len(line)+1, len(text))]
}

// rotateOnce rotates, unless another File of the path has done so since this one has opened it: in this
// program, or in another one such as the guard of a process. Each of them locks the file that is full,
// which a rotation renames last. The lock ends when the file is closed.
func (f *File) rotateOnce(full *os.File, opened os.FileInfo) error {
	if err := lock(full); err != nil {
		return err
	}
	switch now, err := os.Lstat(f.config.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !os.SameFile(opened, now):
		return nil
	}
	return rotate(f.config.Path, f.config.MaxFiles)
}

// lock waits until no other process, and no other goroutine, has locked the file.
func lock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// rotate makes room for a new file: app.log becomes app.log.1, app.log.1 becomes app.log.2, and so
// on, up to the first number that is free. The last file is removed if there are too many. What is
// left after a rotation that was interrupted has a free number, so that the next one loses nothing.
func rotate(path string, maxFiles int) error {
	name := func(number int) string {
		if number == 0 {
			return path
		}
		return path + "." + strconv.Itoa(number)
	}
	free := 1
	for free < maxFiles && exists(name(free)) {
		free++
	}
	if free == maxFiles {
		if err := os.Remove(name(maxFiles - 1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		free--
	}
	for number := free; number > 0; number-- {
		if err := os.Rename(name(number-1), name(number)); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
