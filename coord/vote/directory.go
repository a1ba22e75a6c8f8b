package vote

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/sonde-probe/sonde/coord"
)

// directory knows the engines that vote. Its methods are safe for concurrent use by multiple goroutines.
type directory struct {
	vantagesMu sync.Mutex // guards all below
	vantages   map[string]Vantage
	replaced   chan struct{}   // closed when vantages is replaced
	doubtful   map[string]bool // which of them doubt their verdicts
	doubts     chan struct{}   // closed when doubtful is replaced, which is rare
}

func newDirectory() *directory {
	return &directory{replaced: make(chan struct{}), doubts: make(chan struct{})}
}

// get returns the engines that vote, which must not be changed, and a channel that is closed when there are
// others.
func (d *directory) get() (map[string]Vantage, <-chan struct{}) {
	d.vantagesMu.Lock()
	defer d.vantagesMu.Unlock()
	return d.vantages, d.replaced
}

// getDoubtful returns the engines that doubt their verdicts, which must not be changed, and a channel that is
// closed when there are others.
func (d *directory) getDoubtful() (map[string]bool, <-chan struct{}) {
	d.vantagesMu.Lock()
	defer d.vantagesMu.Unlock()
	return d.doubtful, d.doubts
}

// set replaces the engines that vote.
func (d *directory) set(vantages map[string]Vantage) {
	doubtful := map[string]bool{}
	for name, v := range vantages {
		if v.Doubtful {
			doubtful[name] = true
		}
	}
	d.vantagesMu.Lock()
	defer d.vantagesMu.Unlock()
	if !maps.Equal(vantages, d.vantages) {
		d.vantages = vantages
		close(d.replaced)
		d.replaced = make(chan struct{})
	}
	if !maps.Equal(doubtful, d.doubtful) {
		d.doubtful = doubtful
		close(d.doubts)
		d.doubts = make(chan struct{})
	}
}

// follow keeps the directory up to date until ctx is done or the store returns an error.
func (d *directory) follow(ctx context.Context, b coord.Backend) error {
	entries, at, err := rangeOf(ctx, b, keyVantage)
	if err != nil {
		return err
	}
	vantages := map[string]Vantage{}
	for _, e := range entries {
		apply(vantages, coord.Event{Entry: e})
	}
	d.set(vantages)
	for events, err := range b.Watch(ctx, keyVantage, at) {
		if err != nil {
			return err
		}
		vantages = maps.Clone(vantages)
		for _, e := range events {
			apply(vantages, e)
		}
		d.set(vantages)
	}
	return ctx.Err()
}

// apply applies an event. An entry that cannot be read is of an engine without a zone.
func apply(vantages map[string]Vantage, e coord.Event) {
	name := strings.TrimPrefix(e.Key, keyVantage)
	if e.Deleted {
		delete(vantages, name)
		return
	}
	var v Vantage
	if !decode(e.Value, &v) {
		v = Vantage{}
	}
	vantages[name] = v
}

// rangeOf returns the entries of a prefix.
func rangeOf(ctx context.Context, b coord.Backend, prefix string) ([]coord.Entry, coord.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.Range(ctx, prefix)
}
