package sandbox

import (
	"errors"
	"reflect"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

const (
	maxStack  = 8 << 20 // bytes of the stack of a call: as much as Linux gives to a thread
	keepStack = 1 << 20 // an instance with a larger one is not used again
)

var errStackOverflow = errors.New("stack overflow")

// function is an exported function of an instance. Each has a stack of its own, which it
// keeps from one call to the next.
type function struct {
	api.Function
	field         reflect.Value // wazero's field with the stack, which it does not export
	isInterpreted bool          // there is no compiler for this processor
	stack         int           // bytes of the stack that are counted in the budget
}

func newFunction(f api.Function) *function {
	v := reflect.ValueOf(f).Elem()
	return &function{Function: f, field: v.FieldByName("stack"), isInterpreted: strings.HasSuffix(v.Type().PkgPath(), "/interpreter")}
}

// exported returns a function of the instance; nil if it does not export one.
func (i *Instance) exported(name string) *function {
	if f := i.module.ExportedFunction(name); f != nil {
		return newFunction(f)
	}
	return nil
}

// check returns an error if the size of the stack could not be counted: wazero's structures are not those of
// version 1.12.
func (f *function) check() error {
	if f.isInterpreted || f.field.IsValid() && f.field.Type() == reflect.TypeFor[[]byte]() {
		return nil
	}
	return errors.New("this program is built with a version of wazero that it does not support: use that of its go.mod")
}

// stackSize returns the size of the stack that the function uses, in bytes. It must be called on the goroutine
// of the call. wazero does not tell it, and bounds it to some 100 MB; it is 0 where wazero interprets, with a
// lower bound.
func (f *function) stackSize() int {
	if f.isInterpreted {
		return 0
	}
	return f.field.Len()
}
