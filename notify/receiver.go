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

// Status is the status of a receiver.
type Status struct {
	Notifier string // name of the notifier
	Output   string // kind of the sender, such as "alertmanager"
	Receiver string // name of the receiver

	Firing  int    // number of subjects in trouble by the notices that the receiver has accepted
	Held    int    // number in trouble that are not reported now: paused, in doubt, or possibly explained by another target
	Pending uint64 // number of transitions of all targets that were not processed yet

	PendingSince time.Time // when the first of them occurred; zero if there is none

	Sent    uint64    // number of notices that it has accepted
	Last    time.Time // when it last accepted some
	Failed  uint64    // number of failed attempts
	Dropped uint64    // number of notices that it has rejected, and which are not sent again
	Lost    uint64    // transitions of all targets that the history dropped unprocessed, in earlier engines as well

	Error      string    // of the latest attempt, including rejections; empty if it has succeeded
	ErrorSince time.Time // when the current series of failures began
}

// The pause after a failed attempt doubles from minPause to maxPause, with a jitter of half its length.
const (
	minPause = 500 * time.Millisecond
	maxPause = 30 * time.Second
)

// maxError bounds Status.Error, in bytes.
const maxError = 400

// receiverKey identifies a receiver, across engines, by the name of its notifier and its own key.
type receiverKey struct{ Notifier, Receiver string }

// receiver sends notices to one receiver.
type receiver struct {
	key     receiverKey
	name    string // for display
	spec    *Spec
	sender  Sender
	log     *slog.Logger
	redact  func(string) string
	changed func(keys []string)

	woken   wake.Signal        // set by wakeUp
	stop    context.CancelFunc // nil until it is started
	ended   chan struct{}      // closed when run has returned
	resumed bool
	ending  bool // must not be started any more

	feedMu  sync.Mutex // guards all below; the locks of an engine's readers are taken while it is held
	feed    feed
	status  Status              // without the fields that are derived from feed
	unsaved map[Subject]unsaved // changes of feed.told since Value returned the notice; the first change of each subject
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

// start starts the goroutine, unless it was started or the receiver is ending. The caller must hold Notifiers.allMu.
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

// end stops the goroutine of a receiver that is ending, waits for it, and closes the sender. Tests with the same sender
// may continue.
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

// wakeUp makes the receiver check for new events and compare changed subjects, and held subjects as well if ticked is
// true.
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

// run sends notices until ctx is done.
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
			limit = max(1, len(b.notices)/2) // to find the rejected notice
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

// accept updates the feed after a batch, and reports the values that have changed.
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
		r.log.Warn("the history dropped transitions before they were sent; the current states are sent instead", "lost", b.lost)
	}
	r.changed(keys)
}

// succeeded records that the receiver has accepted a batch.
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

// rejected records that the receiver will never accept the notice of a batch.
func (r *receiver) rejected(b *batch, err error) {
	b.rejected = true
	r.accept(b)
	r.feedMu.Lock()
	r.status.Dropped += uint64(len(b.notices))
	r.fail(err)
	r.feedMu.Unlock()
	r.log.Error("the receiver rejected a notice, which is not sent again", "about", b.notices[0].Subject.String(), "state", b.notices[0].State, "error", r.text(err))
}

// failed records a failed attempt. The first one of a series is logged.
func (r *receiver) failed(err error) {
	r.feedMu.Lock()
	r.status.Failed++
	first := r.fail(err)
	r.feedMu.Unlock()
	if first {
		r.log.Warn("the receiver does not accept notices, retrying", "error", r.text(err))
	}
}

// fail records the error of the latest attempt, and reports whether it begins a series. The caller must hold feedMu.
func (r *receiver) fail(err error) (first bool) {
	first = r.status.ErrorSince.IsZero()
	if r.status.Error = r.text(err); first {
		r.status.ErrorSince = time.Now()
	}
	return first
}

func (r *receiver) text(err error) string { return probe.CleanText(r.redact(err.Error()), maxError) }

// test sends a test notice.
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

// link returns the URL of a subject on the status page, or "".
func link(externalURL string, s Subject) string {
	switch {
	case externalURL == "":
		return ""
	case s.Kind == KindGroup:
		return strings.TrimSuffix(externalURL, "/") + "/#/?" + url.Values{"group": {s.Name}}.Encode()
	}
	return strings.TrimSuffix(externalURL, "/") + "/#/target/" + url.PathEscape(s.Name)
}
