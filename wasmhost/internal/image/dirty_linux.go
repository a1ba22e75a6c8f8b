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

// maxKept is the number of modified pages that an instance keeps: a reset returns the others to the
// system. To copy a page back takes less time than the page fault that creates a new one.
const maxKept = 512

// pagemap is /proc/self/pagemap, which shows the modified pages of a private mapping.
type pagemap struct {
	file int  // stays open
	scan bool // query ranges by ioctl instead of reading an entry for each page
}

// ownPagemap returns the pagemap of this process, or false if it cannot be used.
var ownPagemap = sync.OnceValues(func() (pagemap, bool) {
	file, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pagemap{}, false
	}
	for _, p := range []pagemap{{file, true}, {file, false}} {
		if p.works() {
			return p, true
		}
	}
	unix.Close(file)
	return pagemap{}, false
})

// works tests a pagemap with a memory of three pages: one unused, one read and one written.
func (p pagemap) works() bool {
	content := make([]byte, 3*pageSize)
	content[pageSize] = 1
	initial, err := newPages(content)
	if err != nil {
		return false
	}
	defer initial.close()
	m := &Memory{limit: initial.size(), initial: &initial}
	if m.mapLimit() != nil {
		return false
	}
	defer m.Free()
	m.reserved[2*pageSize] = m.reserved[pageSize] + 1
	var found [][2]int
	ok := p.changes(m, func(from, to int) bool {
		found = append(found, [2]int{from, to})
		return true
	})
	return ok && len(found) == 1 && found[0] == [2]int{2, 3}
}

// changes calls changed for each range of pages that have been modified in memory or swap, relative
// to their file. A range is the first page and the page after the last. changes stops when changed
// returns false. It returns false if the modified pages cannot be determined.
func (p pagemap) changes(m *Memory, changed func(from, to int) bool) bool {
	if p.scan {
		return p.ranges(m, changed)
	}
	return p.entries(m, changed)
}

// address returns the address of a page.
func (m *Memory) address(page int) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.reserved)))) + uint64(page*pageSize)
}

// usedPages returns the number of pages in use.
func (m *Memory) usedPages() int { return int(m.used) / pageSize }

// The ioctl of a pagemap that returns ranges of pages, since Linux 6.7 (struct pm_scan_arg and
// page_region of linux/fs.h). A page matches if its categories, after the bits in inverted are
// flipped, include all of mask and at least one of anyOf.
const (
	ioctlScan     = 0xc0606610 // PAGEMAP_SCAN
	categoryFile  = 1 << 2
	categoryInUse = 1<<3 | 1<<4 // present, or swapped
)

type (
	scanArguments struct {
		size, flags                     uint64
		start, end, walked              uint64
		regions                         *region
		regionCount, maxPages           uint64
		inverted, mask, anyOf, returned uint64
	}
	region struct{ start, end, _ uint64 } // and its categories
)

// ranges implements changes by the ioctl.
func (p pagemap) ranges(m *Memory, changed func(from, to int) bool) bool {
	var regions [64]region
	first := m.address(0)
	a := scanArguments{
		size: uint64(unsafe.Sizeof(scanArguments{})), start: first, end: m.address(m.usedPages()),
		regions: &regions[0], regionCount: uint64(len(regions)),
		inverted: categoryFile, mask: categoryFile, anyOf: categoryInUse, returned: categoryFile,
	}
	for a.start < a.end {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.file), ioctlScan, uintptr(unsafe.Pointer(&a)))
		if errno != 0 || int(n) > len(regions) || a.walked <= a.start {
			return false
		}
		for _, r := range regions[:n] {
			if !changed(int(r.start-first)/pageSize, int(r.end-first)/pageSize) {
				return true
			}
		}
		a.start = a.walked
	}
	return true
}

// An entry of a pagemap has 64 bits for each page of the address space (the kernel's
// admin-guide/mm/pagemap.rst).
const (
	entrySize    = 8
	entryFile    = 1 << 61 // the page belongs to a file, or is shared
	entrySwapped = 1 << 62
	entryPresent = 1 << 63
)

// entries implements changes by reading the entries of all pages.
func (p pagemap) entries(m *Memory, changed func(from, to int) bool) bool {
	var buffer [256 * entrySize]byte
	first, last := int64(m.address(0))/int64(pageSize), m.usedPages()
	for at := 0; at < last; {
		b := buffer[:min(len(buffer), (last-at)*entrySize)]
		if n, err := unix.Pread(p.file, b, (first+int64(at))*entrySize); err != nil || n < len(b) {
			return false
		}
		for ; len(b) > 0; b = b[entrySize:] {
			entry := binary.NativeEndian.Uint64(b)
			if entry&(entryPresent|entrySwapped) != 0 && entry&entryFile == 0 && !changed(at, at+1) {
				return true
			}
			at++
		}
	}
	return true
}

// changed returns the number of bytes in modified pages. It returns the size of the memory if that
// is unknown, or if more than half of the pages are modified.
func (m *Memory) changed() int64 {
	all := m.usedPages()
	pagemap, ok := ownPagemap()
	if !ok {
		return int64(m.size)
	}
	n := 0
	if ok := pagemap.changes(m, func(from, to int) bool { n += to - from; return n <= all/2 }); !ok || n > all/2 {
		return int64(m.size)
	}
	return int64(n * pageSize)
}

// copyBack restores the first modified pages, up to maxKept, from the initial contents. It returns
// the page number from which on other pages may be modified, or 0 if the modified pages cannot be
// determined.
func (m *Memory) copyBack() (end int) {
	pagemap, ok := ownPagemap()
	if !ok {
		return 0
	}
	end = m.usedPages()
	kept := 0
	ok = pagemap.changes(m, func(from, to int) bool {
		if n := maxKept - kept; to-from > n {
			end, to = from+n, from+n
		}
		copy(m.reserved[from*pageSize:to*pageSize], m.initial.content[from*pageSize:to*pageSize])
		kept += to - from
		return end == m.usedPages()
	})
	if !ok {
		return 0
	}
	return end
}
