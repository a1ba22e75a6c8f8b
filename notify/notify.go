// Package notify tells receivers, such as Alertmanager, that targets and groups are in trouble,
// and that they no longer are. What tells a receiver of one kind is a Sender, in a package of its
// own below this one.
//
// Each receiver has a cursor in the history of the engine's transitions: what lies before it was
// accepted by the receiver, or was not for it. The cursor moves after the receiver has accepted, so
// that each transition of the history is told at least once, in its order, whatever fails or is
// killed. Receivers do not wait for each other, and the engine does not wait for them.
//
// What is not in the history is found by comparison: at the start, after the history was too short,
// and whenever a group has changed, or a target without a transition, the state is compared with what
// the receiver was told last.
//
// DESIGN.md lists the invariants that no single function shows.
//
//	notify.go    Notifiers: starts and ends those who send to receivers
//	notice.go    Notice: what is told
//	selection.go Selection: about whom
//	source.go    what has happened, and how it is now: of targets
//	groups.go    how groups are now
//	dependency.go  which troubles may be those of other targets, and until when that is decided
//	feed.go      feed: what a receiver is to be told next; without I/O and clock
//	receiver.go  receiver: sends, and tries again
//	memory.go    what the next engine goes on with
//	handover.go  what another engine goes on with that a target moves to
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

// Sender gives notices to a receiver. One that is an io.Closer, too, is closed once no more notices are
// sent by it.
type Sender interface {
	// Send returns nil once the receiver has accepted all notices, which are in the order in which
	// they are to be told. After an error they are sent again, also those that were accepted: later,
	// not before RetryError.After, or half a minute, if that is in the error; in smaller batches, and a single one never
	// again, if the error is ErrRejected. Several goroutines may call it at once.
	Send(ctx context.Context, notices []Notice) error
}

// ErrRejected is in the error of a Sender if the receiver will not accept the notices, however often
// they are sent.
var ErrRejected = errors.New("rejected")

// RetryError is in the error of a Sender if the receiver asks to be left alone for a time.
type RetryError struct {
	Err   error
	After time.Duration
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// Spec says what a notifier is to be.
type Spec struct {
	Output      string            // what it sends by, such as "alertmanager"
	Selection   Selection         // about whom it tells
	Labels      map[string]string // of all notices, besides those of their subjects, which they replace
	ExternalURL string            // where people find the status page; empty for nowhere
	Settings    any               // of the output; a notifier goes on as it is while all of this is deeply equal
	Files       [sha256.Size]byte // what the files have in them that Settings name; see HTTP.Files

	Receivers []Receiver    // with names of their own
	Resend    time.Duration // how often a notice is sent again while its subject is in trouble; 0 for never
	Coalesce  bool          // tell how subjects are now, and not each transition
	Batch     int           // how many notices are sent at once, at most
	Timeout   time.Duration // of an attempt to send them
}

// Receiver is one of those that a notifier tells.
type Receiver struct {
	Name string // shown, such as http://am1:9093; no password in it

	// Identity tells the receiver from others of its name, such as a URL whose path is secret: with another
	// one it is a new receiver, which was told nothing. It is kept as a hash. Empty: its name is enough.
	Identity string

	// New makes the sender. In texts that its errors repeat, such as responses, redact replaces what must not
	// be shown, before they are cut.
	New func(redact func(text string) string) (Sender, error)
}

// key returns what the receiver is known by to the next engine.
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
	Logger *slog.Logger        // gets a line when a series of failures of a receiver begins, and when it ends; default: no log
	Redact func(string) string // replaces what must not be shown; default: nothing

	// IsConfigured reports whether a target exists which the engine may not know: it has no probes, and its
	// instance was not reported yet, or is not any more since the program ends; or engines share it, and it is not
	// known yet which of them has it. Default: no such target does.
	IsConfigured func(target string) bool

	// IsEnding reports whether the program ends, and stops targets: groups are not down for that. Default: it does
	// not.
	IsEnding func() bool

	// MayNotify reports whether this engine tells about a target now. Among engines that share targets it
	// is the owner that does: another one tells nothing until it may, and forgets what it has told about
	// targets that it no longer has. It must not block. Default: always.
	MayNotify func(target string) bool

	// NotifierOf returns which engine tells about a group, of those that have the same groups. It must not block.
	// Default: this one.
	NotifierOf func(group string) Notifier

	// IsDoubted reports whether this engine doubts its own verdicts about a target or group: nobody is told of a trouble that
	// begins meanwhile, unless it lasts. It must not block. Default: never.
	IsDoubted func(Subject) bool

	// Changed is called with the key of a value that has changed: see Notifiers.Value. It must not
	// block, and must not call Notifiers. Default: nobody keeps the values.
	Changed func(key string)
}

// Notifier is which engine tells receivers about a group.
type Notifier int

// The values of Notifier.
const (
	ThisEngine  Notifier = iota
	OtherEngine          // this one forgets what it has told
	NoEngine             // this one tells nothing now: what it has told holds
)

// Notifiers tells receivers. Create it with New, Restore what an earlier one has left, and call Run
// once. The other methods may be called at any time by multiple goroutines, Plan and commit by one at a time.
type Notifiers struct {
	config  Config
	targets *targetSource
	groups  *groupSource
	wake    wake.Signal // the history of the engine has grown

	allMu     sync.Mutex // guards all below
	ctx       context.Context
	notifiers map[string]*notifier // by name
	saved     memories             // restored, of receivers that were not made yet
}

// notifier is what a Spec asks for.
type notifier struct {
	name      string
	spec      Spec
	receivers []*receiver
}

// New returns Notifiers without a notifier.
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

// Plan returns commit, which makes the notifiers those of specs, by name, and cannot fail: Plan makes the senders, which may
// read files, and changes nothing. A notifier that has not changed goes on as it is. The receivers of another one go on with
// what they were told, as long as their names do. Those that are new are told which subjects are in trouble now.
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

// changedBy puts the notifiers that have not changed into next, and returns the receivers of the others,
// which are to end. Their values are those to be saved until they are replaced.
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

// replace makes the notifiers those of next, which go on with what the receivers were told that have
// ended.
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

// start starts the receivers that have not begun, once there is Run. Those that succeed others go on
// as they did. It needs allMu.
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

// isAs reports whether a notifier need not be replaced by another one.
func (n *notifier) isAs(o *notifier) bool {
	a, b := n.spec, o.spec
	a.Receivers, b.Receivers = nil, nil // they follow from Settings
	return reflect.DeepEqual(a, b)
}

// Run tells receivers until ctx is done, and returns nil when all goroutines have ended. What was not
// accepted by then is told by the next engine, if it has the values.
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

// tick is how often receivers look at what no transition tells: pauses that end, for example.
const tick = time.Second

// follow wakes the receivers when something has happened, until ctx is done.
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

// receivers yields all receivers. It needs allMu.
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

// Test sends a test notice to each receiver of a notifier, and returns the errors by the names of the
// receivers, and whether there is such a notifier. It changes nothing about other notices.
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

// Statuses returns the status of each receiver, sorted by the names of notifier and receiver.
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
