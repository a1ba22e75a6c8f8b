package guest

import "context"

// Plugin says what a plugin is. Operators see it before they let it run.
type Plugin struct {
	Name    string // what its handler block is called: letters a-z, digits, underscores; required
	Version string // as "1.4.2"
	Doc     string // one sentence: what it probes

	// What it would like to be granted, in the language of a grant block, such as
	// "tcp://10.0.0.0/8:6379". It is shown to operators and never given by
	// itself. A plugin that only dials its target needs none.
	Dial []string // where it connects to
	Env  []string // names of the engine's environment variables
	DNS  []string // host names that it looks up
}

// Preparer is offered by settings that have more to check, or something to make of
// themselves, than their types say. Prepare is called once for each configuration,
// after the settings were read: when the configuration is checked, before anything
// is dialled, and in each instance of the plugin before the first attempt. An error
// is best a *FieldError.
type Preparer interface {
	Prepare() error
}

// FieldError says which setting is wrong, and how. The operator is shown its place
// in the file.
type FieldError struct {
	Field   string // as it is written: "port", "tls.server_name"
	Problem string // follows the name in a sentence: "must not be empty"
}

// Error returns the field and the problem: "port must not be empty".
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Register says what the plugin is and does. It is called once, in init.
//
// Attempt makes one attempt. It returns when ctx is done or soon after: then each
// use of a connection fails by itself. One instance of a plugin makes one attempt
// at a time, for many targets one after another, and may be thrown away between two
// of them: what a probe is to remember is kept by SetState and Hold. Goroutines
// must end with the attempt. A panic makes the attempt Unknown.
//
// S is a struct. Each of its settings is a field with tags:
//
//	Port string        `sonde:"port,required" doc:"one sentence: meaning, unit, range"`
//	Wait time.Duration `sonde:"wait" default:"500ms"`
//	Key  string        `sonde:"key,sensitive"`
//	TLS  *guest.TLS    `sonde:"tls"` // a block; nil when it is not there
//
// A field may be a string, bool, int, int64, float64, time.Duration, []string,
// map[string]string, or a pointer to one of them or to another such struct. A default is written as
// in HCL, text without quotes. Outside of WebAssembly Register panics when a field
// is none of these, so that a test finds it.
func Register[S any](p Plugin, attempt func(ctx context.Context, t Target[S]) Result) {
	registered = plugin{
		about:   p,
		schema:  schemaOf[S](),
		prepare: func(text []byte) (any, error) { return prepare[S](text) },
		attempt: func(ctx context.Context, h *host, settings any) Result {
			return attempt(ctx, targetOf(h, settings.(*S)))
		},
	}
}

// plugin is what was registered, without the type of the settings.
type plugin struct {
	about   Plugin
	schema  []setting // empty in WebAssembly, which has no use for it
	prepare func(settings []byte) (any, error)
	attempt func(ctx context.Context, h *host, settings any) Result
}

// registered is the program's plugin. It is a variable because a host calls exported
// functions, which have nothing else to find it by.
var registered plugin

// prepare reads settings and lets them prepare themselves.
func prepare[S any](text []byte) (*S, error) {
	s := new(S)
	if err := decode(text, s); err != nil {
		return nil, err
	}
	if p, ok := any(s).(Preparer); ok {
		return s, p.Prepare()
	}
	return s, nil
}
