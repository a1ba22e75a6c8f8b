// Package notify notifies receivers, such as Alertmanager, that targets and groups are in trouble, and that they no
// longer are. Each kind of receiver has a Sender in its own package below this one.
//
// Each receiver has a cursor in the history of the engine's transitions: all transitions before it were accepted by the
// receiver, or were not meant for it. The cursor advances after the receiver has accepted a batch, so that each
// transition of the history is reported at least once and in order, whatever fails or is killed. Receivers do not wait
// for each other, and the engine does not wait for them.
//
// Changes that are not in the history are found by comparison: at the start, after the history was too short, and
// whenever a group has changed, or a target has changed without a transition, the current state is compared with the
// last notice that the receiver accepted.
//
// DESIGN.md lists the invariants that no single function shows.
//
//	notify.go    Notifiers: starts and stops the receivers
//	notice.go    Notice: the content of a notification
//	selection.go Selection: the subjects of a notifier
//	source.go    the events and current states of targets
//	groups.go    the current states of groups
//	dependency.go  which troubles may be explained by other targets, and until when that is decided
//	feed.go      feed: decides the next notices for a receiver; without I/O and clock
//	receiver.go  receiver: sends notices, with retries
//	memory.go    the state from which the next engine resumes
//	handover.go  the state of a target's notices, for another engine to which the target moves
//	http.go      HTTP: how senders make requests
package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/wake"
)

// Sender sends notices to a receiver. If it also implements io.Closer, it is closed once no more notices are sent with
// it.
type Sender interface {
	// Send returns nil once the receiver has accepted all notices, which are in the order of delivery. After an error all of
	// them are sent again later, including those that were accepted. If the error contains a RetryError, that is not before
	// its After, or half a minute if After is longer. If the error contains ErrRejected, they are sent in smaller batches,
	// and a single notice is never sent again. Send must be safe for concurrent use.
	Send(ctx context.Context, notices []Notice) error
}

// ErrRejected is in the error of a Sender if the receiver will never accept the notices, however often they are sent.
var ErrRejected = errors.New("rejected")

// RetryError is in the error of a Sender if the receiver asks for a pause before the next attempt.
type RetryError struct {
	Err   error
	After time.Duration
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// Spec is the specification of a notifier.
type Spec struct {
	Output      string            // the kind of sender, such as "alertmanager"
	Selection   Selection         // the subjects of its notices
	Labels      map[string]string // of all notices, in addition to those of their subjects, which they override
	ExternalURL string            // URL of the status page; empty for none
	Settings    any               // of the output; a notifier is kept while its Spec without Receivers is deeply equal
	Files       [sha256.Size]byte // digest of the files that Settings name; see HTTP.Files

	Receivers []Receiver    // with unique names
	Resend    time.Duration // interval at which a notice is repeated while its subject is in trouble; 0 for never
	Coalesce  bool          // send only the current state of a subject, not each transition
	Batch     int           // maximum number of notices per attempt
	Timeout   time.Duration // of an attempt to send notices
}

// Receiver is one receiver of a notifier.
type Receiver struct {
	Name string // for display, such as http://am1:9093; must not have a password

	// Identity distinguishes the receiver from others of the same name, for instance by a URL whose path is secret. If it
	// changes, the receiver counts as a new one, which has not been notified of anything. It is stored as a hash. Default:
	// the name is enough.
	Identity string

	// New creates the sender. Its errors may quote texts, such as responses: before they are truncated, they must be passed
	// through redact, which replaces sensitive parts.
	New func(redact func(text string) string) (Sender, error)
}

// key returns the key by which the next engine recognizes the receiver.
func (r Receiver) key() string {
	if r.Identity == "" {
		return r.Name
	}
	sum := sha256.Sum256([]byte(r.Identity))
	return r.Name + "#" + hex.EncodeToString(sum[:8])
}

// Config configures Notifiers.
type Config struct {
	Engine *engine.Engine      // required
	Groups *group.Groups       // required
	Logger *slog.Logger        // logs when a series of failures of a receiver begins, and when it ends; default: no log
	Redact func(string) string // replaces sensitive parts of texts; default: none

	// IsConfigured reports whether a target exists that the engine may not have: it has no probes, and its instance was not
	// reported yet, or no longer is since the program is stopping; or engines share it, and its owner is not known yet.
	// Default: there is no such target.
	IsConfigured func(target string) bool

	// IsEnding reports whether the program is stopping and stops its targets; groups do not count as down because of that.
	// Default: false.
	IsEnding func() bool

	// MayNotify reports whether this engine sends the notices of a target now. Among engines that share targets only the
	// owner does. Another engine sends nothing until it may, and discards the notices of targets that it no longer has. It
	// must not block. Default: true.
	MayNotify func(target string) bool

	// NotifierOf returns which of the engines with the same groups sends the notices of a group. It must not block. Default:
	// ThisEngine.
	NotifierOf func(group string) Notifier

	// IsDoubted reports whether this engine doubts its own verdicts about a target or group: a trouble that begins meanwhile
	// is not reported unless it lasts. It must not block. Default: false.
	IsDoubted func(Subject) bool

	// Changed is called with the key of a value that has changed: see Notifiers.Value. It must not block, and must not call
	// Notifiers. Default: nothing is called, and the values are not saved.
	Changed func(key string)
}

// Notifier says which engine sends the notices of a group.
type Notifier int

// The values of Notifier.
const (
	ThisEngine  Notifier = iota
	OtherEngine          // this engine discards the notices that it has sent
	NoEngine             // this engine sends nothing now; notices that it has sent remain valid
)

// Notifiers notifies receivers. Create it with New, Restore the values of an earlier one, and call Run once. The other
// methods may be called at any time by multiple goroutines, but Plan and commit by only one at a time.
type Notifiers struct {
	config  Config
	targets *targetSource
	groups  *groupSource
	wake    wake.Signal // set when the history of the engine has grown

	allMu     sync.Mutex // guards all below
	ctx       context.Context
	notifiers map[string]*notifier // by name
	saved     memories             // restored memories of receivers that were not created yet
}

// notifier is a notifier as specified by a Spec.
type notifier struct {
	name      string
	spec      Spec
	receivers []*receiver
}

// New returns Notifiers without any notifier.
func New(c Config) *Notifiers {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Redact == nil {
		c.Redact = func(text string) string { return text }
	}
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	if c.IsConfigured == nil {
		c.IsConfigured = func(string) bool { return false }
	}
	if c.IsEnding == nil {
		c.IsEnding = func() bool { return false }
	}
	if c.MayNotify == nil {
		c.MayNotify = func(string) bool { return true }
	}
	if c.IsDoubted == nil {
		c.IsDoubted = func(Subject) bool { return false }
	}
	if c.NotifierOf == nil {
		c.NotifierOf = func(string) Notifier { return ThisEngine }
	}
	targets := &targetSource{engine: c.Engine, redact: c.Redact, isConfigured: c.IsConfigured, mayNotify: c.MayNotify, isDoubted: c.IsDoubted}
	return &Notifiers{
		config: c, targets: targets, groups: newGroupSource(&c),
		wake: wake.New(), notifiers: map[string]*notifier{}, saved: memories{},
	}
}

// Plan prepares to replace the notifiers by those of specs, by name, and changes nothing; commit, which cannot fail,
// replaces them. Plan creates the senders, which may read files. A notifier that has not changed is kept. The receivers
// of a changed notifier resume from the notices of the previous receivers of the same name. New receivers are notified
// of the subjects that are in trouble now.
func (n *Notifiers) Plan(specs map[string]Spec) (commit func(), err error) {
	next := make(map[string]*notifier, len(specs))
	for name, spec := range specs {
		made := &notifier{name: name, spec: spec}
		for _, to := range spec.Receivers {
			sender, err := to.New(n.config.Redact)
			if err != nil {
				return nil, fmt.Errorf("notify %q: %w", name, err)
			}
			made.receivers = append(made.receivers, newReceiver(n, receiverKey{name, to.key()}, to.Name, &made.spec, sender))
		}
		next[name] = made
	}
	return func() {
		ending := n.changedBy(next)
		for _, r := range ending {
			r.end()
		}
		n.replace(next, ending)
	}, nil
}

// changedBy moves the unchanged notifiers into next, and returns the receivers of the others, which must be stopped.
// Their values are the ones to be saved until they are replaced.
func (n *Notifiers) changedBy(next map[string]*notifier) (ending []*receiver) {
	n.allMu.Lock()
	defer n.allMu.Unlock()
	for name, before := range n.notifiers {
		if after := next[name]; after != nil && before.isAs(after) {
			next[name] = before
			continue
		}
		for _, r := range before.receivers {
			r.ending = true
			ending = append(ending, r)
		}
	}
	return ending
}

// replace replaces the notifiers by next. Its receivers resume from the memories of the stopped ones.
func (n *Notifiers) replace(next map[string]*notifier, ended []*receiver) {
	n.allMu.Lock()
	defer n.allMu.Unlock()
	for _, r := range ended {
		n.saved[r.key] = r.memory()
		r.changed(r.keys())
	}
	n.notifiers = next
	n.start()
}

// start starts new receivers if Run was called. Receivers that replace others resume from their memories. The caller
// must hold allMu.
func (n *Notifiers) start() {
	for r := range n.receivers() {
		if r.resumed {
			continue
		}
		r.resume(n.saved[r.key])
		r.changed(r.keys())
	}
	clear(n.saved)
	if n.ctx == nil {
		return
	}
	for r := range n.receivers() {
		r.start(n.ctx)
	}
}

// isAs reports whether a notifier may be kept in place of another one.
func (n *notifier) isAs(o *notifier) bool {
	a, b := n.spec, o.spec
	a.Receivers, b.Receivers = nil, nil // they are derived from Settings
	return reflect.DeepEqual(a, b)
}

// Run notifies receivers until ctx is done, and returns nil when all goroutines have exited. Notices that were not
// accepted by then are sent by the next engine, if it has the values.
func (n *Notifiers) Run(ctx context.Context) error {
	n.allMu.Lock()
	n.ctx = ctx
	n.start()
	n.allMu.Unlock()
	n.follow(ctx)
	n.allMu.Lock()
	all := slices.Collect(n.receivers())
	for _, r := range all {
		r.ending = true
	}
	n.allMu.Unlock()
	for _, r := range all {
		r.end()
	}
	return nil
}

// tick is how often receivers check for changes without a transition, such as pauses that end.
const tick = time.Second

// follow wakes the receivers when something has changed, until ctx is done.
func (n *Notifiers) follow(ctx context.Context) {
	changes := n.config.Engine.SubscribeTargets()
	defer changes.Close()
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	views := n.config.Groups.Views()
	for ctx.Err() == nil {
		ticked := group.AwaitReplaced(ctx, views, ticks.C, n.wake) == 0
		views = n.config.Groups.Views()
		changed := n.groups.follow(views)
		if ticked {
			for st, ok := changes.Poll(); ok; st, ok = changes.Poll() {
				changed = append(changed, Subject{KindTarget, st.Target})
			}
		}
		n.allMu.Lock()
		for r := range n.receivers() {
			r.wakeUp(changed, ticked)
		}
		n.allMu.Unlock()
	}
}

// receivers yields all receivers. The caller must hold allMu.
func (n *Notifiers) receivers() iter.Seq[*receiver] {
	return func(yield func(*receiver) bool) {
		for _, one := range n.notifiers {
			for _, r := range one.receivers {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Test sends a test notice to each receiver of a notifier, and returns the errors by receiver name, and whether the
// notifier exists. It does not affect other notices.
func (n *Notifiers) Test(ctx context.Context, name string) (results map[string]error, ok bool) {
	n.allMu.Lock()
	one := n.notifiers[name]
	n.allMu.Unlock()
	if one == nil {
		return nil, false
	}
	errs := make([]error, len(one.receivers))
	var tests sync.WaitGroup
	for i, r := range one.receivers {
		tests.Go(func() { errs[i] = r.test(ctx, time.Now()) })
	}
	tests.Wait()
	results = make(map[string]error, len(one.receivers))
	for i, r := range one.receivers {
		results[r.name] = errs[i]
	}
	return results, true
}

// Statuses returns the status of each receiver, sorted by notifier and receiver.
func (n *Notifiers) Statuses() (all []Status) {
	n.allMu.Lock()
	defer n.allMu.Unlock()
	for r := range n.receivers() {
		all = append(all, r.currentStatus())
	}
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Notifier, b.Notifier), cmp.Compare(a.Receiver, b.Receiver))
	})
	return all
}
