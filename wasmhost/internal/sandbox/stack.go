package sandbox

import (
	"errors"
	"reflect"

	"github.com/tetratelabs/wazero/api"
)

const (
	maxStack  = 8 << 20 // bytes of the stack of a call: as much as Linux gives to a thread
	keepStack = 1 << 20 // an instance with a larger one is not used again

	referenceSize = 48      // of a reference to a function that code has made, in bytes
	elementSize   = 8       // of a table
	keepTables    = 1 << 20 // bytes that both may grow by; an instance with more is not used again
)

var errStackOverflow = errors.New("stack overflow")

// function is an exported function of an instance. Each has a stack of its own, which it
// keeps from one call to the next.
type function struct {
	api.Function
	onStack reflect.Value // wazero's field with the stack
	stack   int           // bytes of it that are counted in the budget
}

// newFunction returns a function of an instance.
func newFunction(f api.Function) *function {
	return &function{Function: f, onStack: engineField(f, "stack")}
}

// exported returns a function of the instance; nil if it does not export one.
func (i *Instance) exported(name string) *function {
	if f := i.module.ExportedFunction(name); f != nil {
		return newFunction(f)
	}
	return nil
}

// stackSize returns the size of the stack that a function uses, in bytes. It must be called
// on the goroutine of the call. wazero does not export it, and bounds it to some 100 MB; it
// is 0 where wazero interprets, with a lower bound.
func stackSize(f *function) int {
	if f.onStack.Kind() != reflect.Slice {
		return 0
	}
	return f.onStack.Len()
}

// tableSize returns the bytes that wazero uses for the tables of an instance, and for the
// references to functions that its code has made: it keeps each until the instance is closed.
// It must be called on the goroutine of the call, and is 0 where wazero interprets.
func tableSize(f *function) int {
	engine := engineField(f.Function, "parent")
	if engine.Kind() != reflect.Pointer {
		return 0
	}
	size := referenceSize * engine.Elem().FieldByName("localFunctionInstances").Cap()
	tables := engine.Elem().FieldByName("module").Elem().FieldByName("Tables")
	for n := range tables.Len() {
		size += elementSize * tables.Index(n).Elem().FieldByName("References").Cap()
	}
	return size
}

// engineField returns a field of wazero's structure of a compiled function; the zero Value if
// it is not one, or has no such field.
func engineField(f api.Function, name string) reflect.Value {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.Elem().FieldByName(name)
}

// countGrowth counts what the stack of the call, the tables and the references to functions
// have grown by, and ends the call when that is too much. Until the next tick a stack can
// grow up to wazero's own bound, but only in calls that have a slot.
func (c *call) countGrowth() {
	i, f := c.instance, c.function
	if size := stackSize(f); size > f.stack {
		if size > maxStack {
			i.uncounted = true
			panic(errStackOverflow)
		}
		c.mustReserve(size - f.stack)
		f.stack = size
	}
	if !i.sandbox.config.Module.Allocates {
		return
	}
	if grown := tableSize(f) - i.tables; grown > i.grown {
		c.mustReserve(grown - i.grown)
		i.grown = grown
	}
}

// mustReserve counts memory that the runtime has taken, and ends the call if it is too much.
func (c *call) mustReserve(bytes int) {
	if err := c.instance.reserve(int64(bytes)); err != nil {
		c.instance.uncounted = true
		panic(err)
	}
}
