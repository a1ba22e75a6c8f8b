//go:build linux && (amd64 || arm64)

package image

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/tests/tier"
)

// newMemory returns a memory of three pages, of which only the second is not zero.
func newMemory(t *testing.T) *Memory {
	t.Helper()
	content := make([]byte, 3*pageSize)
	content[pageSize] = 1
	p, err := newPages(content)
	if err != nil {
		t.Fatal(err)
	}
	m := &Memory{limit: p.size(), size: p.size(), initial: &p}
	if err := m.mapLimit(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Free()
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func unlimited(int64) error { return nil }

// pagemaps returns the ways to use the pagemap of this process.
func pagemaps(t *testing.T) map[string]pagemap {
	t.Helper()
	own, ok := ownPagemap()
	if !ok {
		t.Skip("this system has no /proc/self/pagemap as Linux has it")
	}
	all := map[string]pagemap{"entries": {own.file, false}}
	if own.scan {
		all["ranges"] = own
	}
	return all
}

func TestThePagemapTellsWhichPagesWereChanged(t *testing.T) {
	for name, p := range pagemaps(t) {
		t.Run(name, func(t *testing.T) {
			const size = 600 // more than a single ioctl returns
			initial, err := newPages(make([]byte, size*pageSize))
			if err != nil {
				t.Fatal(err)
			}
			defer initial.close()
			m := &Memory{limit: initial.size(), size: initial.size(), initial: &initial}
			if err := m.mapLimit(); err != nil {
				t.Fatal(err)
			}
			defer m.Free()
			want := make([]bool, size)
			for page := range want {
				if want[page] = page%3 == 1 || page > 500; want[page] {
					m.reserved[page*pageSize] = 1
				} else if m.reserved[page*pageSize] != 0 {
					t.Errorf("page %d is not zero", page)
				}
			}
			got := make([]bool, size)
			if !p.changes(m, func(from, to int) bool {
				for page := from; page < to; page++ {
					got[page] = true
				}
				return true
			}) {
				t.Fatal("the system does not say it")
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestAFileThatIsNoPagemapIsNotUsed(t *testing.T) {
	for _, name := range []string{os.DevNull, "/dev/zero"} {
		file, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(file)
		for _, scan := range []bool{false, true} {
			if (pagemap{file, scan}).works() {
				t.Errorf("%s is used, scan is %v", name, scan)
			}
		}
	}
}

// Both ways to reset restore the image.
func TestChangedPagesAreCopiedBackOrDropped(t *testing.T) {
	m := newMemory(t)
	ways := map[string]func() bool{"reset": m.reset, "dropped": func() bool { return m.drop(0) == nil }}
	if _, ok := ownPagemap(); ok {
		ways["copied back"] = func() bool { return m.copyBack() == m.usedPages() }
	}
	for name, reset := range ways {
		for n := range m.reserved {
			m.reserved[n] = 0xee
		}
		if !reset() || !bytes.Equal(m.reserved, m.initial.content) {
			t.Errorf("%s: the memory is not the image", name)
		}
	}
}

func TestManyChangedPagesAreGivenBack(t *testing.T) {
	content := bytes.Repeat([]byte{7}, (maxKept+40)*pageSize)
	initial, err := newPages(content)
	if err != nil {
		t.Fatal(err)
	}
	defer initial.close()
	m := &Memory{limit: initial.size(), size: initial.size(), initial: &initial}
	if err := m.mapLimit(); err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for at := 0; at < len(m.reserved); at += pageSize {
		if at != 5*pageSize { // so that there are two ranges
			m.reserved[at] = 1
		}
	}
	if !m.reset() || !bytes.Equal(m.reserved, content) {
		t.Fatal("the memory is not the image")
	}
	for name, p := range pagemaps(t) {
		n := 0
		if !p.changes(m, func(from, to int) bool { n += to - from; return true }) || n > maxKept || n == 0 {
			t.Errorf("%s: %d pages are kept", name, n)
		}
	}
}

// A reset that has found more modified pages than it keeps stops the scan.
func TestAScanEndsEarly(t *testing.T) {
	m := newMemory(t)
	m.reserved[0], m.reserved[2*pageSize] = 1, 1 // not adjacent
	for name, p := range pagemaps(t) {
		calls := 0
		if ok := p.changes(m, func(int, int) bool { calls++; return false }); !ok || calls != 1 {
			t.Errorf("%s: %d calls", name, calls)
		}
	}
}

// Otherwise a write to an image's file would appear in all instances.
func TestTheFileOfAnImageCannotBeWritten(t *testing.T) {
	m := newMemory(t)
	if _, err := m.initial.file.WriteAt([]byte{1}, 0); err == nil {
		t.Error("it was written")
	}
	if err := m.initial.file.Truncate(0); err == nil {
		t.Error("it was truncated: an instance that uses its memory would end the process")
	}
}

// The test keeps a page of the file in a pipe for longer than Linux itself waits for it.
func TestAFileIsSealedOnceItsPagesAreNotInUse(t *testing.T) {
	tier.Slow(t)
	file, err := files.NewMemory("sonde-image")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := file.WriteAt(make([]byte, pageSize), 0); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Splice(int(file.Fd()), new(int64), int(w.Fd()), nil, pageSize, 0); n != int64(pageSize) || err != nil {
		t.Fatalf("%d bytes are in the pipe, %v", n, err)
	}
	sealed := make(chan error, 1)
	go func() { sealed <- seal(file) }()
	for range 3 {
		if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != unix.EBUSY {
			t.Fatalf("it is not in use: %v", err)
		}
	}
	if _, err := io.ReadFull(r, make([]byte, pageSize)); err != nil {
		t.Fatal(err)
	}
	if err := <-sealed; err != nil {
		t.Error(err)
	}
	if _, err := file.WriteAt([]byte{1}, 0); err == nil {
		t.Error("it was written")
	}
}

func TestDescriptorsAreClosed(t *testing.T) {
	ownPagemap() // stays open
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		n := 0
		for _, fd := range all {
			if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.Contains(to, "sonde-image") {
				n++
			}
		}
		return n
	}
	before := count()
	p, err := newPages(make([]byte, pageSize))
	if err != nil || count() != before+1 {
		t.Fatalf("%d descriptors, %v", count()-before, err)
	}
	if err := p.close(); err != nil || count() != before {
		t.Errorf("%d descriptors, %v", count()-before, err)
	}
}

func TestALackOfMemoryIsAShortage(t *testing.T) {
	if _, err := NewMemory(nil, 0, 1<<47, unlimited); !shortage.Is(err) {
		t.Errorf("more than the address space: got %v", err)
	}
}

// The system may refuse memory. The test causes that with memory that is mapped read-only.
func TestARefusalOfTheSystemIsItsError(t *testing.T) {
	m, err := NewMemory(nil, 0, int64(pageSize), unlimited)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	if _, err := unix.MmapPtr(int(file.Fd()), 0, unsafe.Pointer(&m.reserved[0]), uintptr(pageSize), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		t.Fatal(err)
	}
	if grown := m.Reallocate(uint64(pageSize)); grown != nil || !m.Refused || m.Err == nil {
		t.Errorf("it grew to %d bytes, refused is %v, the error %v", len(grown), m.Refused, m.Err)
	}
}
