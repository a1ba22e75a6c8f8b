// Package revision keeps the configuration of a fleet in a coord.Backend, as numbered revisions.
//
// A push stores the files of a configuration as one value, in a transaction that requires that the latest revision is
// still the one on which the push was planned. Each engine that follows the configuration applies the current revision,
// or refuses it and keeps its own, and publishes the result under its lease. One engine can try a revision before it is
// pushed to all.
//
//	revision.go  Revision, Engine, and Overview: the contents of the backend
//	bundle.go    Bundle: the files of a configuration
//	push.go      Push: makes a revision current, or a trial on one engine
//	follower.go  Follower: makes an engine use its wanted revision
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

// MaxHistory bounds the number of stored revisions, including the current one. Trials are deleted first.
const MaxHistory = 10

// Limits of texts, in bytes. Longer ones are truncated.
const (
	MaxAuthor  = 256
	MaxMessage = 1 << 10
	MaxError   = 4 << 10 // of the error of an engine that refuses a revision
)

// format is the version of the encoding of a Revision. A later release that changes the encoding increments it.
const format = 3

// Names in coord.ConfigKeys. The names in coord.FileKeys are numbers: each is the compressed Bundle of a revision.
const (
	ofRevision = "revision/" // plus a number: a Revision
	ofEngine   = "engine/"   // plus a name: an Engine, under the lease of its membership
)

// requestTimeout bounds a request to an unreachable Backend.
const requestTimeout = 10 * time.Second

// Permanent errors of a revision that cannot be used.
var (
	ErrDamaged = errors.New("the revision is damaged")
	errLater   = errors.New("the revision was written by a later version of this program: update this one")
)

// Revision is a configuration that was pushed.
type Revision struct {
	Format   int       `json:"format"`
	Number   int64     `json:"number"`             // starts at 1; the latest has the highest; 0: no revision
	At       time.Time `json:"at"`                 // when it was pushed, by the clock of that machine
	Author   string    `json:"author"`             // who pushed it
	Message  string    `json:"message,omitempty"`  // why
	Restores int64     `json:"restores,omitempty"` // number of the restored revision, which had the same files; 0: not a rollback
	Force    bool      `json:"force,omitempty"`    // engines apply it without the reload guard
	Engine   string    `json:"engine,omitempty"`   // the only engine that runs it, as a trial; empty: all engines
	Digest   string    `json:"digest"`             // of the files: see Bundle.Encode

	problem error          // why it cannot be read
	created coord.Revision // the backend's revision at which it was stored
}

// Ref identifies a revision. The zero Ref is none. A number alone is not unique: a backend that was restored from a
// backup assigns numbers again.
type Ref struct {
	Number int64  `json:"number"`
	Digest string `json:"digest"` // as Revision.Digest
}

// Ref returns the identity of the revision.
func (r Revision) Ref() Ref { return Ref{r.Number, r.Digest} }

// isRunAs reports whether running is this revision. If this revision cannot be read, only the number is compared.
func (r Revision) isRunAs(running Ref) bool {
	return running.Number == r.Number && (r.problem != nil || running.Digest == r.Digest)
}

// Err returns why the revision cannot be read, or nil.
func (r Revision) Err() error { return r.problem }

// Engine is the published status of an engine that follows the configuration.
type Engine struct {
	Name    string    `json:"-"`
	Running Ref       `json:"running"`           // the revision that it uses
	Since   time.Time `json:"since"`             // when it began to use it, by the clock of the engine
	Refused *Refusal  `json:"refused,omitempty"` // the revision that it last refused; nil: it has used one since
}

// Refusal is why an engine cannot use a revision. The engine keeps the previous one.
type Refusal struct {
	Ref
	Error string `json:"error"`
}

// HasRefused reports whether the engine has refused a revision.
func (e Engine) HasRefused(r Ref) bool { return e.Refused != nil && e.Refused.Ref == r }

// Overview is the configuration of a fleet as stored in a Backend.
type Overview struct {
	// History has the stored revisions in ascending order, including trials. A revision that cannot be read has only Number
	// and Engine, and no Engine if its value is not JSON.
	History []Revision
	Engines []Engine // live engines, sorted by name
}

// Read reads the overview from a Backend.
func Read(ctx context.Context, b coord.Backend) (Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	entries, _, err := b.Range(ctx, coord.ConfigKeys.Prefix())
	if err != nil {
		return Overview{}, fmt.Errorf("read the revisions of the configuration: %w", err)
	}
	return overviewOf(entries), nil
}

// Latest returns the revision that was pushed last, or one without Number if there is none. If it has an Engine, it is a
// trial on that engine.
func (o Overview) Latest() Revision {
	if len(o.History) == 0 {
		return Revision{}
	}
	return o.History[len(o.History)-1]
}

// Current returns the revision that all engines should run, except one that tries the latest; it has no Number if there
// is none.
func (o Overview) Current() Revision {
	for _, r := range slices.Backward(o.History) {
		if r.Engine == "" {
			return r
		}
	}
	return Revision{}
}

// Wanted returns the revision that an engine should run. For the engine "" it is the current one.
func (o Overview) Wanted(engine string) Revision {
	if latest := o.Latest(); latest.Engine == engine {
		return latest
	}
	return o.Current()
}

// InUse returns the latest revision that an engine runs, or the current one if no engine runs a stored revision, since
// engines may have refused the current one.
func (o Overview) InUse() Revision {
	for _, r := range slices.Backward(o.History) {
		if r.Engine == "" && slices.ContainsFunc(o.Engines, func(e Engine) bool { return r.isRunAs(e.Running) }) {
			return r
		}
	}
	return o.Current()
}

// overviewOf returns the overview of the entries of coord.ConfigKeys.
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

// parseEngine parses the status of an engine. If it cannot be read, only the name is set.
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

// parseRevision parses the revision of an entry. The result has no Number if the key is not that of a revision.
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
