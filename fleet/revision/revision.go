// Package revision keeps the configuration of a fleet in a coord.Backend, as numbered revisions.
//
// A push puts the files of a configuration as one value, in a transaction that requires that the current
// revision is the one that the push was planned with. Each engine that follows the configuration puts the
// current revision into use, or refuses it and keeps what it runs, and says which under its lease. One
// engine can try a revision before it is pushed to all.
//
//	revision.go  Revision, Engine, and Overview: what the backend has
//	bundle.go    Bundle: the files of a configuration
//	push.go      Push: makes a revision current, or lets one engine try it
//	follower.go  Follower: makes an engine use the revision that it is to run
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
	"github.com/sonde-probe/sonde/probe"
)

// MaxHistory bounds the revisions that are kept, the current one among them. Trials are deleted first.
const MaxHistory = 10

// Bounds of texts, in bytes. Longer ones are truncated.
const (
	MaxAuthor  = 256
	MaxMessage = 1 << 10
	MaxError   = 4 << 10 // of an engine that refuses
)

// format is that of a Revision. A later release that changes it has a higher one.
const format = 3

// The names of coord.ConfigKeys. Those of coord.FileKeys are numbers: the Bundle of a revision, compressed.
const (
	ofRevision = "revision/" // and a number: a Revision
	ofEngine   = "engine/"   // and a name: an Engine, under the lease of its membership
)

// requestTimeout bounds a request to a Backend that cannot be reached.
const requestTimeout = 10 * time.Second

// Why a revision cannot be used, also later.
var (
	ErrDamaged = errors.New("the revision is damaged")
	errLater   = errors.New("the revision was written by a later version of this program: update this one")
)

// Revision is a configuration that was pushed.
type Revision struct {
	Format   int       `json:"format"`
	Number   int64     `json:"number"`             // from 1; the latest has the highest; 0: there is none
	At       time.Time `json:"at"`                 // when it was pushed, by the clock there
	Author   string    `json:"author"`             // who pushed it
	Message  string    `json:"message,omitempty"`  // why
	Restores int64     `json:"restores,omitempty"` // the number of the revision that had the same files; 0: it is not a rollback
	Force    bool      `json:"force,omitempty"`    // engines use it without asking the reload guard
	Engine   string    `json:"engine,omitempty"`   // the only one that runs it, as a trial; empty: it is for all
	Digest   string    `json:"digest"`             // of the files: see Bundle.Encode

	problem error          // why it cannot be read
	created coord.Revision // since when the backend has it
}

// Ref identifies a revision. The zero Ref is none. A number alone is not enough: a backend that was
// restored from a backup gives numbers again.
type Ref struct {
	Number int64  `json:"number"`
	Digest string `json:"digest"` // as Revision.Digest
}

// Ref returns what identifies the revision.
func (r Revision) Ref() Ref { return Ref{r.Number, r.Digest} }

// isRunAs reports whether an engine that runs a revision runs this one. Of one that cannot be read only the number is known.
func (r Revision) isRunAs(running Ref) bool {
	return running.Number == r.Number && (r.problem != nil || running.Digest == r.Digest)
}

// Err returns why the revision cannot be read, or nil.
func (r Revision) Err() error { return r.problem }

// Engine is what an engine that follows the configuration says of itself.
type Engine struct {
	Name    string    `json:"-"`
	Running Ref       `json:"running"`           // the revision that it uses
	Since   time.Time `json:"since"`             // when it began to, by the clock of the engine
	Refused *Refusal  `json:"refused,omitempty"` // the revision that it has refused last; nil: it has used one since
}

// Refusal says that an engine cannot use a revision, and keeps the one that it used.
type Refusal struct {
	Ref
	Error string `json:"error"`
}

// HasRefused reports whether the engine has refused a revision.
func (e Engine) HasRefused(r Ref) bool { return e.Refused != nil && e.Refused.Ref == r }

// Overview is what a Backend has of the configuration of a fleet.
type Overview struct {
	// History has the revisions that are kept, also trials, the latest last. A revision that cannot be read has only
	// Number and Engine, without Engine if the value is not JSON.
	History []Revision
	Engines []Engine // the live ones, sorted by name
}

// Read returns what a Backend has.
func Read(ctx context.Context, b coord.Backend) (Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	entries, _, err := b.Range(ctx, coord.ConfigKeys.Prefix())
	if err != nil {
		return Overview{}, fmt.Errorf("read the revisions of the configuration: %w", err)
	}
	return overviewOf(entries), nil
}

// Latest returns the revision that was pushed last, one without Number if there is none. If it has an Engine, that tries it.
func (o Overview) Latest() Revision {
	if len(o.History) == 0 {
		return Revision{}
	}
	return o.History[len(o.History)-1]
}

// Current returns the revision that all engines are to run but one that tries the latest, one without Number if there is none.
func (o Overview) Current() Revision {
	for _, r := range slices.Backward(o.History) {
		if r.Engine == "" {
			return r
		}
	}
	return Revision{}
}

// Wanted returns the revision that an engine is to run. That of the engine "" is the current one.
func (o Overview) Wanted(engine string) Revision {
	if latest := o.Latest(); latest.Engine == engine {
		return latest
	}
	return o.Current()
}

// InUse returns the latest revision that an engine runs, and the current one if none runs any that is kept: engines may
// have refused the current one.
func (o Overview) InUse() Revision {
	for _, r := range slices.Backward(o.History) {
		if r.Engine == "" && slices.ContainsFunc(o.Engines, func(e Engine) bool { return r.isRunAs(e.Running) }) {
			return r
		}
	}
	return o.Current()
}

// overviewOf returns what the entries of coord.ConfigKeys say.
func overviewOf(entries []coord.Entry) (o Overview) {
	for _, e := range entries {
		if name, isEngine := strings.CutPrefix(e.Key, coord.ConfigKeys.Key(ofEngine)); isEngine {
			o.Engines = append(o.Engines, parseEngine(name, e.Value))
		} else if r := parseRevision(e); r.Number > 0 {
			o.History = append(o.History, r)
		}
	}
	slices.SortFunc(o.Engines, func(a, b Engine) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.History, func(a, b Revision) int { return cmp.Compare(a.Number, b.Number) })
	return o
}

// parseEngine reads what an engine says of itself. Of one that cannot be read only the name is known.
func parseEngine(name string, value []byte) (e Engine) {
	if err := json.Unmarshal(value, &e); err != nil {
		e = Engine{}
	}
	if e.Refused != nil {
		e.Refused.Error = probe.CleanText(e.Refused.Error, MaxError)
	}
	e.Name = name
	return e
}

// revisionKey returns the key of a revision, and filesKey that of its files.
func revisionKey(number int64) string {
	return coord.ConfigKeys.Key(fmt.Sprintf("%s%010d", ofRevision, number))
}
func filesKey(number int64) string { return coord.FileKeys.Key(fmt.Sprintf("%010d", number)) }

// parseRevision reads the revision of an entry. Without Number it has the key of none.
func parseRevision(e coord.Entry) (r Revision) {
	number, err := strconv.ParseInt(strings.TrimPrefix(e.Key, coord.ConfigKeys.Key(ofRevision)), 10, 64)
	if err != nil || number <= 0 || e.Key != revisionKey(number) {
		return Revision{}
	}
	err = json.Unmarshal(e.Value, &r)
	switch {
	case r.Format > format:
		err = errLater
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	case number != r.Number:
		err = fmt.Errorf("%w: it says that it is revision %d", ErrDamaged, r.Number)
	}
	if err != nil {
		r = Revision{Number: number, Engine: r.Engine, problem: fmt.Errorf("revision %d: %w", number, err)}
	}
	r.created = e.Created
	return r
}

// Load returns the files of a revision.
func Load(ctx context.Context, b coord.Backend, r Revision) (*Bundle, error) {
	if r.problem != nil {
		return nil, r.problem
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	e, err := b.Get(ctx, filesKey(r.Number))
	switch {
	case err != nil:
		return nil, fmt.Errorf("revision %d: read its files: %w", r.Number, err)
	case e.Created == 0:
		return nil, fmt.Errorf("revision %d: %w: its files are missing", r.Number, ErrDamaged)
	}
	files, err := decode(e.Value, r.Digest)
	if err != nil {
		return nil, fmt.Errorf("revision %d: %w: %w", r.Number, ErrDamaged, err)
	}
	return files, nil
}
