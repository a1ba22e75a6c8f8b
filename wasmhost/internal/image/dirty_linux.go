//go:build linux && (amd64 || arm64)

package image

import (
	"encoding/binary"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

var pageSize = os.Getpagesize()

// maxKept is how many changed pages an instance keeps: with more, a reset gives all back.
// Copying a page back takes less time than the fault that makes a new one.
const maxKept = 128

// An entry of /proc/self/pagemap has 64 bits for each page of the address space (the
// kernel's admin-guide/mm/pagemap.rst).
const (
	entrySize    = 8
	entryFile    = 1 << 61 // the page is that of a file, or shared
	entrySwapped = 1 << 62
	entryPresent = 1 << 63
)

// pagemap returns the descriptor of the file that says which pages a private mapping has
// changed, or -1 where it cannot be read or is not what Linux has. It stays open.
var pagemap = sync.OnceValue(func() int {
	file, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if !tellsChanges(file) {
		unix.Close(file)
		return -1
	}
	return file
})

// tellsChanges tries a pagemap out with a memory of three pages: one that is not used, one
// that is read, and one that is written.
func tellsChanges(pagemap int) bool {
	content := make([]byte, 3*pageSize)
	content[pageSize] = 1
	p, err := newPages(content)
	if err != nil {
		return false
	}
	defer p.close()
	m := &Memory{limit: p.size(), initial: &p}
	if m.reserve() != nil {
		return false
	}
	defer m.Free()
	m.reserved[2*pageSize] = m.reserved[pageSize] + 1
	var changed []int
	ok := m.changes(pagemap, func(page int) { changed = append(changed, page) })
	return ok && len(changed) == 1 && changed[0] == 2
}

// changes calls changed for each page that differs from its file in the memory of this
// process, or in swap. It returns false if pagemap cannot be read.
func (m *Memory) changes(pagemap int, changed func(page int)) bool {
	var buffer [256 * entrySize]byte
	first := int64(uintptr(unsafe.Pointer(unsafe.SliceData(m.reserved)))) / int64(pageSize)
	last := int(m.used) / pageSize
	for at := 0; at < last; {
		b := buffer[:min(len(buffer), (last-at)*entrySize)]
		if n, err := unix.Pread(pagemap, b, (first+int64(at))*entrySize); err != nil || n < len(b) {
			return false
		}
		for ; len(b) > 0; b = b[entrySize:] {
			entry := binary.NativeEndian.Uint64(b)
			if entry&(entryPresent|entrySwapped) != 0 && entry&entryFile == 0 {
				changed(at)
			}
			at++
		}
	}
	return true
}

// copyBack copies the initial contents to the pages that were changed. It returns false if
// they are too many, or not known.
func (m *Memory) copyBack() bool {
	file := pagemap()
	if file < 0 {
		return false
	}
	n := 0
	ok := m.changes(file, func(page int) {
		if n++; n <= maxKept {
			from, to := page*pageSize, (page+1)*pageSize
			copy(m.reserved[from:to], m.initial.content[from:to])
		}
	})
	return ok && n <= maxKept
}
