package revision

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// Push stores files as the latest revision, and returns it. Of r it uses Author, Message, Restores, Force and Engine.
// seen is the overview on which the push was planned: if another revision is the latest now, Push returns an error. Push
// does not wait until engines use the revision.
func Push(ctx context.Context, b coord.Backend, seen Overview, r Revision, files *Bundle) (Revision, error) {
	compressed, digest, err := files.Encode()
	if err != nil {
		return Revision{}, fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	latest := seen.Latest()
	r.Format, r.Number, r.At, r.Digest = format, latest.Number+1, time.Now().UTC(), digest
	r.Author, r.Message = probe.OneLine(r.Author, MaxAuthor), probe.CleanText(r.Message, MaxMessage)
	value, err := json.Marshal(r)
	if err != nil {
		return Revision{}, err
	}
	t := coord.Transaction{
		If:   []coord.Condition{{Key: revisionKey(r.Number)}},
		Then: []coord.Change{{Key: revisionKey(r.Number), Value: value}, {Key: filesKey(r.Number), Value: compressed}},
	}
	if latest.Number > 0 {
		t.If = append(t.If, coord.Condition{Key: revisionKey(latest.Number), Created: latest.created})
	}
	if len(seen.History) >= MaxHistory {
		old := seen.leastNeeded()
		t.Then = append(t.Then, coord.Change{Key: revisionKey(old.Number), Delete: true}, coord.Change{Key: filesKey(old.Number), Delete: true})
	}
	committing, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made, err := b.Commit(committing, t)
	switch {
	case err != nil:
		return Revision{}, fmt.Errorf("revision %d may be stored; push again: %w", r.Number, err)
	case !made[0]:
		return Revision{}, staleError(ctx, b, latest)
	}
	return r, nil
}

// leastNeeded returns the revision that the next push deletes: the oldest trial, since the next revision ends all
// trials, or else the oldest revision that is not current.
func (o Overview) leastNeeded() Revision {
	at := slices.IndexFunc(o.History, func(r Revision) bool { return r.Engine != "" })
	if at < 0 {
		current := o.Current()
		at = slices.IndexFunc(o.History, func(r Revision) bool { return r.Number != current.Number })
	}
	return o.History[at]
}

// staleError returns the error of a push that was planned when another revision was the latest.
func staleError(ctx context.Context, b coord.Backend, planned Revision) error {
	const advice = "look at the plan again, and push again"
	now, err := Read(ctx, b)
	if err != nil {
		return fmt.Errorf("another push was first: %s (%w)", advice, err)
	}
	latest := now.Latest()
	if latest.Number == 0 {
		return fmt.Errorf("there is no revision, and the push was planned with revision %d: the store was emptied or is another one; %s", planned.Number, advice)
	}
	what := fmt.Sprintf("revision %d is current", latest.Number)
	if latest.Engine != "" {
		what = fmt.Sprintf("revision %d is a trial at %.100q", latest.Number, latest.Engine)
	}
	because := ""
	if latest.Message != "" {
		because = fmt.Sprintf(" (%s)", probe.OneLine(latest.Message, 100))
	}
	return fmt.Errorf("%s, and the push was planned with revision %d: %s pushed it at %s%s; %s",
		what, planned.Number, probe.OneLine(cmp.Or(latest.Author, "someone"), MaxAuthor), latest.At.Format(time.RFC3339), because, advice)
}
