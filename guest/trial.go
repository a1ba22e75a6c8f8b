//go:build !wasip1

package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Trial runs one probe of a plugin outside WebAssembly, to test the plugin's logic against a real
// server. It uses the operating system's network. Like a host, it keeps state and held connections
// between attempts, and closes the connections that an attempt leaves open; it has no grants and no
// limits. A Trial must be used by one goroutine only.
type Trial[S any] struct {
	attempt  func(context.Context, Target[S]) Result
	settings *S
	host     host
}

// NewTrial returns a Trial with a target at address. settings is a JSON object in which durations
// are written "1.5s". Settings are validated and completed with defaults as in a host. An error
// about a setting is a *FieldError.
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
	s, err := prepare[S](text, nothingKept)
	if err != nil {
		return nil, err
	}
	return &Trial[S]{attempt, s, host{endpoint: endpoint{name: "trial", address: address}}}, nil
}

// Port adds a named port to the target.
func (t *Trial[S]) Port(name string, number uint16) { t.host.setPort(name, number) }

// Attempt makes one attempt.
func (t *Trial[S]) Attempt(ctx context.Context) Result {
	defer t.host.end()
	return t.attempt(ctx, targetOf(&t.host, t.settings))
}

// Metric returns the value of a metric.
func (t *Trial[S]) Metric(name string) float64 { return t.host.metrics[name] }

// Close closes the held connections.
func (t *Trial[S]) Close() {
	for _, c := range t.host.kept {
		c.Close()
	}
	t.host.kept = nil
}
