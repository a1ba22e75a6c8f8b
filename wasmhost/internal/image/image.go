// Package image creates instances in the state of their module after its initialisation, and resets
// them to it. An Image is a copy of the linear memory and the mutable globals of an initialised
// instance. Any number of instances are created from it, and each is reset to it after a call. On
// Linux their memories are private mappings of one sealed memory file: an instance uses memory only
// for the pages that it has modified, and a reset restores those.
//
// An image does not contain the rest of an instance's state, its tables and segments. Package module rejects
// modules that could modify those.
//
// # Files
//
//	image.go         Image: take it, start instances from it, reset instances to it
//	memory.go        Memory: the linear memory of one instance, within a limit
//	memory_linux.go  its mapping, and the reset of the mapping
//	dirty_linux.go   finding the modified pages of a mapping
//	memory_other.go  memory without a mapping
package image

import (
	"errors"

	"github.com/tetratelabs/wazero/api"
)

// Image is the state of an instance after its initialisation: its linear memory and its mutable
// globals. It is immutable and safe for concurrent use by multiple goroutines.
type Image struct {
	pages   pages
	globals []uint64
}

// Take returns the image of an initialised instance. globals are its mutable globals. Each image
// needs a Close.
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

// Complete sets the memory size and the globals of a new instance whose Memory was created from i.
func (i *Image) Complete(instance api.Module, globals []api.MutableGlobal) error {
	const wasmPage = 64 << 10 // pages of the system are smaller
	memory := instance.Memory()
	if _, ok := memory.Grow(uint32(i.pages.size()/wasmPage) - memory.Size()/wasmPage); !ok {
		return errors.New("memory cannot grow to its size after initialization")
	}
	i.set(globals)
	return nil
}

// Reset restores the initial state of an instance that was created from i. It returns false if that
// fails: its memory has grown, or the system refuses.
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

// Close frees the image. Memories created from it can still be used, but not reset.
func (i *Image) Close() error { return i.pages.close() }
