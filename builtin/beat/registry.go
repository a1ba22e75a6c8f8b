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
	Logger *slog.Logger // for warnings about missed and about rejected beats, each at most every ten seconds; default: none

	// Isolated reports whether the engine is cut off from its targets, in which case beats are missed as well. It must not block.
	// Default: the engine is never isolated.
	Isolated func() bool

	// MaxAge is the maximum age of a datagram, by the clocks of its sender and of this machine; older ones are rejected. Default:
	// any age.
	MaxAge time.Duration

	// Changed is called when the value of a target for the state file (see Value) has changed. It must not block. Default: nothing.
	Changed func(target string)

	// SentChanged is called when a value of Sent has changed. The change is urgent if the value is more than a second ahead of the
	// wall clock: it must be saved immediately, or else the next engine accepts a recorded datagram as new. SentChanged must not
	// block. Default: nothing.
	SentChanged func(key string, isUrgent bool)
}

// Registry holds the last beat of each target with a beat block. Its methods are safe for concurrent use by multiple goroutines.
type Registry struct {
	config RegistryConfig
	log    *slog.Logger
	clock  *clock.Clock
	woken  wake.Signal // Run should check again whether there are records

	recordsMu  sync.Mutex // guards all below
	records    map[string]*record
	restored   map[string]saved  // of targets without a record yet
	removed    map[string]uint64 // by key: latest datagram times of removed targets and former tokens
	listening  listening
	stats      Stats
	rejectedAt int64 // when rejected beats were last logged
}

// Stats is a copy of a Registry's counters.
type Stats struct {
	Targets       int    // targets with a beat block
	HTTP, UDP     uint64 // accepted beats
	Denied        uint64 // rejected beats: malformed, without the target's token, or not signed with it
	Replayed      uint64 // datagrams whose time is not later than that of an earlier one
	Old           uint64 // datagrams older than RegistryConfig.MaxAge
	TooMany       uint64 // beats that came too soon after the previous one of the target
	Dropped       uint64 // datagrams that the system dropped
	Interruptions uint64 // how many times beats may have been missed
}

// record is the state of the beats of one target. Keep it small: there may be many.
type record struct {
	token    string
	probes   []binding
	every    time.Duration // the shortest interval of all probes
	added    int64         // when the target was added or got another token; for a restored target, when this engine started
	expected int64         // since when beats are expected, by the configuration

	last      int64 // when the last beat other than Started came; 0 if none has
	lastWall  int64 // the same, in nanoseconds since 1970
	started   int64 // when the current run began; 0 if there is none
	took      time.Duration
	any       int64  // when the last beat of any status came
	sent      uint64 // the time in the last datagram
	saved     int64  // when the value for the state file last changed
	detail    string
	status    Status
	anyStatus Status // status of the beat at any
	exit      uint8
	client    netip.Addr // sender of the last beat over HTTP; the zero Addr if unknown
	byUDP     bool       // the last beat was a datagram
	fromFile  bool       // the last beat came before this engine started
}

// binding ties a probe to the beats of its target.
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

// Configure sets the configuration, parts of which may be known only after handlers have been created. It must not be called
// concurrently with other methods, except New.
func (r *Registry) Configure(c RegistryConfig) {
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	if c.SentChanged == nil {
		c.SentChanged = func(string, bool) {}
	}
	r.config, r.log = c, cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}

// Run checks for times in which beats may have been missed, until ctx is done.
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

// Apply replaces the set of targets whose beats are received.
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

// apply is Apply without the callbacks. It returns the targets that have no probe left and the keys of Sent that were discarded.
// Records without probes are deleted last, so that a target keeps its last beat when its probe is replaced by another.
func (r *Registry) apply(set probe.Set) (gone, dropped []string) {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	if len(r.records) == 0 {
		r.listening.looked = 0 // Run does not check for interruptions while there are no targets
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

// bind adds or updates the binding of a probe. If its settings have changed, the target has as much time for its next beat as a new
// target. The caller must hold recordsMu.
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

// update recomputes the fields that derive from the probes.
func (rec *record) update() {
	rec.every = probe.MaxDuration
	for _, b := range rec.probes {
		rec.every = min(rec.every, b.every)
	}
}

// Errors that Registry.Beat returns.
var (
	ErrDenied  = errors.New("no target of this name expects beats with this token")
	ErrTooMany = errors.New("the target sends more than ten beats a second")
)

// minDistance is the minimum time between two beats of a target with the same status.
const minDistance = 100 * time.Millisecond

// noToken is compared if a target has no record, so that the rejection takes as long as that of a wrong token.
const noToken = "no target has this token"

// Allows reports whether token is the token of the target; it counts a mismatch as denied. How long it takes depends neither on how
// much of the token is right nor on whether the target exists.
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

// Beat records a beat that a client sent for a target, for example over HTTP. The client is the zero Addr if its address is
// unknown. Beat returns ErrDenied or ErrTooMany if it rejects the beat; then nothing changes.
func (r *Registry) Beat(target, token string, client netip.Addr, report Report) error {
	if !r.Allows(target, token) {
		return ErrDenied
	}
	r.recordsMu.Lock()
	rec := r.records[target]
	if rec == nil || rec.token != token { // the configuration was reloaded in between
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

// receive processes a datagram, and reports whether it was rejected.
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
	if rec == nil || rec.token != token { // the configuration was reloaded in between
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

// urgentAhead is how far the time in a datagram may be ahead of the wall clock before it must be saved immediately. Correct clocks
// differ by less. Only an engine that starts within that time could accept the datagram again.
const urgentAhead = time.Second

// rejects returns the counter and the reason if a datagram with the time sent must be rejected, and a nil counter if it is
// accepted. The caller must hold recordsMu.
func (r *Registry) rejects(rec *record, sent uint64, now, wall int64) (counter *uint64, why string) {
	if sent <= max(rec.sent, rec.floor(now, wall)) {
		return &r.stats.Replayed, "replayed, or created before the target was added, its token was set or the engine started, by the sender's clock"
	}
	oldest := min(now, wall) - int64(r.config.MaxAge) // if the wall clock was set ahead, no datagram becomes old
	if r.config.MaxAge > 0 && int64(sent) < oldest {
		return &r.stats.Old, "older than max_age: it was delayed, or the sender's clock is behind the clock of this machine"
	}
	return nil, ""
}

// floor returns when the target was added or got its token, by the current wall clock. Datagrams made earlier may have been
// accepted already: for the target before it was removed or had another token, or by an earlier engine that could not save their
// times.
func (rec *record) floor(now, wall int64) uint64 { return uint64(max(wall-(now-rec.added), 0)) }

// reject increments counter, a field of stats, for a datagram that is rejected, and logs it unless another one was logged shortly
// before: strangers can send any number of them.
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

// isTooSoon reports whether a beat repeats the status of the last one within minDistance.
func (rec *record) isTooSoon(report Report, now int64) bool {
	return rec.any != 0 && now-rec.any < int64(minDistance) && rec.anyStatus == report.Status
}

// take records a beat, and reports whether it must be saved.
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

// Last describes the last beat of a target, without its token.
type Last struct {
	At     time.Time // zero if there was none
	Report Report
	Took   time.Duration // duration of the run that this beat ended; 0 if its start is unknown
	Begun  time.Time     // when the current run began; zero if there is none or its start is unknown
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

// sighting returns the data on which an attempt at the target is judged now; ok is false if the target has no record.
func (r *Registry) sighting(t probe.Target) (s sighting, ok bool) {
	r.recordsMu.Lock()
	why := r.observe()
	rec := r.records[t.Name]
	if ok = rec != nil; ok {
		now := r.clock.Now()
		s = sighting{now: now, wall: time.Now().UnixNano(), expected: max(rec.expected, min(r.clock.At(t.Since), now)), heard: r.listening.since(rec)}
		if !rec.fromFile || rec.every >= savePeriod { // otherwise the last beat may be missing from the file
			s.last, s.report = rec.last, Report{rec.status, rec.exit, rec.detail}
		}
	}
	r.recordsMu.Unlock()
	if why != "" {
		r.logInterruption(why)
	}
	return s, ok
}
