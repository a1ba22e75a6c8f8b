package config

import (
	"github.com/sonde-probe/sonde/probe"
)

// Handler is what a handler block, such as http { … }, takes and makes.
type Handler struct {
	Schema Schema

	// Revision stands for what decides what the handler does beside the values
	// of its block: handlers of equal values are only the same when their
	// revisions are equal too. Empty for a handler that is compiled in.
	Revision string

	// Make makes a handler from the values of a block that has matched Schema.
	// It is called once for all blocks with equal values. A *probe.FieldError is
	// shown at the field it names, any other error at the block, and each of
	// several that errors.Join has joined on its own. Each Parse calls Make from
	// one goroutine. Make must not change Values.
	//
	// A handler with a method Check(probe.Target) error is asked whether it can
	// probe each of its targets; its error is shown in the same way.
	Make func(Values, Context) (probe.Handler, error)
}

// Context is what a handler may have to know beside its own block.
type Context struct {
	Compatibility probe.Compatibility // of the engine block
}

// Schema says which fields a block has.
type Schema struct {
	Doc    string
	Fields []Field
}

// Field is one argument, or one block, in a block.
type Field struct {
	Name      string
	Type      Type
	Required  bool
	Default   any     // its value when it is not given, as in Values; nil for none
	Sensitive bool    // its value is never shown
	NonZero   bool    // 0 is refused, since in Go it stands for the default
	Doc       string  // one sentence
	Block     *Schema // what is inside, for Type Block and Object

	zeroMeans string // the default that 0 stands for, as text; empty when that is not known
}

// Type is what a Field holds.
type Type uint8

// The types, and how Values holds them.
const (
	String     Type = iota + 1 // string; a number or a bool is taken as its text
	Bool                       // bool
	Int                        // int64
	Float                      // float64
	Duration                   // time.Duration; written "500ms"
	Strings                    // []string
	StringMap                  // map[string]string
	StringsMap                 // map[string][]string; a single string is taken as a list of one
	Block                      // Values; a block
	Object                     // Values; written as an argument: name = { … }
	Size                       // int64, in bytes; written "32MiB"
)

// Values are the fields of one block that were given or have a default, by name.
type Values map[string]any

// checker is what a handler may offer beside Probe.
type checker interface {
	Check(t probe.Target) error
}
