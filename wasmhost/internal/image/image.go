// Package image starts instances, and starts them again, in the state that their module has
// after its initialisation. An Image is the linear memory and the mutable globals of an
// initialised instance. Any number of instances are made from it, and each is reset to it
// after a call. On Linux their memories are private mappings of one sealed memory file: an
// instance uses memory for the pages that it has changed, and a reset copies those back.
//
// The rest of an instance's state, its tables and segments, is not in an image. Package module rejects modules that
// may change it.
//
// # Files
//
//	image.go         Image: taking it, starting from it, resetting to it
//	memory.go        Memory: the linear memory of one instance, within a limit
//	memory_linux.go  its mapping, and how that is reset
//	dirty_linux.go   which pages of a mapping were changed
//	memory_other.go  memory without a mapping
package image

import (
	"errors"

	"github.com/tetratelabs/wazero/api"
)

// Image is the state of an instance after its initialisation: its linear memory, and its
// mutable globals. It never changes, and is safe for concurrent use by multiple goroutines.
type Image struct {
	pages   pages
	globals []uint64
}

// Take returns the image of an initialised instance with mutable globals. Each image needs a Close.
func Take(instance api.Module, globals []api.MutableGlobal) (*Image, error) {
	memory := instance.Memory()
	content, _ := memory.Read(0, memory.Size())
	image := &Image{}
	for _, g := range globals {
		image.globals = append(image.globals, g.Get())
	}
	var err error
	image.pages, err = newPages(content)
	return image, err
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
