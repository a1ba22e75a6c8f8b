package config

import "github.com/sonde-probe/sonde/probe"

// Handler declares a handler block, such as http { … }, and makes handlers from it.
type Handler struct {
	Schema Schema

	// Revision identifies everything that decides what the handler does besides
	// the values of its block: a probe keeps its state over a reload only if both
	// are unchanged. Empty for a handler that is compiled in.
	Revision string

	// Make makes a handler from the values of a block that matches Schema. It is
	// called once for all blocks with equal values. A *probe.FieldError is
	// reported at the field it names, any other error at the block, and each of
	// several joined errors on its own. Each Parse calls Make from one goroutine.
	// Make must not change Values.
	//
	// A handler with a method Check(probe.Target) error is asked whether it can
	// probe each of its targets; its error is reported in the same way. So are those of the
	// methods CheckSibling(other probe.Handler) error, which is asked about another probe of the
	// target, CheckRule(probe.Rule) error, about arguments of the probe block, and Measures(name string) bool, which says whether
	// attempts may record a number of that name in their probe.Trace.
	Make func(Values, Context) (probe.Handler, error)

	// Load, if it is set, returns Make and Revision when a configuration with this engine block uses the handler: only Schema is
	// known before. A plugin or script block of the same name goes before such a handler.
	Load func(Engine) (Handler, error)

	// InScript is what is probably not meant in the text of the script block that adds the handler.
	InScript []*ScriptError

	// NoCluster says why no target of an engine with a cluster block can have the handler; empty: it can.
	NoCluster string

	// NoPort says that the handler reaches a host without a port, so that a probe_module
	// can have it although it has no argument port.
	NoPort bool

	// Warn returns what is probably not meant in a block from which Make has made a
	// handler, in the form of Make's errors. They are reported as warnings. Of the target
	// it may read Env, Dir, User and Runtime; it is called once for all blocks with equal values
	// and targets with none of these. Nil: there are no warnings.
	Warn func(Values, probe.Target) error
}

// checker is the optional interface of a handler that checks its targets.
type checker interface {
	Check(t probe.Target) error
}

// siblingChecker is the optional interface of a handler that has to agree with the handlers of the
// other probes of its target.
type siblingChecker interface {
	CheckSibling(other probe.Handler) error
}

// ruleChecker is the optional interface of a handler with which some arguments of a probe block make
// no sense. Those of defaults blocks are for other handlers, too.
type ruleChecker interface {
	CheckRule(r probe.Rule) error
}

// measurer is the optional interface of a handler that measures numbers, or may.
type measurer interface {
	Measures(name string) bool
}

// Settings are arguments and blocks that another package declares, as a struct with
// hcl tags: see SettingsOf. The zero value declares none.
type Settings struct {
	schema Schema
	decode func(Values, Context) (any, error)

	// Warn returns what is probably not meant in a block without errors, as Handler.Warn
	// does. Nil: there are no warnings.
	Warn func(Values) error

	// NeedsPort says of an output of gateways that it leaves out members of groups without a port.
	NeedsPort bool
}

// Driver is a block of a target that says what starts or restarts it, such as
// process { … }: see DriverOf. A target has at most one.
type Driver struct {
	Settings

	// ByProbes says that nothing but a failing startup or liveness probe restarts the
	// target, so that the block has no effect without one.
	ByProbes bool

	// IsLocal says that the target runs on the host of the engine: each engine of a cluster
	// that has the block runs one of its own.
	IsLocal bool

	// WarnOfTarget is Warn for what Options.TargetSettings declares of a target that has
	// the block: restart_policy and the like.
	WarnOfTarget func(Values) error

	// target returns what probes of the target take from the block where the target
	// block does not say otherwise: Address, Env, Dir, User and Runtime. Nil for nothing.
	target func(settings any) probe.Target

	// OfTarget returns the settings with what they take from the target: its ports. Nil for nothing.
	OfTarget func(settings any, t probe.Target) any
}

// Context is what a handler or driver may have to know besides its own block: arguments of
// the engine block.
type Context struct {
	Compatibility probe.Compatibility
	State         string // the state file; empty for none
}

// Schema declares the fields of a block.
type Schema struct {
	Doc    string
	Label  string // the name of the String that the label of the block sets, which can be left out; empty: it has none
	Fields []Field
}

// Field is one argument, or one nested block.
type Field struct {
	Name      string
	Type      Type
	Required  bool
	Default   any      // its value when it is not given, as in Values; nil for none
	Unset     string   // what holds when it is not given and has no Default: "10s", "that of the target"; empty when not known
	Sensitive bool     // its value is never shown
	NonZero   bool     // 0 is an error, since the zero value of the Go field stands for the default
	Path      bool     // of a String: a path on the machine of the engine; a relative one starts at its working directory, and is not pushed
	Socket    bool     // the same for a socket: @ begins a name in the abstract namespace of Linux
	OneOf     []string // the allowed words of a String; nil for any text
	Min, Max  string   // the smallest and the largest value that is accepted, as they are written; empty for none
	Doc       string   // meaning and conditions, in one to four sentences without the final period
	Labels    []string // of a block: what each label means; the last ones can be left out
	Block     *Schema  // the fields inside, for Type Block and Object

	optional int    // how many of the labels can be left out
	example  string // of the header of a block with labels
}

// Type is the type of the value of a Field, in words.
type Type string

// The types, and the Go types that Values hold for them.
const (
	String     Type = "string"                  // string; numbers and bools are converted
	Bool       Type = "bool"                    // bool
	Int        Type = "whole number"            // int64
	Float      Type = "number"                  // float64
	Duration   Type = "duration"                // time.Duration; written "500ms"
	Strings    Type = "list of strings"         // []string
	StringMap  Type = "map of strings"          // map[string]string
	StringsMap Type = "map of lists of strings" // map[string][]string; a single string becomes a list of one
	Block      Type = "block"                   // Values; a nested block
	Object     Type = "object"                  // Values; written as an argument: name = { … }
	Size       Type = "size"                    // int64, in bytes; written "32MiB"
	Any        Type = "expression"              // evaluated by this package; what it accepts is in Doc
)

// Values are the fields of one block that are given or have a default, by name.
type Values map[string]any
