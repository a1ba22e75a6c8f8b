package sandbox

import (
	"errors"
	"reflect"

	"github.com/tetratelabs/wazero/api"
)

const (
	maxStack  = 8 << 20 // bytes of the stack of a call: as much as Linux gives to a thread
	keepStack = 1 << 20 // an instance with a larger one is not used again
)

var errStackOverflow = errors.New("stack overflow")

// stackSize returns the size of the stack that a function uses, in bytes. It must be called
// on the goroutine of the call. wazero does not export it, and bounds it to some 100 MB; it
// is 0 where wazero interprets, with a lower bound.
func stackSize(f api.Function) int {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0
	}
	stack := v.Elem().FieldByName("stack")
	if stack.Kind() != reflect.Slice || stack.Type().Elem().Kind() != reflect.Uint8 {
		return 0
	}
	return stack.Len()
}

// countStack counts what the stack of the call has grown by, and ends the call when it is
// too large. Until the next tick it can grow up to wazero's own bound, but only in calls
// that have a slot.
func (c *call) countStack() {
	i, size := c.instance, stackSize(c.function)
	switch {
	case size <= i.stackSize:
		return
	case size > maxStack:
		i.uncounted = true
		panic(errStackOverflow)
	}
	if err := i.take(int64(size - i.stackSize)); err != nil {
		i.uncounted = true
		panic(err)
	}
	i.stackSize = size
}
