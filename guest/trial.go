//go:build !wasip1

package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Trial is one probe of a plugin outside of WebAssembly, for tests of the plugin's
// logic against a real server. Its connections are those of the operating system. It
// keeps state and held connections between attempts, and closes what an attempt has
// left open, as a host does; it knows no grants and no limits. A Trial is for one
// goroutine.
type Trial[S any] struct {
	attempt  func(context.Context, Target[S]) Result
	settings *S
	host     host
}

// NewTrial returns a probe of a target. Settings are a JSON object of what an operator
// would write, with durations as "1.5s"; they get their defaults, and are checked, as
// in a host: an error is a *FieldError.
func NewTrial[S any](attempt func(context.Context, Target[S]) Result, address, settings string) (*Trial[S], error) {
	values := make(map[string]any)
	d := json.NewDecoder(strings.NewReader(settings))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if err := check(values, schemaOf[S](), ""); err != nil {
		return nil, err
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	s, err := prepare[S](text)
	if err != nil {
		return nil, err
	}
	return &Trial[S]{attempt, s, host{endpoint: endpoint{name: "trial", address: address}}}, nil
}

// Port gives one of the target's ports a name.
func (t *Trial[S]) Port(name string, number uint16) { t.host.setPort(name, number) }

// Attempt makes one attempt.
func (t *Trial[S]) Attempt(ctx context.Context) Result {
	defer t.host.end()
	return t.attempt(ctx, targetOf(&t.host, t.settings))
}

// Metric returns a metric that the attempts have set or added to.
func (t *Trial[S]) Metric(name string) float64 { return t.host.metrics[name] }

// Close closes what is held.
func (t *Trial[S]) Close() {
	for _, c := range t.host.kept {
		c.Close()
	}
	t.host.kept = nil
}
