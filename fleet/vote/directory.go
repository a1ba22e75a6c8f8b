package vote

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
)

// directory knows the engines that vote. Its methods are safe for concurrent use by multiple goroutines.
type directory struct {
	vantagesMu sync.Mutex // guards all below
	vantages   map[string]Vantage
	voters     map[string]voter // nil until the vantages were read
	replaced   chan struct{}    // closed when voters is replaced, which is rare
}

// voter is what of a Vantage decides which votes count.
type voter struct {
	zone      string
	doubtful  bool
	isDrained bool
}

func newDirectory() *directory { return &directory{replaced: make(chan struct{})} }

// get returns the engines that vote, which must not be changed.
func (d *directory) get() map[string]Vantage {
	d.vantagesMu.Lock()
	defer d.vantagesMu.Unlock()
	return d.vantages
}

// getVoters returns the engines that vote, which must not be changed, nil before they were read, and a channel
// that is closed when there are others, or they are in other zones, or others of them doubt their verdicts or are drained.
func (d *directory) getVoters() (map[string]voter, <-chan struct{}) {
	d.vantagesMu.Lock()
	defer d.vantagesMu.Unlock()
	return d.voters, d.replaced
}

// set replaces the engines that vote.
func (d *directory) set(vantages map[string]Vantage) {
	voters := make(map[string]voter, len(vantages))
	for name, v := range vantages {
		voters[name] = voter{v.Zone, v.Doubtful, v.Drained}
	}
	d.vantagesMu.Lock()
	defer d.vantagesMu.Unlock()
	d.vantages = vantages
	if d.voters == nil || !maps.Equal(voters, d.voters) {
		d.voters = voters
		close(d.replaced)
		d.replaced = make(chan struct{})
	}
}

// candidates returns the engines that may vote, those that are not drained, as quorum.Choose takes them.
func candidates(voters map[string]voter) []quorum.Vantage {
	all := make([]quorum.Vantage, 0, len(voters))
	for name, v := range voters {
		if !v.isDrained {
			all = append(all, quorum.Vantage{Name: name, Zone: v.zone})
		}
	}
	return all
}

// electorate is whose votes about the probes of a shard count. It is used by one goroutine.
type electorate struct {
	shard  shard.ID
	voters map[string]voter
	chosen map[quorum.Rule]map[string]bool // by the rules that were asked for
}

func newElectorate(id shard.ID, voters map[string]voter) *electorate {
	return &electorate{id, voters, map[quorum.Rule]map[string]bool{}}
}

// has reports whether an engine is one of those that a rule chooses.
func (e *electorate) has(name string, r quorum.Rule) bool {
	chosen, ok := e.chosen[r]
	if !ok {
		chosen = map[string]bool{}
		for _, c := range quorum.Choose(e.shard, r, candidates(e.voters)) {
			chosen[c] = true
		}
		e.chosen[r] = chosen
	}
	return chosen[name]
}

// follow keeps the directory up to date until ctx is done or the store returns an error.
func (d *directory) follow(ctx context.Context, b coord.Backend) error {
	vantages := map[string]Vantage{}
	return coord.FollowEntries(ctx, b, keyVantage, func(events []coord.Event, _ bool) {
		vantages = maps.Clone(vantages)
		for _, e := range events {
			apply(vantages, e)
		}
		d.set(vantages)
	})
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
