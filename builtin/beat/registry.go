package beatprobe

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// RegistryConfig configures a Registry. The zero value is valid.
type RegistryConfig struct {
	Logger *slog.Logger // a Warn line when beats may have been missed, and for beats that are rejected, each every ten seconds at most; default: none

	// Isolated reports whether the engine is cut off from its targets: then beats are missed too.
	// It must not block. Default: it never is.
	Isolated func() bool

	// MaxAge is how old a datagram may be, by the clocks of its sender and of this machine; an older one is
	// rejected. Default: any age.
	MaxAge time.Duration

	// Changed is called when the value of a target in the state file has changed: see Value. It
	// must not block. Default: nothing.
	Changed func(target string)

	// SentChanged is called when a value of Sent has changed. One that lies more than a second ahead of the wall clock
	// is urgent, and has to be saved at once: without it the next engine takes a recorded datagram for a new one. It
	// must not block. Default: nothing.
	SentChanged func(key string, isUrgent bool)
}

// Registry has the last beat of each target with a beat block. Its methods are safe for
// concurrent use by multiple goroutines.
type Registry struct {
	config RegistryConfig
	log    *slog.Logger
	clock  *clock.Clock
	woken  wake.Signal // there may be records now

	recordsMu  sync.Mutex // guards all below
	records    map[string]*record
	restored   map[string]saved  // of targets without a record yet
	removed    map[string]uint64 // by key: the latest times of targets without a record, or with another token, that lie ahead of the wall clock
	listening  listening
	stats      Stats
	rejectedAt int64 // when a line about rejected beats was logged
}

// Stats is a copy of a Registry's counters.
type Stats struct {
	Targets       int    // that beats are expected of
	HTTP, UDP     uint64 // beats that were accepted
	Denied        uint64 // beats that were rejected: not of this form, without the token of a target, or not signed with it
	Replayed      uint64 // datagrams with a time that is not after that of an earlier one
	Old           uint64 // datagrams that were made too long ago
	TooMany       uint64 // beats that came too soon after another one of the target
	Dropped       uint64 // datagrams that the system has dropped
	Interruptions uint64 // how often beats may have been missed
}

// record is what is known of the beats of a target. There may be many: it is small.
type record struct {
	token    string
	probes   []binding
	every    time.Duration // the shortest of all probes
	added    int64         // when the target was added or got another token, or this engine has started, if the target is restored
	expected int64         // since when there should be beats, by the configuration

	last      int64 // when the last beat came that is not Started; 0 for none
	lastWall  int64 // the same, in nanoseconds since 1970
	started   int64 // when the run began that goes on; 0 for none
	took      time.Duration
	any       int64  // when the last beat of any status came
	sent      uint64 // time in the last datagram
	saved     int64  // when the value in the state file was last changed
	detail    string
	status    Status
	anyStatus Status // of the beat at any
	exit      uint8
	client    netip.Addr // that has sent the last beat over HTTP; not valid if it is not known
	byUDP     bool       // the last beat was a datagram
	fromFile  bool       // the last beat came before this engine has started
}

// binding is a probe that goes by the beats of a target.
type binding struct {
	kind   probe.Kind
	name   string
	config Config
	every  time.Duration // of its rhythm
}

// NewRegistry returns a Registry without targets.
func NewRegistry() *Registry {
	r := &Registry{clock: clock.New(), woken: wake.New(), records: map[string]*record{}, restored: map[string]saved{}, removed: map[string]uint64{}}
	r.Configure(RegistryConfig{})
	return r
}

// Configure sets the configuration, whose parts may be known only after handlers were made. It must
// not be called concurrently with other methods, apart from New.
func (r *Registry) Configure(c RegistryConfig) {
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	if c.SentChanged == nil {
		c.SentChanged = func(string, bool) {}
	}
	r.config, r.log = c, cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}

// Run looks for times in which beats may have been missed, until ctx is done.
func (r *Registry) Run(ctx context.Context) {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for {
		var tick <-chan time.Time
		if r.Stats().Targets > 0 {
			tick = ticker.C
		}
		select {
		case <-tick:
			r.look()
		case <-r.woken:
		case <-ctx.Done():
			r.markUnsaved()
			return
		}
	}
}

// Apply makes the targets of a set those whose beats are received.
func (r *Registry) Apply(set probe.Set) {
	gone, dropped := r.apply(set)
	for _, target := range gone {
		r.config.Changed(target)
	}
	for _, key := range dropped {
		r.config.SentChanged(key, false)
	}
	r.woken.Set()
}

// apply is Apply, and returns the targets that have no probe left, and the keys of Sent that are gone.
// Records without probes are deleted in the end only: a target whose probe is replaced by another keeps its
// last beat.
func (r *Registry) apply(set probe.Set) (gone, dropped []string) {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	if len(r.records) == 0 {
		r.listening.looked = 0 // Run does not look without targets
	}
	changed := map[string]*record{}
	for target, rec := range r.records {
		before := len(rec.probes)
		rec.probes = slices.DeleteFunc(rec.probes, func(b binding) bool {
			_, still := set[probe.ID{Target: target, Kind: b.kind, Name: b.name}].Handler.(*handler)
			return !still
		})
		if len(rec.probes) != before {
			changed[target] = rec
		}
	}
	for id, p := range set {
		if h, ok := p.Handler.(*handler); ok {
			r.bind(id, h)
		}
	}
	for target, rec := range changed {
		if rec.update(); len(rec.probes) == 0 {
			r.keepSent(target, rec)
			delete(r.records, target)
			gone = append(gone, target)
		}
	}
	return gone, r.dropSent(time.Now().UnixNano())
}

// bind has a probe go by the beats of its target. With other settings the target has as much time
// for the next beat as at first. It needs recordsMu.
func (r *Registry) bind(id probe.ID, h *handler) {
	c := h.config
	rec := r.records[id.Target]
	if rec == nil {
		rec = &record{added: r.clock.Now()}
		r.records[id.Target] = rec
		if s, ok := r.restored[id.Target]; ok {
			s.restore(rec, r.clock)
			delete(r.restored, id.Target)
		}
	}
	b := binding{id.Kind, id.Name, c, h.rhythm.every}
	i := slices.IndexFunc(rec.probes, b.isSame)
	switch {
	case i < 0:
		rec.probes = append(rec.probes, b)
	case rec.probes[i].config == c:
		return
	default:
		rec.probes[i] = b
	}
	if !rec.fromFile || i >= 0 {
		rec.expected = r.clock.Now()
	}
	if rec.token != c.Token {
		if rec.token != "" {
			rec.added = r.clock.Now() // it may have had this token before
		}
		r.keepSent(id.Target, rec)
		rec.token = c.Token
		r.takeSent(id.Target, rec)
	}
	rec.update()
}

func (b binding) isSame(other binding) bool { return b.kind == other.kind && b.name == other.name }

// update computes what follows from the probes.
func (rec *record) update() {
	rec.every = probe.MaxDuration
	for _, b := range rec.probes {
		rec.every = min(rec.every, b.every)
	}
}

// The errors of Registry.Beat.
var (
	ErrDenied  = errors.New("there is no target of this name that expects beats with this token")
	ErrTooMany = errors.New("the target sends more than ten beats a second")
)

// minDistance is the time between two beats of a target with the same status.
const minDistance = 100 * time.Millisecond

// noToken is compared where there is no record, so that its absence takes as long as a wrong token.
const noToken = "no target has this token"

// Allows reports whether a token is that of a target, and counts a token that is not. How long that
// takes depends neither on how much of the token is right nor on whether there is such a target.
func (r *Registry) Allows(target, token string) bool {
	want, exists := r.tokenOf(target)
	if listener.Token(want).Matches(token) && exists {
		return true
	}
	r.recordsMu.Lock()
	r.stats.Denied++
	r.recordsMu.Unlock()
	return false
}

// tokenOf returns the token of a target, or noToken if there is none.
func (r *Registry) tokenOf(target string) (token string, exists bool) {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	if rec := r.records[target]; rec != nil {
		return rec.token, true
	}
	return noToken, false
}

// Beat takes a beat of a target that a client has sent with a token, as over HTTP. The client is an
// address, or not valid if it has none. An error is ErrDenied or ErrTooMany; then the beat changes
// nothing.
func (r *Registry) Beat(target, token string, client netip.Addr, report Report) error {
	if !r.Allows(target, token) {
		return ErrDenied
	}
	r.recordsMu.Lock()
	rec := r.records[target]
	if rec == nil || rec.token != token { // a reload came in between
		r.recordsMu.Unlock()
		return ErrDenied
	}
	now := r.clock.Now()
	if rec.isTooSoon(report, now) {
		r.stats.TooMany++
		r.recordsMu.Unlock()
		return ErrTooMany
	}
	r.stats.HTTP++
	isChanged := rec.take(report, now)
	rec.byUDP, rec.client = false, client
	r.recordsMu.Unlock()
	if isChanged {
		r.config.Changed(target)
	}
	return nil
}

// receive takes a datagram, and reports whether it was rejected.
func (r *Registry) receive(packet []byte) (isRejected bool) {
	d, err := parseDatagram(packet)
	if err != nil {
		r.reject(&r.stats.Denied, err.Error(), "")
		return true
	}
	token, exists := r.tokenOf(d.target)
	if !d.isSignedWith(token) || !exists {
		r.reject(&r.stats.Denied, "not signed with the token of a target", "")
		return true
	}
	r.recordsMu.Lock()
	now, wall := r.clock.Now(), time.Now().UnixNano()
	rec := r.records[d.target]
	if rec == nil || rec.token != token { // a reload came in between
		r.recordsMu.Unlock()
		return false
	}
	if counter, why := r.rejects(rec, d.time, now, wall); counter != nil {
		r.recordsMu.Unlock()
		r.reject(counter, why, d.target)
		return true
	}
	rec.sent = d.time
	isUrgent, isTooSoon, isChanged := int64(d.time)-wall > int64(urgentAhead), rec.isTooSoon(d.report, now), false
	if isTooSoon {
		r.stats.TooMany++
	} else {
		r.stats.UDP++
		isChanged = rec.take(d.report, now)
		rec.byUDP = true
	}
	r.recordsMu.Unlock()
	if isChanged {
		r.config.Changed(d.target)
	}
	if isChanged || isUrgent {
		r.config.SentChanged(sentKey(d.target, token), isUrgent)
	}
	return isTooSoon
}

// urgentAhead is how far the time in a datagram may lie ahead of the wall clock until it is urgent to save it. Clocks
// that are right differ by less. Only an engine that starts within that time could take the datagram again.
const urgentAhead = time.Second

// rejects returns why the time in a datagram of a target is one that does not count, and the counter of that; nil if it
// counts. It needs recordsMu.
func (r *Registry) rejects(rec *record, sent uint64, now, wall int64) (counter *uint64, why string) {
	if sent <= max(rec.sent, rec.floor(now, wall)) {
		return &r.stats.Replayed, "replayed, or made before the target was added or got its token, or the engine has started, by the clock of the sender"
	}
	oldest := min(now, wall) - int64(r.config.MaxAge) // a wall clock that was set ahead makes nothing old
	if r.config.MaxAge > 0 && int64(sent) < oldest {
		return &r.stats.Old, "older than max_age: it was held back, or the clock of the sender is behind that of this machine"
	}
	return nil, ""
}

// floor returns when the target was added or got its token, by the wall clock as it is set now. Datagrams that were
// made before may have counted already: for the target before it was removed or had another token, or in an engine
// before this one, which could not save that.
func (rec *record) floor(now, wall int64) uint64 { return uint64(max(wall-(now-rec.added), 0)) }

// reject counts a datagram that changes nothing with a counter of stats, and logs it, unless one was logged shortly
// before. Strangers can send any number of them.
func (r *Registry) reject(counter *uint64, why, target string) {
	r.recordsMu.Lock()
	*counter++
	now := r.clock.Now()
	mayLog := r.rejectedAt == 0 || now-r.rejectedAt >= int64(logPause)
	if mayLog {
		r.rejectedAt = now
	}
	denied, replayed := r.stats.Denied, r.stats.Replayed
	r.recordsMu.Unlock()
	if mayLog {
		r.log.Warn("beat rejected", "reason", why, "target", target, "denied_so_far", denied, "replayed_so_far", replayed)
	}
}

// isTooSoon reports whether a beat says nothing new, so soon after the last one.
func (rec *record) isTooSoon(report Report, now int64) bool {
	return rec.any != 0 && now-rec.any < int64(minDistance) && rec.anyStatus == report.Status
}

// take takes a beat, and reports whether it has to be saved.
func (rec *record) take(report Report, now int64) (isChanged bool) {
	report = report.cleaned()
	rec.any, rec.anyStatus = now, report.Status
	if report.Status == Started {
		rec.started = now
		return false
	}
	isChanged = rec.status != report.Status || rec.every >= savePeriod || now-rec.saved >= int64(savePeriod)
	rec.took = 0
	if rec.started != 0 {
		rec.took = time.Duration(now - rec.started)
	}
	rec.last, rec.lastWall, rec.started, rec.fromFile = now, time.Now().UnixNano(), 0, false
	rec.status, rec.exit, rec.detail = report.Status, report.Exit, report.Detail
	if isChanged {
		rec.saved = now
	}
	return isChanged
}

// Last is what people may see of the last beat of a target.
type Last struct {
	At     time.Time // zero: there was none
	Report Report
	Took   time.Duration // of the run that it has ended; 0 if its start is not known
	Begun  time.Time     // when the run began that goes on; zero: none does, or its start is not known
}

// Last returns the last beat of a target, and false for a target without a beat block.
func (r *Registry) Last(target string) (l Last, ok bool) {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	rec := r.records[target]
	if rec == nil {
		return Last{}, false
	}
	if rec.last != 0 {
		l = Last{At: time.Unix(0, rec.lastWall), Report: Report{rec.status, rec.exit, rec.detail}, Took: rec.took}
	}
	if rec.started != 0 {
		l.Begun = r.clock.Time(rec.started)
	}
	return l, true
}

// Stats returns a copy of the counters.
func (r *Registry) Stats() Stats {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	s := r.stats
	s.Targets, s.Dropped, s.Interruptions = len(r.records), r.listening.dropped, r.listening.interruptions
	return s
}

// sighting returns what is known for an attempt at a target now.
func (r *Registry) sighting(t probe.Target) (s sighting, ok bool) {
	r.recordsMu.Lock()
	why := r.observe()
	rec := r.records[t.Name]
	if ok = rec != nil; ok {
		now := r.clock.Now()
		s = sighting{now: now, wall: time.Now().UnixNano(), expected: max(rec.expected, min(r.clock.At(t.Since), now)), heard: r.listening.since(rec)}
		if !rec.fromFile || rec.every >= savePeriod { // otherwise the file may lack the last one
			s.last, s.report = rec.last, Report{rec.status, rec.exit, rec.detail}
		}
	}
	r.recordsMu.Unlock()
	if why != "" {
		r.logInterruption(why)
	}
	return s, ok
}
