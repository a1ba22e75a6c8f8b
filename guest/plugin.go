package guest

import (
	"context"
	"reflect"
)

// Plugin describes a plugin. Operators can read the description with sonde plugin
// inspect, without running the plugin.
type Plugin struct {
	Name    string // of its handler block: letters a-z, digits, underscores; required
	Version string // such as "1.4.2"
	Doc     string // one sentence: what it probes

	// The grants that the plugin needs, as written in a grant block, such as
	// "tcp://10.0.0.0/8:6379". They are shown to operators and never granted
	// automatically. A plugin that only dials its target needs none.
	Dial []string // destinations of connections
	Env  []string // names of the engine's environment variables
	DNS  []string // host names to look up
}

// Preparer is an optional interface of settings, to check more than their types, or to
// compute values from them. Prepare is called after the settings are decoded: when the
// configuration is checked, and in each attempt. It should return a *FieldError.
type Preparer interface {
	Prepare() error
}

// Keeper is an optional interface of settings whose Prepare takes long. Keep is called once,
// when the configuration is checked, and returns what Prepare has computed, in at most 256 KiB
// of any format. In attempts, Restore is called with it instead of Prepare; it must not keep
// the slice. Prepare is still called when the host could not keep it.
type Keeper interface {
	Preparer
	Keep() []byte
	Restore(kept []byte) error
}

// FieldError describes a wrong setting. The operator is shown its position in the file.
type FieldError struct {
	Field   string // as in the configuration: "port", "tls.server_name"
	Problem string // follows the name in a sentence: "must not be empty"
}

// Error returns the field and the problem: "port must not be empty".
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Register registers the plugin. Call it once, in init.
//
// Attempt makes one attempt. It must return soon after ctx is done, when every use of a
// connection fails. Each attempt starts with the memory that the program has after its init
// functions: package variables do not keep what an attempt stores, and goroutines and timers
// end with it. Keep what a probe has to remember with SetState and Hold; do what is expensive
// and the same for all attempts in init, which cannot connect. A panic makes the attempt
// Unknown.
//
// Crypto/rand differs in each attempt. The functions of math/rand do, too, but begin at one of
// 64 places of one sequence, so that who has seen one attempt can guess the next. Where that
// matters, seed a generator of your own with crypto/rand: rand.New(rand.NewChaCha8(seed)).
//
// S is a struct. Each setting is a field with tags:
//
//	Port string        `sonde:"port,required" doc:"one sentence: meaning, unit, range"`
//	Wait time.Duration `sonde:"wait" default:"500ms"`
//	Key  string        `sonde:"key,sensitive"`
//	TLS  *guest.TLS    `sonde:"tls"` // a block; nil when it is absent
//
// A field may be a string, bool, int, int64, float64, time.Duration, []string,
// map[string]string, or a pointer to one of them or to another such struct. A default is
// written as in HCL, strings without quotes. Outside of WebAssembly, Register panics when
// a field has another type, so that a test finds it.
func Register[S any](p Plugin, attempt func(ctx context.Context, t Target[S]) Result) {
	fieldsOf(reflect.TypeFor[S]()) // so that attempts find it in memory, as what follows
	preparerOf(new(S))
	registered = plugin{
		about:   p,
		schema:  schemaOf[S](),
		prepare: func(text []byte, kept func() []byte) (any, error) { return prepare[S](text, kept) },
		attempt: func(ctx context.Context, h *host, settings any) Result {
			return attempt(ctx, targetOf(h, settings.(*S)))
		},
	}
	warmUp()
}

// plugin is a registered plugin, without the type of its settings.
type plugin struct {
	about   Plugin
	schema  []setting // empty in WebAssembly, where it is not needed
	prepare func(settings []byte, kept func() []byte) (any, error)
	attempt func(ctx context.Context, h *host, settings any) Result
}

// registered is the program's plugin. It is a variable because the exported functions that
// a host calls have no other way to find it.
var registered plugin

// prepare decodes settings, and calls their Prepare, or their Restore if kept returns what their
// Keep has returned before.
func prepare[S any](text []byte, kept func() []byte) (*S, error) {
	s := new(S)
	if err := decode(string(text), s); err != nil {
		return nil, err
	}
	p, ok := preparerOf(s)
	if !ok {
		return s, nil
	}
	if k, ok := p.(Keeper); ok {
		if b := kept(); len(b) > 0 {
			return s, k.Restore(b)
		}
	}
	return s, p.Prepare()
}

// nothingKept is for the check of settings.
func nothingKept() []byte { return nil }

// preparerOf returns settings that have a Prepare. Register calls it for the runtime's table of
// interfaces, which the compiler must not optimize away.
//
//go:noinline
func preparerOf(settings any) (Preparer, bool) {
	p, ok := settings.(Preparer)
	return p, ok
}
