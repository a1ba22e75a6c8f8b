//go:build linux && (amd64 || arm64)

package image

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/shortage"
)

// newMemory returns a memory of three pages, the second of which is not zero.
func newMemory(t *testing.T) *Memory {
	t.Helper()
	content := make([]byte, 3*pageSize)
	content[pageSize] = 1
	p, err := newPages(content)
	if err != nil {
		t.Fatal(err)
	}
	m := &Memory{limit: p.size(), size: p.size(), initial: &p}
	if err := m.reserve(); err != nil {
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

func TestThePagemapTellsWhichPagesWereChanged(t *testing.T) {
	file := pagemap()
	if file < 0 {
		t.Skip("this system has no /proc/self/pagemap as Linux has it")
	}
	m := newMemory(t)
	m.reserved[0], m.reserved[2*pageSize] = 1, 1
	_ = m.reserved[pageSize]
	var changed []int
	if !m.changes(file, func(page int) { changed = append(changed, page) }) || len(changed) != 2 || changed[0] != 0 || changed[1] != 2 {
		t.Errorf("got %v", changed)
	}
}

func TestAFileThatIsNoPagemapIsNotUsed(t *testing.T) {
	for _, name := range []string{os.DevNull, "/dev/zero"} {
		file, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(file)
		if tellsChanges(file) {
			t.Errorf("%s is used", name)
		}
	}
}

// Both ways to reset restore the image.
func TestChangedPagesAreCopiedBackOrDropped(t *testing.T) {
	m := newMemory(t)
	for name, reset := range map[string]func() bool{
		"reset":       m.reset,
		"copied back": func() bool { return m.copyBack() || pagemap() < 0 && m.reset() },
		"dropped":     func() bool { return m.drop() == nil },
	} {
		for n := range m.reserved {
			m.reserved[n] = 0xee
		}
		if !reset() || !bytes.Equal(m.reserved, m.initial.content) {
			t.Errorf("%s: the memory is not the image", name)
		}
	}
}

func TestManyChangedPagesAreGivenBack(t *testing.T) {
	p, err := newPages(make([]byte, (maxKept+1)*pageSize))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	m := &Memory{limit: p.size(), size: p.size(), initial: &p}
	if err := m.reserve(); err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for at := 0; at < len(m.reserved); at += pageSize {
		m.reserved[at] = 1
	}
	if !m.reset() {
		t.Fatal("it cannot be reset")
	}
	n := 0
	if file := pagemap(); file >= 0 && m.changes(file, func(int) { n++ }) && n > 0 {
		t.Errorf("%d pages are kept", n)
	}
}

// What is written to an image's file would be in all instances.
func TestTheFileOfAnImageCannotBeWritten(t *testing.T) {
	m := newMemory(t)
	if _, err := unix.Pwrite(m.initial.file, []byte{1}, 0); err == nil {
		t.Error("it was written")
	}
	if err := unix.Ftruncate(m.initial.file, 0); err == nil {
		t.Error("it was truncated: an instance that uses its memory would end the process")
	}
}

func TestDescriptorsAreClosed(t *testing.T) {
	pagemap() // stays open
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

// The system may refuse memory. Here it is for memory that is mapped for reading only.
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
