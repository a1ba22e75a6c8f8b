// Package revision keeps the configuration of a fleet in a coord.Backend, as numbered revisions.
//
// A push uploads the files of a configuration, and proposes them to the engines. Each engine that follows
// the configuration checks them with what only it has, such as its environment and its limits, and accepts
// or refuses them. Only if all have accepted does one transaction make them the current revision, which
// engines then use. A push that ends before that leaves nothing that an engine would use.
//
//	revision.go  Revision and Engine, and how they are read
//	bundle.go    Bundle: the files of a configuration
//	push.go      Push: makes a revision, from files or from an earlier revision
//	upload.go    the files in the backend: written, read, and deleted
//	lease.go     leases that are kept alive, and requests that end
//	follower.go  Follower: has an engine check proposals, and use the current revision
//	session.go   what a Follower sees and says by one lease
package revision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
)

// MaxHistory bounds the revisions that are kept, the current one among them.
const MaxHistory = 20

// Bounds of texts, in bytes. Longer ones are truncated.
const (
	MaxAuthor  = 256
	MaxMessage = 1 << 10
	MaxError   = 4 << 10 // of an engine that refuses
)

// format is that of all values in the backend. A later release that changes them has a higher one.
const format = 1

// The keys of a Backend.
const (
	keyShared   = "config/shared/" // all that engines watch
	keyRevision = keyShared + "revision/"
	keyProposal = keyShared + "proposal"
	keyEngine   = "config/engine/" // and the name of an engine: an Engine, by its lease
	keyBundle   = "config/bundle/" // and an ID: there may be parts with it
	keyUpload   = "config/upload/" // and an ID: parts are being written, or are proposed, by the lease of who pushes
	keyPart     = "config/part/"   // and an ID, a slash, and a number: a part of a compressed Bundle
)

// The errors that a caller has to recognize.
var (
	ErrDamaged = errors.New("the revision is damaged")
	ErrLater   = errors.New("the revision was written by a later version of this program: update this one")
)

// Revision is a configuration that was made current, or, while it is a proposal, one that engines are
// asked about.
type Revision struct {
	Format   int       `json:"format"`
	ID       string    `json:"id"`                 // of the push
	Number   int64     `json:"number"`             // from 1; the current one has the highest
	At       time.Time `json:"at"`                 // when it was pushed, by the clock there
	Author   string    `json:"author"`             // who pushed it
	Message  string    `json:"message,omitempty"`  // why
	Restores int64     `json:"restores,omitempty"` // the number of the revision that had the same files; 0: it is not a rollback
	Force    bool      `json:"force,omitempty"`    // engines were asked to check it without the reload guard
	Accepted int       `json:"accepted"`           // how many engines have accepted it
	Silent   []string  `json:"silent,omitempty"`   // engines that had not answered when it was made current
	Bundle   Reference `json:"bundle"`

	problem error // why it cannot be read
}

// Reference says where the Bundle of a revision is.
type Reference struct {
	ID     string `json:"id"`     // of its keys
	Size   int    `json:"size"`   // of all parts, in bytes
	Digest string `json:"digest"` // of the files: the SHA-256, in hexadecimal
}

// Ref identifies a revision. The zero Ref is none. A number alone is not enough: a backend that was
// restored from a backup gives numbers again.
type Ref struct {
	Number int64  `json:"number"`
	Digest string `json:"digest"` // as Reference.Digest
}

// Ref returns what identifies the revision.
func (r Revision) Ref() Ref {
	if r.Number == 0 {
		return Ref{}
	}
	return Ref{r.Number, r.Bundle.Digest}
}

// is reports whether an engine that runs a revision runs this one. Of one that cannot be read only the number is known.
func (r Revision) is(running Ref) bool {
	return running.Number == r.Number && (r.problem != nil || running.Digest == r.Bundle.Digest)
}

// Err returns why the revision cannot be read: an error that is ErrLater or ErrDamaged, or nil.
func (r Revision) Err() error { return r.problem }

// Engine is what an engine that follows the configuration says of itself.
type Engine struct {
	Format  int       `json:"format"` // 0: it is of a later version, and the rest is not known
	Name    string    `json:"-"`
	Running Ref       `json:"running"`           // the revision that it uses
	Since   time.Time `json:"since"`             // when it began to, by the clock of the engine
	Refused *Refusal  `json:"refused,omitempty"` // why it does not use the current revision; nil: it does, or is about to
	Answer  *Answer   `json:"answer,omitempty"`  // to the latest proposal that it has checked
}

// Refusal says that an engine cannot use a revision, and goes on with the one that it used.
type Refusal struct {
	Ref
	Error string `json:"error"`
}

// Answer is that of an engine to a proposal.
type Answer struct {
	ID    string `json:"id"`              // of the proposal
	Error string `json:"error,omitempty"` // why it is refused; empty: it is accepted
}

// History returns the revisions that are kept, the current one last. It has also those that cannot be
// read, with nothing but a number.
func History(ctx context.Context, b coord.Backend) ([]Revision, error) {
	entries, _, err := b.Range(ctx, keyRevision)
	if err != nil {
		return nil, fmt.Errorf("read the revisions of the configuration: %w", err)
	}
	all := make([]Revision, 0, len(entries))
	for _, e := range entries {
		if r := parseRevision(e); r.Number > 0 {
			all = append(all, r)
		}
	}
	return all, nil
}

// Current returns the current revision, one without Number if there is none.
func Current(ctx context.Context, b coord.Backend) (Revision, error) {
	all, err := History(ctx, b)
	if err != nil || len(all) == 0 {
		return Revision{}, err
	}
	return all[len(all)-1], nil
}

// Engines returns the live engines that follow the configuration, sorted by name.
func Engines(ctx context.Context, b coord.Backend) ([]Engine, error) {
	entries, _, err := b.Range(ctx, keyEngine)
	if err != nil {
		return nil, fmt.Errorf("read which engines follow the configuration: %w", err)
	}
	return enginesOf(entries), nil
}

// enginesOf returns the engines that entries are of, sorted by name. One of a later version has no Format, and has not
// answered.
func enginesOf(entries []coord.Entry) []Engine {
	all := make([]Engine, 0, len(entries))
	for _, entry := range entries {
		var e Engine
		if err := json.Unmarshal(entry.Value, &e); err != nil || e.Format > format {
			e = Engine{}
		}
		e.Name = strings.TrimPrefix(entry.Key, keyEngine)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Engine) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// revisionKey returns the key of a revision. The keys are in the order of the numbers.
func revisionKey(number int64) string { return fmt.Sprintf("%s%010d", keyRevision, number) }

// parseRevision returns the revision of an entry, one without Number if it has the key of no revision.
func parseRevision(e coord.Entry) Revision {
	number, err := strconv.ParseInt(strings.TrimPrefix(e.Key, keyRevision), 10, 64)
	if err != nil || number <= 0 || e.Key != revisionKey(number) {
		return Revision{}
	}
	r := decodeRevision(e.Value)
	if r.problem == nil && r.Number != number {
		r.problem = fmt.Errorf("%w: it says that it is revision %d", ErrDamaged, r.Number)
	}
	if r.problem != nil {
		return Revision{Number: number, problem: fmt.Errorf("revision %d: %w", number, r.problem)}
	}
	return r
}

// decodeRevision reads a revision. One that has an error has an ID nevertheless, if that can be read.
func decodeRevision(value []byte) Revision {
	var header struct {
		Format int    `json:"format"`
		ID     string `json:"id"`
	}
	if err := json.Unmarshal(value, &header); err != nil {
		return Revision{problem: fmt.Errorf("%w: %w", ErrDamaged, err)}
	}
	if header.Format > format {
		return Revision{ID: header.ID, problem: ErrLater}
	}
	var r Revision
	if err := json.Unmarshal(value, &r); err != nil {
		return Revision{ID: header.ID, problem: fmt.Errorf("%w: %w", ErrDamaged, err)}
	}
	return r
}
