package notify

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Status is how a receiver fares.
type Status struct {
	Notifier string // its name
	Output   string // what it is told by, such as "alertmanager"
	Receiver string // its name

	Firing  int    // subjects of which the receiver was told that they are in trouble, and not yet that they no longer are
	Held    int    // subjects in trouble that it is not told about, since they are paused or the engine doubts itself, or may be explained by another one
	Pending uint64 // transitions that it was not told, of all targets

	PendingSince time.Time // the first of them; zero if there is none

	Sent    uint64    // notices that it has accepted
	Last    time.Time // the last of them
	Failed  uint64    // attempts to send some that have failed
	Dropped uint64    // notices that it has rejected, and will not get again
	Lost    uint64    // transitions that the history has forgotten before they were told, of all targets; by engines before, too

	Error      string    // of the latest attempt, also if the receiver has rejected a notice; empty if it has succeeded
	ErrorSince time.Time // when the unbroken series of failures began
}

// The pause after a failed attempt doubles from minPause to maxPause, and varies by half.
const (
	minPause = 500 * time.Millisecond
	maxPause = 30 * time.Second
)

// maxError bounds Status.Error, in bytes.
const maxError = 400

// receiverKey identifies a receiver, also for the next engine: by the name of its notifier, and its key.
type receiverKey struct{ Notifier, Receiver string }

// receiver tells one receiver.
type receiver struct {
	key     receiverKey
	name    string // shown
	spec    *Spec
	sender  Sender
	log     *slog.Logger
	redact  func(string) string
	changed func(keys []string)

	woken   wake.Signal        // set by wakeUp
	stop    context.CancelFunc // nil until it is started
	ended   chan struct{}      // closed when run has returned
	resumed bool
	ending  bool // it must not be started any more

	feedMu  sync.Mutex // guards all below; the locks of an engine's readers are taken while it is held
	feed    feed
	status  Status              // without what follows from feed
	unsaved map[Subject]unsaved // what has changed in feed.told since Value returned it: the first change of each
}

func newReceiver(n *Notifiers, key receiverKey, name string, spec *Spec, sender Sender) *receiver {
	return &receiver{
		key: key, name: name, spec: spec, sender: sender, redact: n.config.Redact, log: n.config.Logger.With("notify", key.Notifier, "receiver", name),
		changed: func(keys []string) {
			for _, key := range keys {
				n.config.Changed(key)
			}
		},
		woken: wake.New(), ended: make(chan struct{}),
		feed:    newFeed(spec, n.targets, n.groups),
		unsaved: map[Subject]unsaved{},
		status:  Status{Notifier: key.Notifier, Output: spec.Output, Receiver: name},
	}
}

// start starts the goroutine, unless it has begun or is to end. It needs Notifiers.allMu.
func (r *receiver) start(ctx context.Context) {
	if r.stop != nil || r.ending {
		return
	}
	ctx, r.stop = context.WithCancel(ctx)
	go func() {
		defer close(r.ended)
		r.run(ctx)
	}()
}

// end ends the goroutine of a receiver that is ending, waits until it has, and closes the sender. Tests
// by the same sender may go on.
func (r *receiver) end() {
	if r.stop != nil {
		r.stop()
		<-r.ended
	}
	if closer, ok := r.sender.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			r.log.Warn("receiver could not be closed", "error", r.redact(err.Error()))
		}
	}
}

// wakeUp makes the receiver look for what is to be told, and compare subjects; also those that were
// held, if it is time for that.
func (r *receiver) wakeUp(changed []Subject, ticked bool) {
	r.feedMu.Lock()
	if ticked {
		r.feed.release()
	}
	for _, s := range changed {
		r.feed.mark(s)
	}
	r.feedMu.Unlock()
	r.woken.Set()
}

// run sends what is to be told until ctx is done.
func (r *receiver) run(ctx context.Context) {
	pause, limit := minPause, r.spec.Batch
	for ctx.Err() == nil {
		b := r.next(limit)
		if len(b.notices) == 0 {
			r.accept(&b)
			if !b.more {
				select {
				case <-r.woken:
				case <-ctx.Done():
				}
			}
			continue
		}
		err := r.send(ctx, b.notices)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			r.succeeded(&b)
			pause, limit = minPause, min(2*limit, r.spec.Batch)
		case errors.Is(err, ErrRejected) && len(b.notices) > 1:
			limit = max(1, len(b.notices)/2) // to find the notice
		case errors.Is(err, ErrRejected):
			r.rejected(&b, err)
		default:
			r.failed(err)
			r.pause(ctx, pause, err)
			pause = min(2*pause, maxPause)
		}
	}
}

// pause waits after a failed attempt, or until ctx is done.
func (r *receiver) pause(ctx context.Context, pause time.Duration, err error) {
	pause = pause/2 + rand.N(pause/2+1)
	if asked := (*RetryError)(nil); errors.As(err, &asked) {
		pause = max(pause, min(asked.After, maxPause))
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// send makes an attempt.
func (r *receiver) send(ctx context.Context, notices []Notice) error {
	ctx, cancel := context.WithTimeout(ctx, r.spec.Timeout)
	defer cancel()
	return r.sender.Send(ctx, notices)
}

func (r *receiver) next(limit int) batch {
	r.feedMu.Lock()
	defer r.feedMu.Unlock()
	return r.feed.next(time.Now(), limit)
}

// accept makes the feed what it is after a batch, and tells whose values have changed.
func (r *receiver) accept(b *batch) {
	r.feedMu.Lock()
	moved := len(b.waiting) > 0 || b.cursor != r.feed.cursor
	var keys []string
	before := r.latestCursor()
	for s, wasTold := range r.feed.accept(b, time.Now()) {
		r.noteUnsaved(s, unsaved{before, wasTold})
		keys = append(keys, r.toldKey(s))
	}
	if moved || b.lost > 0 {
		keys = append(keys, r.cursorKey())
	}
	r.feedMu.Unlock()
	if b.lost > 0 {
		r.log.Warn("the history of transitions was too short: some were not told, the present states are", "lost", b.lost)
	}
	r.changed(keys)
}

// succeeded notes that the receiver has accepted a batch.
func (r *receiver) succeeded(b *batch) {
	r.accept(b)
	r.feedMu.Lock()
	since := r.status.ErrorSince
	r.status.Sent += uint64(len(b.notices))
	r.status.Last = time.Now()
	r.status.Error, r.status.ErrorSince = "", time.Time{}
	r.feedMu.Unlock()
	if !since.IsZero() {
		r.log.Info("notices are accepted again", "failed_for", time.Since(since).Round(time.Millisecond))
	}
}

// rejected notes that the receiver will not accept the notice of a batch.
func (r *receiver) rejected(b *batch, err error) {
	b.rejected = true
	r.accept(b)
	r.feedMu.Lock()
	r.status.Dropped += uint64(len(b.notices))
	r.fail(err)
	r.feedMu.Unlock()
	r.log.Error("notice rejected, it is not sent again", "about", b.notices[0].Subject.String(), "state", b.notices[0].State, "error", r.text(err))
}

// failed notes an attempt that has failed. The first of a series is logged.
func (r *receiver) failed(err error) {
	r.feedMu.Lock()
	r.status.Failed++
	first := r.fail(err)
	r.feedMu.Unlock()
	if first {
		r.log.Warn("notices are not accepted, trying again", "error", r.text(err))
	}
}

// fail notes the error of the latest attempt, and reports whether it begins a series. It needs feedMu.
func (r *receiver) fail(err error) (first bool) {
	first = r.status.ErrorSince.IsZero()
	if r.status.Error = r.text(err); first {
		r.status.ErrorSince = time.Now()
	}
	return first
}

func (r *receiver) text(err error) string { return probe.CleanText(r.redact(err.Error()), maxError) }

// test sends a notice that is about nothing.
func (r *receiver) test(ctx context.Context, now time.Time) error {
	err := r.send(ctx, []Notice{{
		Subject: Subject{KindTarget, "test"}, Firing: true, Test: true, State: probe.StateNotReady.String(), Severity: probe.SeverityWarning,
		Labels: r.spec.Labels, Detail: "this is a test, nothing is in trouble", StartsAt: now, At: now, Link: link(r.spec.ExternalURL, Subject{KindTarget, "test"}),
	}})
	if err != nil {
		return errors.New(r.text(err))
	}
	return nil
}

// currentStatus returns the status.
func (r *receiver) currentStatus() Status {
	r.feedMu.Lock()
	defer r.feedMu.Unlock()
	st := r.status
	st.Firing, st.Held, st.Lost = len(r.feed.told), len(r.feed.held), r.feed.lost
	for subject := range r.feed.waiting {
		if _, counted := r.feed.held[subject]; !counted {
			st.Held++
		}
	}
	first, _ := r.feed.targets.after(r.feed.cursor, 1)
	_, last := r.feed.targets.after(r.feed.cursor, 0)
	if st.Pending = last - r.feed.cursor; len(first) > 0 {
		st.PendingSince = first[0].At
	}
	return st
}

// link returns where people see a subject, or "".
func link(externalURL string, s Subject) string {
	switch {
	case externalURL == "":
		return ""
	case s.Kind == KindGroup:
		return strings.TrimSuffix(externalURL, "/") + "/#/?" + url.Values{"group": {s.Name}}.Encode()
	}
	return strings.TrimSuffix(externalURL, "/") + "/#/target/" + url.PathEscape(s.Name)
}
