package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// errForeign is wrapped by the error of Read if the file is not a journal with this magic.
var errForeign = errors.New("is another kind of file: use another path")

// errUnfinished is wrapped by the error of Read if the machine stopped before the beginning of the file was on disk.
var errUnfinished = errors.New("its start was not written completely")

// errEmpty is wrapped by the error of Read if the file is empty, which a journal never is.
var errEmpty = errors.New("it is empty")

// ErrDamaged is wrapped by the error of Read if the file is damaged, or has another version.
var ErrDamaged = errors.New("damaged")

// damagedAt returns the error for a file that is damaged at an offset.
func (j *Journal) damagedAt(offset int64, err error) error {
	return fmt.Errorf("%s is %w at byte %d: %w", j.name, ErrDamaged, offset, err)
}

// Read calls accept with the content of each frame, in the order in which they were written; accept must not retain it. The error
// wraps ErrDamaged if the file is damaged or has another version, or if accept returns an error.
//
// An incomplete frame or zeros at the end of the file are no damage, except at the first frame: Read removes them, and returns
// their length in bytes. A new file has no frames. A file is damaged if it is empty, if it ends within or right after the magic, or
// if it has zeros in place of the magic.
func (j *Journal) Read(accept func(content []byte) error) (unfinished int64, err error) {
	info, err := j.file.Stat()
	if err != nil {
		return 0, err
	}
	if isNew, err := j.isNew(info.Size()); isNew || err != nil {
		return 0, err // only Rewrite writes the first frames
	}
	r := reader{size: info.Size(), from: bufio.NewReaderSize(io.NewSectionReader(j.file, 0, info.Size()), writeSize)}
	if err := r.magic(j.magic); err != nil {
		if _, headerErr := r.header(); headerErr != nil && !errors.Is(err, errUnfinished) && !errors.Is(err, errEmpty) { // not even a frame follows
			return 0, fmt.Errorf("%s %w: %w", j.name, errForeign, err)
		}
		return 0, j.damagedAt(0, err)
	}
	for {
		content, err := r.frame()
		if err == nil && content != nil {
			err = accept(content)
		}
		if err != nil {
			return 0, j.damagedAt(r.start, err)
		}
		if content == nil {
			break
		}
	}
	if j.end = r.start; j.end == int64(len(j.magic)) { // the first frames are written completely or not at all
		return 0, j.damagedAt(j.end, errUnfinished)
	}
	if unfinished = info.Size() - j.end; unfinished > 0 {
		err = j.file.Truncate(j.end)
	}
	j.broken = err != nil
	return unfinished, nil
}

// isNew reports whether the file has the size and the content of a file that was never rewritten.
func (j *Journal) isNew(size int64) (bool, error) {
	head := newHead(j.magic)
	if size != int64(len(head)) {
		return false, nil
	}
	got := make([]byte, len(head))
	_, err := j.file.ReadAt(got, 0)
	return bytes.Equal(got, head), err
}

// reader reads frames.
type reader struct {
	from    *bufio.Reader
	size    int64 // of the file
	start   int64 // offset of the next frame
	content []byte
}

// magic reads the beginning of the file.
func (r *reader) magic(want string) error {
	got := make([]byte, min(int64(len(want)), r.size))
	if _, err := io.ReadFull(r.from, got); err != nil {
		return err
	}
	switch {
	case string(got) == want:
		r.start = int64(len(want))
		return nil
	case len(got) == 0:
		return errEmpty
	case strings.HasPrefix(want, string(bytes.TrimRight(got, "\x00"))):
		return errUnfinished
	}
	line, _, _ := bytes.Cut(got, []byte("\n"))
	return fmt.Errorf("it begins with %q and not with %q", line, want[:len(want)-1])
}

// frame returns the content of the next frame, valid until the next call, or nil at the end of the file.
func (r *reader) frame() ([]byte, error) {
	left := r.size - r.start
	if left < frameHeader {
		return nil, nil
	}
	header, err := r.header()
	if err != nil {
		_, _ = r.from.Discard(frameHeader) // it may be partly written
		return nil, r.unlessZeros(err)
	}
	length, checksum := int64(binary.LittleEndian.Uint32(header)), binary.LittleEndian.Uint32(header[4:])
	if length > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes, at most %d are allowed", length, maxFrame)
	}
	left -= frameHeader + length
	if left < 0 {
		return nil, nil
	}
	if _, err := r.from.Discard(frameHeader); err != nil {
		return nil, err
	}
	if r.content == nil || int64(cap(r.content)) < length {
		r.content = make([]byte, length)
	}
	r.content = r.content[:length]
	if _, err := io.ReadFull(r.from, r.content); err != nil {
		return nil, err
	}
	if crc32.Checksum(r.content, castagnoli) != checksum {
		if left == 0 { // the machine stopped before the whole frame was on disk
			return nil, nil
		}
		return nil, r.unlessZeros(errors.New("wrong checksum of a frame"))
	}
	r.start += frameHeader + length
	return r.content, nil
}

// header returns the header of the next frame, or an error if its checksum is wrong.
func (r *reader) header() ([]byte, error) {
	header, err := r.from.Peek(frameHeader)
	if err != nil {
		return nil, err
	}
	if crc32.Checksum(header[:8], castagnoli) != binary.LittleEndian.Uint32(header[8:]) {
		return nil, errors.New("wrong checksum of a frame's length")
	}
	return header, nil
}

// maxZeros is how many bytes unlessZeros reads. More zeros are never followed by a frame: the machine would have stopped while more
// than that was being written. Reading a longer tail would delay the start of the program.
const maxZeros = 64 << 20

// unlessZeros returns err, or nil if only zeros follow: a machine that stops can leave them at the end of a file.
func (r *reader) unlessZeros(err error) error {
	block := make([]byte, writeSize)
	for from := io.LimitReader(r.from, maxZeros); ; {
		n, readErr := from.Read(block)
		switch {
		case len(bytes.Trim(block[:n], "\x00")) > 0:
			return err
		case readErr == io.EOF:
			return nil
		case readErr != nil:
			return readErr
		}
	}
}
