package guest

import (
	"context"
	"reflect"
)

// Plugin describes a plugin. sonde plugin inspect shows the description to operators without
// running the plugin.
type Plugin struct {
	Name    string // name of its handler block: letters a-z, digits, underscores; required
	Version string // such as "1.4.2"
	Doc     string // one sentence: what it probes

	// The fields below list the grants that the plugin needs, as written in a grant block, such as
	// "tcp://10.0.0.0/8:6379". They are shown to operators and never granted automatically. A
	// plugin that dials only its target needs none.
	Dial []string // destinations of connections
	Env  []string // names of the engine's environment variables
	DNS  []string // host names to look up
}

// Preparer is an optional interface of settings that validates more than their types, or computes
// values from them. Prepare is called after the settings are decoded: when the configuration is
// checked, and in each attempt. Its errors should be a *FieldError.
type Preparer interface {
	Prepare() error
}

// Keeper is an optional interface of settings whose Prepare takes long. Keep is called once, when
// the configuration is checked, and returns the results of Prepare as at most 256 KiB in any
// format. In attempts, Restore is called with these bytes instead of Prepare; it must not retain
// the slice. If the host could not keep the bytes, Prepare is called in attempts as well.
type Keeper interface {
	Preparer
	Keep() []byte
	Restore(kept []byte) error
}

// FieldError describes an invalid setting. The operator is shown its position in the configuration
// file.
type FieldError struct {
	Field   string // as in the configuration: "port", "tls.server_name"
	Problem string // continues a sentence after the name: "must not be empty"
}

// Error returns the field and the problem: "port must not be empty".
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Register registers the plugin. It must be called once, in init.
//
// attempt makes one attempt. It must return soon after ctx is done; from then on every use of a
// connection fails. Each attempt starts with the memory of the program after its init functions:
// changes to package variables are lost, and goroutines and timers end with the attempt. Use
// SetState and Hold to keep data and connections of a probe between attempts. Do expensive work
// that is the same for all attempts in init, where connecting is impossible. A panic makes the
// attempt Unknown.
//
// crypto/rand returns different numbers in each attempt. So do the functions of math/rand, but they
// start at one of only 64 positions of the same sequence, so that an observer of one attempt can
// guess the numbers of the next. If that matters, use your own generator with a seed from
// crypto/rand: rand.New(rand.NewChaCha8(seed)).
//
// S is a struct. Each setting is a field with tags:
//
//	Port string        `sonde:"port,required" doc:"one sentence: meaning, unit, range"`
//	Wait time.Duration `sonde:"wait" default:"500ms"`
//	Key  string        `sonde:"key,sensitive"`
//	TLS  *guest.TLS    `sonde:"tls"` // a block; nil if it is absent
//
// A field may be a string, bool, int, int64, float64, time.Duration, []string, map[string]string,
// or a pointer to one of them or to another such struct. A default is written as in HCL, but
// strings without quotes. Outside WebAssembly, Register panics if a field has an unsupported type,
// so that a test detects it.
func Register[S any](p Plugin, attempt func(ctx context.Context, t Target[S]) Result) {
	fieldsOf(reflect.TypeFor[S]()) // so that the image that attempts start from contains the results of both calls
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
	schema  []setting // empty in WebAssembly
	prepare func(settings []byte, kept func() []byte) (any, error)
	attempt func(ctx context.Context, h *host, settings any) Result
}

// registered is the program's plugin. It is a variable because the functions that a host calls have
// no other access to it.
var registered plugin

// prepare decodes settings. It calls their Restore if kept returns the bytes of an earlier Keep,
// and otherwise their Prepare.
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

// nothingKept is the argument kept of prepare during the check of settings.
func nothingKept() []byte { return nil }

// preparerOf returns settings as a Preparer. Register calls it to fill the runtime's interface
// table; the compiler must not optimize that away.
//
//go:noinline
func preparerOf(settings any) (Preparer, bool) {
	p, ok := settings.(Preparer)
	return p, ok
}
