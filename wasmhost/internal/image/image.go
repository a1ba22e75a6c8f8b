package image

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tetratelabs/wazero/api"
)

// Image is the state of an instance after its initialisation: its linear memory, and its
// mutable globals. It never changes, and is safe for concurrent use by multiple goroutines.
type Image struct {
	pages   pages
	globals []uint64
}

// Initialize writes the data segments to the memory of an instance without an image, and
// returns the start function, which is to be called next; nil if there is none.
func (m *Module) Initialize(instance api.Module) (start api.Function, err error) {
	for i, s := range m.segments {
		if !instance.Memory().Write(s.offset, s.data) {
			return nil, fmt.Errorf("data segment %d: %d bytes at address %d are outside of the memory", i, len(s.data), s.offset)
		}
	}
	if start = instance.ExportedFunction(exportStart); start == nil {
		return nil, nil
	}
	if d := start.Definition(); len(d.ParamTypes())+len(d.ResultTypes()) > 0 {
		return nil, errors.New("start function has parameters or results")
	}
	return start, nil
}

// DropSegments frees the data segments. Initialize must not be called again.
func (m *Module) DropSegments() { m.segments = nil }

// Take returns the image of an initialised instance of m. Each image needs a Close.
func (m *Module) Take(instance api.Module) (*Image, error) {
	memory := instance.Memory()
	content, _ := memory.Read(0, memory.Size())
	image := &Image{}
	for _, g := range m.Globals(instance) {
		image.globals = append(image.globals, g.Get())
	}
	var err error
	image.pages, err = newPages(content)
	return image, err
}

// Globals returns the mutable globals of an instance of m.
func (m *Module) Globals(instance api.Module) []api.MutableGlobal {
	all := make([]api.MutableGlobal, m.globals)
	for i := range all {
		all[i] = instance.ExportedGlobal(exportGlobal + strconv.Itoa(i)).(api.MutableGlobal)
	}
	return all
}

// Size returns the size of an instance's memory in bytes.
func (i *Image) Size() int64 { return int64(i.pages.size()) }

// Complete gives a new instance, whose memory was made from i, the size of its memory and
// the values of its globals.
func (i *Image) Complete(instance api.Module, globals []api.MutableGlobal) error {
	const wasmPage = 64 << 10 // the system's are smaller
	memory := instance.Memory()
	if _, ok := memory.Grow(uint32(i.pages.size()/wasmPage) - memory.Size()/wasmPage); !ok {
		return errors.New("memory cannot grow to the size that it has after the initialisation")
	}
	i.set(globals)
	return nil
}

// Reset makes an instance that was made from i what it was at first. It returns false if
// that cannot be done: its memory has grown, or the system refuses.
func (i *Image) Reset(memory *Memory, globals []api.MutableGlobal) bool {
	if !memory.reset() {
		return false
	}
	i.set(globals)
	return true
}

func (i *Image) set(globals []api.MutableGlobal) {
	for n, g := range globals {
		g.Set(i.globals[n])
	}
}

// Close frees the image. Memories that were made from it can still be used, but not reset.
func (i *Image) Close() error { return i.pages.close() }
