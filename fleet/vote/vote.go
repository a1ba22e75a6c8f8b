// Package vote shares what the vantages of a fleet say about targets (package quorum), in the store of package
// coord.
//
// An engine puts its votes under the lease of its membership, so that those of an engine that has died
// vanish. The owner of a shard watches the votes about its targets, and puts the joint verdicts, in
// transactions that require its token. Only changes are written.
//
//	vote.go      Vote, Vantage and Joint, and how they are written
//	voter.go     Voter: puts what this engine says, and follows which engines vote
//	directory.go the engines that vote, and whose votes count
//	follow.go    Voter.Follow: the joint verdicts of the fleet
//	counter.go   Counter: puts the joint verdicts of the shards that this engine owns
//	tally.go     the votes of one shard
package vote

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
)

// The keys of a store.
const (
	keyQuorum  = "quorum/"  // and a shard, and one of the next two
	keyVote    = "/vote/"   // and the name of a vantage, a slash, and a probe: its vote
	keyJoint   = "/joint/"  // and a probe: its joint verdict
	keyVantage = "vantage/" // and the name of an engine: it votes
	keyFence   = "voter/"   // and the name of an engine: what it puts requires that this was created by the same revision
)

// retryAfter is how long to wait after an error of the store, and requestTimeout for one of its answers.
const (
	retryAfter     = time.Second
	requestTimeout = 10 * time.Second
)

// Bounds in bytes.
const (
	MaxInstance = 512 // of Vote.Instance
	MaxZone     = quorum.MaxZone
	maxValue    = 256 << 10 // of a value that is read: what is longer is as none
)

// Vote is what an engine says about one probe.
type Vote struct {
	Instance string        `json:"instance"` // of the target, which the vote is about; at most MaxInstance bytes
	Verdict  probe.Verdict `json:"verdict"`
	Doubtful bool          `json:"doubtful,omitempty"` // this verdict may be the fault of the engine
}

// Vantage is what an engine that votes says about itself.
type Vantage struct {
	Zone     string `json:"zone,omitempty"`     // where it is, at most MaxZone bytes
	Doubtful bool   `json:"doubtful,omitempty"` // none of its votes counts: see package doubt
	Drained  bool   `json:"drained,omitempty"`  // it may have no shards, and is chosen for no quorum: what it knows of targets may be old
	Targets  int    `json:"targets,omitempty"`  // how many targets with a verdict it probes
	Failing  int    `json:"failing,omitempty"`  // how many of them fail
}

// check returns what is wrong with a Vantage, or nil.
func (v Vantage) check() error {
	if len(v.Zone) > MaxZone {
		return fmt.Errorf("zone has %d bytes, at most %d are allowed", len(v.Zone), MaxZone)
	}
	return nil
}

// Joint is a joint verdict.
type Joint struct {
	Instance  string           `json:"instance"` // of the target, which the verdict is about
	Verdict   probe.Verdict    `json:"verdict"`
	Since     time.Time        `json:"since"`   // when Verdict was decided for Instance, by the clock of the owner
	Decided   bool             `json:"decided"` // the votes have decided Verdict; false: the last one stands, since too few count, or as many pass as fail
	Agreement quorum.Agreement `json:"agreement"`
	Token     coord.Revision   `json:"token"` // of the owner who has put it

	// The vantages by what they say: see quorum.Decision.
	Passing []string `json:"passing,omitempty"`
	Failing []string `json:"failing,omitempty"`
	Ignored []string `json:"ignored,omitempty"`
}

// equal reports whether two joint verdicts say the same, whoever has put them.
func (j Joint) equal(k Joint) bool {
	return j.Instance == k.Instance && j.Verdict == k.Verdict && j.Decided == k.Decided && j.Agreement == k.Agreement &&
		slices.Equal(j.Passing, k.Passing) && slices.Equal(j.Failing, k.Failing) && slices.Equal(j.Ignored, k.Ignored)
}

// pathOf returns a probe as the last part of a key.
func pathOf(id probe.ID) string {
	return id.Kind.String() + "/" + url.PathEscape(id.Name) + "/" + id.Target
}

// parsePath returns the probe of which pathOf returns the path.
func parsePath(path string) (id probe.ID, ok bool) {
	kind, rest, _ := strings.Cut(path, "/")
	name, target, _ := strings.Cut(rest, "/")
	name, err := url.PathUnescape(name)
	if err != nil || id.Kind.UnmarshalText([]byte(kind)) != nil {
		return probe.ID{}, false
	}
	id.Name, id.Target = name, target
	return id, id.Check() == nil
}

// prefixOf returns the prefix of the keys about a shard's targets.
func prefixOf(id shard.ID) string { return keyQuorum + id.String() }

func voteKey(vantage string, id probe.ID) string {
	return prefixOf(shard.Of(id.Target)) + keyVote + vantage + "/" + pathOf(id)
}

func jointKey(id probe.ID) string { return prefixOf(shard.Of(id.Target)) + keyJoint + pathOf(id) }

// JointPrefix is the prefix of all keys of which ParseJoint returns the probe. Others may have it, too.
const JointPrefix = keyQuorum

// ParseJoint returns the probe that an entry of the store has the joint verdict of, and that. It reports false
// for any other entry. A deleted entry has a zero Joint.
func ParseJoint(e coord.Event) (id probe.ID, j Joint, ok bool) {
	rest, isOurs := strings.CutPrefix(e.Key, keyQuorum)
	_, path, isJoint := strings.Cut(rest, keyJoint)
	if !isOurs || !isJoint {
		return probe.ID{}, j, false
	}
	if id, ok = parsePath(path); !ok || jointKey(id) != e.Key {
		return probe.ID{}, j, false
	}
	return id, j, e.Deleted || decode(e.Value, &j)
}

// parseVoteKey returns the vantage and the probe of the key of a vote in a shard.
func parseVoteKey(in shard.ID, key string) (vantage string, id probe.ID, ok bool) {
	rest, isVote := strings.CutPrefix(key, prefixOf(in)+keyVote)
	vantage, path, _ := strings.Cut(rest, "/")
	id, ok = parsePath(path)
	return vantage, id, isVote && ok
}

// decode reads a value, and reports false for one that is none of this release.
func decode(value []byte, into any) bool {
	return len(value) <= maxValue && json.Unmarshal(value, into) == nil
}

// encode returns a value, which has no part that JSON lacks.
func encode(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return b
}
