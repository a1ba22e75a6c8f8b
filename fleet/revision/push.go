package revision

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// Request is what a push makes the current revision.
type Request struct {
	Bundle  *Bundle // its files; nil for a rollback
	Restore int64   // for a rollback: the number of the earlier revision whose files it has

	Base    int64  // the number of the revision that was current when the push was planned, 0 for none
	Author  string // who pushes, in one line
	Message string // why
	Force   bool   // engines check it without the reload guard

	CheckOnly bool // engines are asked, and it is not made current, even if all accept it

	Timeout      time.Duration // for the answers of all engines; default DefaultTimeout
	IgnoreSilent bool          // engines that have not answered by then need not accept it; nor does it matter that there is no engine

	// Report is called with what engines say while their answers are awaited. Default: it is not.
	Report func(proposal Revision, engines []Engine)
}

// DefaultTimeout is the default of Request.Timeout: engines may have to compile plugins.
const DefaultTimeout = time.Minute

const (
	// pushTTL is how long what a push has proposed outlasts it, if it ends without saying so.
	pushTTL = 10 * time.Second

	// answerPeriod is how often the answers of engines are looked at.
	answerPeriod = 200 * time.Millisecond

	// finalTries bounds how often the last transaction is tried, which after an error may have been made.
	finalTries = 10
	finalPause = time.Second
)

// ConflictError says that another push was first.
type ConflictError struct {
	Proposal *Revision // of another push, which has not ended; nil if none is the reason
	Current  Revision  // which is not the one that the push was planned with
	Base     int64     // the number of that one
}

// Error implements error.
func (e *ConflictError) Error() string {
	if p := e.Proposal; p != nil {
		return fmt.Sprintf("%s is proposing revision %d since %s%s: wait for the end of that, and push again",
			probe.OneLine(p.Author, MaxAuthor), p.Number, p.At.Format(time.RFC3339), because(p.Message))
	}
	if e.Current.Number == 0 {
		return fmt.Sprintf("there is no revision, and the push was planned with revision %d: the store was emptied or is another one; look at the plan again, and push again", e.Base)
	}
	return fmt.Sprintf("revision %d is current, and the push was planned with revision %d: %s pushed it at %s%s; look at the plan again, and push again",
		e.Current.Number, e.Base, probe.OneLine(cmp.Or(e.Current.Author, "someone"), MaxAuthor), e.Current.At.Format(time.RFC3339), because(e.Current.Message))
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", probe.OneLine(message, 100))
}

// RefusedError says which engines do not accept a proposal. Nothing was changed.
type RefusedError struct {
	Refused []Engine // with the Answer that says why
	Silent  []string // the names of engines that have not answered in time
	Engines int      // how many there are
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Engines == 0 {
		return "no engine follows the configuration, so that none has checked it"
	}
	var parts []string
	if len(e.Refused) > 0 {
		first := e.Refused[0]
		parts = append(parts, fmt.Sprintf("%d of %d engines refused it, among them %s: %s", len(e.Refused), e.Engines, first.Name, first.Answer.Error))
	}
	if len(e.Silent) > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d engines have not answered, among them %s", len(e.Silent), e.Engines, e.Silent[0]))
	}
	return strings.Join(parts, "; ")
}

// pusher makes one push.
type pusher struct {
	Request
	backend  coord.Backend
	proposal Revision
	lease    coord.Lease
	needs    []coord.Condition // of the proposal, and of making it current
}

// Push asks all live engines that follow the configuration whether they accept its files, and makes them
// the current revision if all do, unless Request.CheckOnly is set. The first revision needs no engine. Push does not wait for engines to
// use it. The error is a *ConflictError or a *RefusedError if another push, or an engine, is the reason.
//
// After other errors nothing was changed, unless the error says that it is not known.
func Push(ctx context.Context, b coord.Backend, r Request) (Revision, error) {
	if (r.Bundle == nil) == (r.Restore == 0) {
		return Revision{}, errors.New("a push needs either files, or the number of a revision to restore")
	}
	b = bounded{b}
	p := &pusher{Request: r, backend: b, proposal: Revision{
		Format: format, ID: rand.Text(), Number: r.Base + 1, At: time.Now().UTC(), Author: probe.OneLine(r.Author, MaxAuthor),
		Message: probe.CleanText(r.Message, MaxMessage), Restores: r.Restore, Force: r.Force,
	}}
	if err := p.checkBase(ctx); err != nil {
		return Revision{}, err
	}
	held, pushing, err := hold(ctx, b, pushTTL)
	if err != nil {
		return Revision{}, err
	}
	p.lease = held.lease
	err = p.push(pushing)
	held.release()
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushTTL)
	defer cancel()
	_ = clean(cleaning, b) // the next push does what remains
	if err != nil {
		return Revision{}, err
	}
	return p.proposal, nil
}

// push does all that needs the lease.
func (p *pusher) push(ctx context.Context) error {
	if err := p.store(ctx); err != nil {
		return err
	}
	if err := p.propose(ctx); err != nil {
		return err
	}
	if err := p.checkBase(ctx); err != nil { // no other can push while this proposal exists
		return err
	}
	if err := p.awaitAnswers(ctx); err != nil || p.CheckOnly {
		return err
	}
	return p.makeCurrent(ctx)
}

// checkBase returns an error if the current revision is not the one that the push was planned with.
func (p *pusher) checkBase(ctx context.Context) error {
	current, err := Current(ctx, p.backend)
	if err == nil && current.Number != p.Base {
		err = &ConflictError{Current: current, Base: p.Base}
	}
	return err
}

// store uploads the files, or finds those of the revision to restore.
func (p *pusher) store(ctx context.Context) error {
	if p.Restore != 0 {
		return p.find(ctx)
	}
	compressed, digest, err := p.Bundle.Encode()
	if err != nil {
		return fmt.Errorf("the configuration cannot be pushed: %w", err)
	}
	p.proposal.Bundle = Reference{p.proposal.ID, len(compressed), digest}
	mark, err := upload(ctx, p.backend, p.lease, p.proposal.ID, compressed)
	p.needs = append(p.needs, mark)
	return err
}

// find finds the files of the revision to restore.
func (p *pusher) find(ctx context.Context) error {
	entry, err := p.backend.Get(ctx, revisionKey(p.Restore))
	switch r := parseRevision(entry); {
	case err != nil:
		return fmt.Errorf("read revision %d: %w", p.Restore, err)
	case entry.Created == 0:
		return fmt.Errorf("there is no revision %d: the latest %d are kept", p.Restore, MaxHistory)
	case r.problem != nil:
		return r.problem
	default:
		p.proposal.Bundle = r.Bundle
	}
	p.needs = append(p.needs, coord.Condition{Key: entry.Key, Created: entry.Created})
	return nil
}

// propose shows the proposal to the engines. It is the only one until it is made current or the lease ends.
func (p *pusher) propose(ctx context.Context) error {
	value, err := json.Marshal(p.proposal)
	if err != nil {
		return err
	}
	made, err := p.backend.Commit(ctx, coord.Transaction{
		If:   append([]coord.Condition{{Key: keyProposal}}, p.needs...),
		Then: []coord.Change{{Key: keyProposal, Value: value, Lease: p.lease}},
	})
	if err != nil {
		return fmt.Errorf("propose revision %d: %w", p.proposal.Number, err)
	}
	entry, err := p.backend.Get(ctx, keyProposal)
	if err != nil {
		return fmt.Errorf("propose revision %d: %w", p.proposal.Number, err)
	}
	if made[0] {
		p.needs = append(p.needs, coord.Condition{Key: keyProposal, Created: entry.Created})
		return nil
	}
	if err := p.checkBase(ctx); err != nil {
		return err
	}
	other := decodeRevision(entry.Value)
	other.Number, other.Author = p.proposal.Number, cmp.Or(other.Author, "another push")
	return &ConflictError{Proposal: &other, Base: p.Base}
}

// answers are those of engines to a proposal.
type answers struct {
	accepted int
	refused  []Engine
	silent   []string
}

func answersTo(id string, engines []Engine) (a answers) {
	for _, e := range engines {
		switch {
		case e.Answer == nil || e.Answer.ID != id:
			a.silent = append(a.silent, e.Name)
		case e.Answer.Error != "":
			a.refused = append(a.refused, e)
		default:
			a.accepted++
		}
	}
	return a
}

// awaitAnswers waits until all live engines have answered, or for so long. It returns an error unless they
// accept. It asks again and again, since a push is rare, and a watch of what may end would be longer.
func (p *pusher) awaitAnswers(ctx context.Context) error {
	deadline := time.Now().Add(cmp.Or(p.Timeout, DefaultTimeout))
	for {
		engines, err := Engines(ctx, p.backend)
		isLate := !time.Now().Before(deadline)
		a := answersTo(p.proposal.ID, engines)
		switch {
		case err == nil && (len(a.silent) == 0 || isLate):
			p.report(engines)
			p.proposal.Accepted, p.proposal.Silent = a.accepted, a.silent
			return p.decide(a, len(engines))
		case err == nil:
			p.report(engines)
		case isLate:
			return p.interrupted(ctx, err)
		}
		if err := sleep(ctx, answerPeriod); err != nil {
			return p.interrupted(ctx, err)
		}
	}
}

func (p *pusher) report(engines []Engine) {
	if p.Report != nil {
		p.Report(p.proposal, engines)
	}
}

// decide returns an error unless the answers of so many engines are enough.
func (p *pusher) decide(a answers, engines int) error {
	isUnchecked := engines == 0 && p.Base > 0 || len(a.silent) > 0
	if len(a.refused) > 0 || isUnchecked && !p.IgnoreSilent {
		return &RefusedError{a.refused, a.silent, engines}
	}
	return nil
}

// interrupted returns the error of a push that ends before it has all answers.
func (p *pusher) interrupted(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), coord.ErrLeaseEnded) {
		err = errors.New("the store was not reached for too long")
	}
	return fmt.Errorf("revision %d is not made current, since the answers of engines are not known: %w", p.proposal.Number, err)
}

// makeCurrent makes the proposal the current revision, if it still is the proposal.
func (p *pusher) makeCurrent(ctx context.Context) error {
	key := revisionKey(p.proposal.Number)
	value, err := json.Marshal(p.proposal)
	if err != nil {
		return err
	}
	t := coord.Transaction{
		If:   append([]coord.Condition{{Key: key}}, p.needs...),
		Then: []coord.Change{{Key: key, Value: value}, {Key: keyProposal, Delete: true}},
	}
	for range finalTries {
		var made []bool
		made, err = p.backend.Commit(ctx, t)
		if err == nil && made[0] {
			return nil
		}
		if err == nil {
			return p.checkMade(ctx)
		}
		if sleep(ctx, finalPause) != nil {
			break
		}
	}
	return p.unknown(err)
}

// checkMade returns nil if the proposal is the current revision: an earlier try has made it so, whose reply
// was lost.
func (p *pusher) checkMade(ctx context.Context) error {
	entry, err := p.backend.Get(ctx, revisionKey(p.proposal.Number))
	switch r := parseRevision(entry); {
	case err != nil:
		return p.unknown(err)
	case entry.Created == 0:
		return fmt.Errorf("revision %d is not made current: what was proposed is gone, since the store was not reached for too long", p.proposal.Number)
	case r.ID != p.proposal.ID:
		return &ConflictError{Current: r, Base: p.Base}
	}
	return nil
}

func (p *pusher) unknown(err error) error {
	return fmt.Errorf("it is not known whether revision %d is current, look at the revisions: %w", p.proposal.Number, err)
}

// sleep waits, and returns the cause of ctx if that is done before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
