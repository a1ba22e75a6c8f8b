package sandbox

import (
	"errors"
	"reflect"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

const (
	maxStack  = 8 << 20 // maximum size of the stack of a call, in bytes: the default of Linux for a thread
	keepStack = 1 << 20 // an instance with a larger stack is not reused
)

var errStackOverflow = errors.New("stack overflow")

// function is an exported function of an instance. Each function has its own stack, which it keeps
// between calls.
type function struct {
	api.Function
	field         reflect.Value // wazero's unexported field with the stack
	isInterpreted bool          // wazero has no compiler for this processor
	stack         int           // size of the stack that is counted in the budget
}

func newFunction(f api.Function) *function {
	v := reflect.ValueOf(f).Elem()
	return &function{Function: f, field: v.FieldByName("stack"), isInterpreted: strings.HasSuffix(v.Type().PkgPath(), "/interpreter")}
}

// exported returns an exported function of the instance, or nil if there is none with that name.
func (i *Instance) exported(name string) *function {
	if f := i.module.ExportedFunction(name); f != nil {
		return newFunction(f)
	}
	return nil
}

// check returns an error if the size of the stack cannot be read: wazero's structures are not those of
// version 1.12.
func (f *function) check() error {
	if f.isInterpreted || f.field.IsValid() && f.field.Type() == reflect.TypeFor[[]byte]() {
		return nil
	}
	return errors.New("built with an unsupported version of wazero: use the version in go.mod")
}

// stackSize returns the size of the function's stack, in bytes. It must be called on the goroutine of the
// call. wazero does not export the size, and bounds it to about 100 MB. If wazero interprets, its bound is
// lower and stackSize returns 0.
func (f *function) stackSize() int {
	if f.isInterpreted {
		return 0
	}
	return f.field.Len()
}
