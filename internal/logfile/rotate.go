package logfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// append appends lines to the file, and starts a new file when they do not fit. After an error, it returns the lines that it has
// not written.
//
// It opens the file each time: another program may have renamed or removed it, and another process, such as the next engine, may
// write to it.
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

// appendOnce appends as many lines as fit in the file. If not even one fits, it rotates.
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

// open opens a file to append to it. The file itself must not be a symbolic link; the directories above it may be, so they must not
// belong to another user. open does not wait for the reader of a pipe.
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

// firstLines returns the first lines of a text, up to a size in bytes. An unfinished line at the end counts as a line.
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

// rotateOnce rotates the files, unless another File with the same path has done so since this one opened it, in this program or in
// another one such as the guard of a process. Each of them locks the full file, which a rotation renames last. The lock is released
// when the file is closed.
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

// lock waits until no other process, and no other goroutine, holds a lock on the file.
func lock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// rotate renames the files to allow a new one: app.log becomes app.log.1, app.log.1 becomes app.log.2, and so on, up to the first
// free number. If there are too many, it removes the last file. An interrupted rotation leaves a free number, so the next rotation
// loses nothing.
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
