//go:build linux && (amd64 || arm64)

package image

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/files"
)

// pages has the contents of a memory in a sealed memory file.
type pages struct {
	file    *os.File
	content []byte // the file, mapped for reading
}

// newPages returns pages with a copy of content.
func newPages(content []byte) (pages, error) {
	file, err := files.NewMemory("sonde-image")
	if err != nil {
		return pages{}, fmt.Errorf("image: %w", err)
	}
	p := pages{file: file}
	if err = p.fill(content); err != nil {
		return pages{}, errors.Join(fmt.Errorf("image: %w", err), p.close())
	}
	return p, nil
}

// fill writes the non-zero pages, seals the file and maps it.
func (p *pages) fill(content []byte) error {
	if err := p.file.Truncate(int64(len(content))); err != nil {
		return err
	}
	zeros := make([]byte, pageSize)
	for at := 0; at < len(content); at += pageSize {
		page := content[at:min(at+pageSize, len(content))]
		if bytes.Equal(page, zeros[:len(page)]) {
			continue
		}
		if _, err := p.file.WriteAt(page, int64(at)); err != nil {
			return err
		}
	}
	if err := seal(p.file); err != nil {
		return err
	}
	if len(content) == 0 {
		return nil
	}
	at, err := unix.MmapPtr(int(p.file.Fd()), 0, nil, uintptr(len(content)), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	p.content = unsafe.Slice((*byte)(at), len(content))
	return nil
}

// sealAttempts is the maximum number of tries to seal a file; together they take a few seconds.
const sealAttempts = 20

// seal makes a memory file immutable. Linux refuses that while a page of the file is in use elsewhere, such as
// by the kernel's own memory scans. It waits for 155 ms (mm/memfd.c), which may be too short on a busy
// machine.
func seal(file *os.File) (err error) {
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	for range sealAttempts {
		if _, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != unix.EBUSY {
			break
		}
	}
	return os.NewSyscallError("fcntl", err)
}

func (p *pages) size() uint64 { return uint64(len(p.content)) }

func (p *pages) close() error {
	err := p.file.Close()
	if p.content != nil {
		err = errors.Join(err, unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(p.content)), uintptr(len(p.content))))
		p.content = nil
	}
	return err
}

// mapping is the address space of a memory up to its limit. The used part can be read and written;
// it consists of a private mapping of the initial pages, followed by zeros.
type mapping struct {
	reserved []byte
	used     uint64
}

// mapLimit reserves address space up to the limit, and maps the initial pages.
func (m *Memory) mapLimit() error {
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(m.limit), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("memory of an instance: %w", os.NewSyscallError("mmap", err))
	}
	m.reserved = unsafe.Slice((*byte)(at), m.limit)
	if m.initial == nil || m.initial.size() == 0 {
		return nil
	}
	m.used = m.initial.size()
	const flags = unix.MAP_PRIVATE | unix.MAP_FIXED | unix.MAP_NORESERVE
	if _, err = unix.MmapPtr(int(m.initial.file.Fd()), 0, at, uintptr(m.used), unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		m.Free()
		return fmt.Errorf("memory of an instance: %w", os.NewSyscallError("mmap", err))
	}
	return nil
}

// extend returns the first size bytes.
func (m *Memory) extend(size uint64) ([]byte, error) {
	if size > m.used {
		if err := unix.Mprotect(m.reserved[m.used:size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return nil, os.NewSyscallError("mprotect", err)
		}
		m.used = size
	}
	return m.reserved[:size:size], nil
}

// restore restores the modified pages. Most are copied back, the others are dropped.
func (m *Memory) restore() bool { return m.drop(m.copyBack()) == nil }

// drop returns all modified pages from page from on to the system.
func (m *Memory) drop(from int) error {
	if from == m.usedPages() {
		return nil
	}
	return unix.Madvise(m.reserved[from*pageSize:m.used], unix.MADV_DONTNEED)
}

// Free releases the memory.
func (m *Memory) Free() {
	if m.reserved != nil {
		_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(m.reserved)), uintptr(len(m.reserved))) // cannot fail for a whole mapping
		m.reserved, m.used = nil, 0
	}
}
