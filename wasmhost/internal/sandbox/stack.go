package sandbox

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"

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
	stack int // bytes of it that are counted in the budget
}

// exported returns a function of the instance; nil if it does not export one.
func (i *Instance) exported(name string) *function {
	if f := i.module.ExportedFunction(name); f != nil {
		return &function{Function: f}
	}
	return nil
}

// layout has the indexes of fields of wazero's structures, which it does not export.
type layout struct {
	engine             reflect.Type // of a function
	isCompiled         bool         // otherwise it is interpreted, and has no fields
	stack, parent      int          // of engine
	references, module int          // of parent
	tables             int          // of module
	elements           int          // of a table
}

// latest is the layout of the wazero that this program is built with.
var latest atomic.Pointer[layout]

// checkLayout returns an error if wazero's structures are not those of version 1.12: what they use
// could not be counted.
func checkLayout(f api.Function) error {
	l := &layout{engine: reflect.TypeOf(f)}
	if known := latest.Load(); known != nil && known.engine == l.engine {
		return nil
	}
	missing := false
	field := func(in reflect.Type, name string, kind reflect.Kind) (index int, of reflect.Type) {
		if in.Kind() == reflect.Pointer && in.Elem().Kind() == reflect.Struct {
			if f, ok := in.Elem().FieldByName(name); ok && len(f.Index) == 1 && f.Type.Kind() == kind {
				return f.Index[0], f.Type
			}
		}
		missing = true
		return 0, in
	}
	if l.isCompiled = !strings.HasSuffix(l.engine.Elem().PkgPath(), "/interpreter"); l.isCompiled {
		var parent, module, tables reflect.Type
		l.stack, _ = field(l.engine, "stack", reflect.Slice)
		l.parent, parent = field(l.engine, "parent", reflect.Pointer)
		l.references, _ = field(parent, "localFunctionInstances", reflect.Slice)
		l.module, module = field(parent, "module", reflect.Pointer)
		l.tables, tables = field(module, "Tables", reflect.Slice)
		l.elements, _ = field(tables.Elem(), "References", reflect.Slice)
	}
	if missing {
		return errors.New("this program is built with a version of wazero that it does not support: use that of its go.mod")
	}
	latest.Store(l)
	return nil
}

// stackSize returns the size of the stack that a function uses, in bytes. It must be called
// on the goroutine of the call. wazero does not export it, and bounds it to some 100 MB; it
// is 0 where wazero interprets, with a lower bound.
func stackSize(f *function) int {
	l := latest.Load()
	if !l.isCompiled {
		return 0
	}
	return reflect.ValueOf(f.Function).Elem().Field(l.stack).Len()
}

// tables are what wazero uses for the tables of an instance, and for the references to functions
// that its code has made: it keeps each until the instance is closed.
type tables struct {
	references reflect.Value // a slice; not valid where wazero interprets
	elements   []reflect.Value
}

// tablesOf returns the tables of the instance that has a function.
func tablesOf(f *function) (t tables) {
	l := latest.Load()
	if !l.isCompiled {
		return t
	}
	parent := reflect.ValueOf(f.Function).Elem().Field(l.parent).Elem()
	t.references = parent.Field(l.references)
	all := parent.Field(l.module).Elem().Field(l.tables)
	for n := range all.Len() {
		t.elements = append(t.elements, all.Index(n).Elem().Field(l.elements))
	}
	return t
}

// size returns the bytes that they use. It must be called on the goroutine of the call, and is 0
// where wazero interprets.
func (t *tables) size() (bytes int) {
	if t.references.IsValid() {
		bytes = referenceSize * t.references.Cap()
	}
	for _, e := range t.elements {
		bytes += elementSize * e.Cap()
	}
	return bytes
}
