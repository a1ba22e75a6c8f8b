package revision

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// Push makes files the current revision, or those that one engine tries, and returns that revision. Of r it takes Author,
// Message, Restores, Force and Engine. Seen is what the push was planned with: it is an error if the current revision or the
// trial is another by now. A revision for all ends the trial. Push does not wait for engines to use it.
func Push(ctx context.Context, b coord.Backend, seen Overview, r Revision, files *Bundle) (Revision, error) {
	compressed, digest, err := files.Encode()
	if err != nil {
		return Revision{}, fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	r.Format, r.Number, r.At, r.Digest = format, seen.Current().Number+1, time.Now().UTC(), digest
	r.Author, r.Message = probe.OneLine(r.Author, MaxAuthor), probe.CleanText(r.Message, MaxMessage)
	value, err := json.Marshal(r)
	if err != nil {
		return Revision{}, err
	}
	committing, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made, err := b.Commit(committing, seen.transaction(r, value, compressed))
	switch {
	case err != nil:
		return Revision{}, fmt.Errorf("it is not known whether revision %d is stored; push again: %w", r.Number, err)
	case !made[0]:
		return Revision{}, staleError(ctx, b, seen)
	}
	return r, nil
}

// transaction returns the change that makes r the next revision, or the trial, if what was seen is unchanged.
func (o Overview) transaction(r Revision, value, files []byte) coord.Transaction {
	t := coord.Transaction{If: []coord.Condition{{Key: revisionKey(r.Number)}, {Key: keyTrial, Modified: o.Trial.modified}}}
	if current := o.Current(); current.Number > 0 {
		t.If = append(t.If, coord.Condition{Key: revisionKey(current.Number), Created: current.created})
	}
	if r.Engine != "" {
		t.Then = []coord.Change{{Key: keyTrial, Value: value}, {Key: keyTried, Value: files}}
		return t
	}
	t.Then = []coord.Change{
		{Key: revisionKey(r.Number), Value: value}, {Key: r.filesKey(), Value: files},
		{Key: keyTrial, Delete: true}, {Key: keyTried, Delete: true},
	}
	excess := max(len(o.History)+1-MaxHistory, 0)
	for _, old := range o.History[:min(excess, MaxHistory)] {
		t.Then = append(t.Then, coord.Change{Key: revisionKey(old.Number), Delete: true}, coord.Change{Key: old.filesKey(), Delete: true})
	}
	return t
}

// staleError returns the error of a push that was planned with what is no longer so.
func staleError(ctx context.Context, b coord.Backend, seen Overview) error {
	const advice = "look at the plan again, and push again"
	now, err := Read(ctx, b)
	if err != nil {
		return fmt.Errorf("another push was first: %s (%w)", advice, err)
	}
	planned, current := seen.Current(), now.Current()
	switch {
	case current.Number == 0:
		return fmt.Errorf("there is no revision, and the push was planned with revision %d: the store was emptied or is another one; %s", planned.Number, advice)
	case current.Ref() != planned.Ref():
		return fmt.Errorf("revision %d is current, and the push was planned with revision %d: %s pushed it at %s%s; %s",
			current.Number, planned.Number, authorOf(current), current.At.Format(time.RFC3339), because(current.Message), advice)
	case now.Trial.Engine == "":
		return fmt.Errorf("the trial at %.100q has ended since the push was planned; %s", seen.Trial.Engine, advice)
	}
	return fmt.Errorf("%s has begun a trial at %.100q since the push was planned%s; %s", authorOf(now.Trial), now.Trial.Engine, because(now.Trial.Message), advice)
}

func authorOf(r Revision) string { return probe.OneLine(cmp.Or(r.Author, "someone"), MaxAuthor) }

func because(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", probe.OneLine(message, 100))
}
