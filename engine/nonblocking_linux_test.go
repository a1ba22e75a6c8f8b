//go:build linux

package engine_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// stepper is a handler whose attempts wait until the test writes into a pipe.
type stepper struct {
	t       *testing.T
	instant bool                // attempts do not wait
	blocks  bool                // requests a goroutine
	panics  bool                // panics when it is ready
	answer  probe.Result        // result of a step, and of Probe
	writers chan int            // writing ends of pipes, when attempts begin to wait
	events  chan nonblock.Event // all events

	gate  chan struct{} // Probe waits for it, unless it is nil
	under chan int      // number of concurrent calls of Probe, sent at each call
	count atomic.Int32

	mu   sync.Mutex
	open map[int]bool // reading ends of pipes
}

func newStepper(t *testing.T, answer probe.Outcome) *stepper {
	s := &stepper{
		t: t, answer: probe.Result{Outcome: answer},
		writers: make(chan int, 1000), events: make(chan nonblock.Event, 1000), open: map[int]bool{},
	}
	t.Cleanup(s.check)
	return s
}

// check closes the pipes of the test, and checks the pipes of the stepper.
func (s *stepper) check() {
	for len(s.writers) > 0 {
		syscall.Close(<-s.writers)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		s.t.Errorf("%d descriptors are still open", len(s.open))
	}
}

func (s *stepper) Probe(context.Context, probe.Target) probe.Result {
	if s.gate != nil {
		s.under <- int(s.count.Add(1))
		<-s.gate
		s.count.Add(-1)
	}
	return s.answer
}

func (s *stepper) Step(a *nonblock.Attempt) nonblock.Progress {
	s.events <- a.Event
	switch {
	case a.Event == nonblock.StepBegin && s.instant:
		a.Result = s.answer
		return nonblock.StepDone
	case a.Event == nonblock.StepBegin:
		return s.wait(a)
	}
	s.close(a.FD)
	switch {
	case a.Event == nonblock.StepLate:
		a.Result = probe.Fail("pipe.timeout", "nothing was written")
	case s.blocks:
		return nonblock.StepBlock
	case s.panics:
		panic("the pipe has burst")
	default:
		a.Result = s.answer
	}
	return nonblock.StepDone
}

func (s *stepper) wait(a *nonblock.Attempt) nonblock.Progress {
	var ends [2]int
	switch err := syscall.Pipe2(ends[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); {
	case err == syscall.EMFILE: // something else in this process may briefly use up the descriptors
		a.Result = probe.Broken(probe.ReasonResources, "no descriptors are left")
		return nonblock.StepDone
	case err != nil:
		s.t.Error(err)
	}
	a.FD = ends[0]
	s.mu.Lock()
	s.open[a.FD] = true
	s.mu.Unlock()
	s.writers <- ends[1]
	return nonblock.StepWait
}

func (s *stepper) close(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, fd)
	syscall.Close(fd)
}

// ready lets a waiting attempt continue.
func (s *stepper) ready() { write(<-s.writers) }

// readyUntil completes attempts, each after a delay, until the probe has the given verdict.
func (s *stepper) readyUntil(e *stepped, v probe.Verdict, delay time.Duration) (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for st, _ := e.Status(e.id); st.Verdict != v; st, _ = e.Status(e.id) {
			select {
			case w := <-s.writers:
				time.Sleep(delay)
				write(w)
			case <-time.After(time.Millisecond):
			case <-s.t.Context().Done():
				return
			}
		}
	}()
	return func() { <-ended }
}

// write makes the other end of a pipe ready.
func write(writer int) {
	syscall.Write(writer, []byte("x"))
	syscall.Close(writer)
}

// stepped runs an engine, in real time, with one probe of a stepper.
type stepped struct {
	*engine.Engine
	t    *testing.T
	id   probe.ID
	subs *engine.Subscription
}

func step(t *testing.T, h probe.Handler, rule probe.Rule) *stepped {
	t.Helper()
	return stepIn(t, engine.Config{}, h, rule)
}

func stepIn(t *testing.T, c engine.Config, h probe.Handler, rule probe.Rule) *stepped {
	t.Helper()
	s := &stepped{Engine: engine.New(c), t: t}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	p := with(h)
	p.Rule = rule
	s.id = probe.ID{Target: "web", Kind: rule.Kind}
	if _, err := s.Apply(probe.Set{s.id: p}); err != nil {
		t.Fatal(err)
	}
	s.subs = s.Subscribe()
	s.Report(instance("a"))
	return s
}

// becomes waits for a verdict.
func (s *stepped) becomes(v probe.Verdict) engine.Status {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testsync.Timeout)
	defer cancel()
	for {
		st, err := s.subs.Next(ctx)
		if err != nil {
			st, _ = s.Status(s.id)
			s.t.Fatalf("it does not become %v: %+v", v, st)
		}
		if st.Verdict == v && st.Result.Tries > 0 {
			return st
		}
	}
}

// patient is a rule with a timeout that should never expire.
var patient = probe.Rule{Kind: probe.Readiness, Period: time.Minute, Timeout: time.Minute, FailureThreshold: 1}

// strict is the rule of a liveness probe that passes until an attempt fails or cannot be made.
var strict = probe.Rule{
	Kind: probe.Liveness, Period: time.Second, Timeout: time.Minute, FailureThreshold: 1, OnError: probe.ErrorFails,
}

func TestANonBlockingAttemptNeedsNoGoroutine(t *testing.T) {
	h := newStepper(t, probe.Success)
	e := step(t, h, patient)
	h.ready()
	if st := e.becomes(probe.Passing); st.Result.Tries != 1 || st.Attempts != [4]uint64{probe.Success: 1} {
		t.Errorf("got %+v", st)
	}
}

func TestANonBlockingAttemptCanEndAtOnce(t *testing.T) {
	h := newStepper(t, probe.Success)
	h.instant = true
	rule := patient
	rule.Period = 10 * time.Millisecond
	e := step(t, h, rule)
	e.becomes(probe.Passing)
	for range 10 {
		if ev := <-h.events; ev != nonblock.StepBegin {
			t.Errorf("got event %d", ev)
		}
	}
}

func TestANonBlockingAttemptEndsAtItsTimeout(t *testing.T) {
	h := newStepper(t, probe.Success)
	h.answer.Outcome = probe.Success
	e := step(t, h, probe.Rule{
		Kind: probe.Readiness, Period: 10 * time.Millisecond, Timeout: 20 * time.Millisecond, FailureThreshold: 2,
	})
	wait := h.readyUntil(e, probe.Passing, 0)
	e.becomes(probe.Passing)
	wait()
	if st := e.becomes(probe.Failing); st.Result.Reason != "pipe.timeout" || st.Result.Took < 20*time.Millisecond {
		t.Errorf("got %+v", st)
	}
}

func TestANonBlockingAttemptThatIsTooSlowFails(t *testing.T) {
	h := newStepper(t, probe.Success)
	rule := patient
	rule.Period, rule.FailAfter = 10*time.Millisecond, time.Millisecond
	e := step(t, h, rule)
	wait := h.readyUntil(e, probe.Passing, 0)
	e.becomes(probe.Passing)
	wait()
	defer h.readyUntil(e, probe.Failing, 100*time.Millisecond)() // an attempt during which this machine is also busy does not fail
	if st := e.becomes(probe.Failing); st.Result.Reason != "target.too_slow" || st.Result.Took < 40*time.Millisecond {
		t.Errorf("got %+v", st)
	}
}

func TestAnAttemptThatNeedsAGoroutineGetsOne(t *testing.T) {
	h := newStepper(t, probe.Success)
	h.blocks = true
	e := step(t, h, patient)
	h.ready()
	e.becomes(probe.Passing)
}

func TestANonBlockingAttemptIsTriedThreeTimes(t *testing.T) {
	h := newStepper(t, probe.Unknown)
	e := step(t, h, strict)
	for range 3 {
		h.ready()
	}
	if st := e.becomes(probe.Failing); st.Result.Tries != 3 || st.Attempts != [4]uint64{probe.Unknown: 1} {
		t.Errorf("got %+v", st)
	}
}

func TestAPanicInAStepIsAnUnknownOutcomeAndIsCounted(t *testing.T) {
	tier.Slow(t)
	h := newStepper(t, probe.Success)
	h.panics = true
	e := step(t, h, strict)
	for range 3 {
		h.ready()
	}
	if st := e.becomes(probe.Failing); st.Result.Reason != "handler.panic" || e.Stats().Panics != 3 {
		t.Errorf("got %+v, %d panics", st, e.Stats().Panics)
	}
}

func TestARemovedProbesAttemptIsCanceled(t *testing.T) {
	h := newStepper(t, probe.Success)
	e := step(t, h, patient)
	defer syscall.Close(<-h.writers)
	if _, err := e.Apply(probe.Set{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []nonblock.Event{nonblock.StepBegin, nonblock.StepStop} {
		if got := <-h.events; got != want {
			t.Errorf("got event %d, want %d", got, want)
		}
	}
}

func TestAnotherInstanceCancelsTheAttemptAndStartsItsOwn(t *testing.T) {
	h := newStepper(t, probe.Success)
	e := step(t, h, patient)
	old := <-h.writers
	defer syscall.Close(old)
	e.Report(instance("b"))
	h.ready()
	if st := e.becomes(probe.Passing); st.Instance != "b" || st.Attempts != [4]uint64{probe.Success: 1} {
		t.Errorf("got %+v", st)
	}
}

func TestManyNonBlockingAttemptsAreInFlightAtOnce(t *testing.T) {
	const probes = 100
	h := newStepper(t, probe.Success)
	e := step(t, h, patient)
	removed := <-h.writers // its attempt has begun, and will be canceled
	defer syscall.Close(removed)
	set := probe.Set{}
	for i := range probes {
		id := readiness
		id.Name = string(rune('a'+i%26)) + string(rune('a'+i/26))
		p := with(h)
		p.Rule = patient
		set[id] = p
	}
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	var writers []int
	for range probes { // before the first one finishes, since its next attempt may be due immediately
		writers = append(writers, testsync.Receive(t, "the attempts", h.writers))
	}
	for _, w := range writers {
		write(w)
	}
	for n := 0; n < probes; {
		n = 0
		for st := range e.All() {
			if st.Verdict == probe.Passing {
				n++
			}
		}
	}
}

func TestAttemptsHandedToWorkersAreLimited(t *testing.T) {
	const probes, concurrency = 10, 2
	h := newStepper(t, probe.Success)
	h.blocks = true
	h.gate, h.under = make(chan struct{}), make(chan int, probes)
	e := stepIn(t, engine.Config{Concurrency: concurrency}, h, patient)
	set := probe.Set{e.id: with(h)}
	for i := range probes - 1 {
		set[named(readiness, string(rune('a'+i)))] = with(h)
	}
	for id, p := range set {
		p.Rule = patient
		p.Rule.Kind = id.Kind
		set[id] = p
	}
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	var ends []int
	for range probes { // all wait at once
		ends = append(ends, <-h.writers)
	}
	for _, w := range ends {
		h.writers <- w
		h.ready()
	}
	for range probes {
		if n := <-h.under; n > concurrency {
			t.Errorf("%d attempts with a goroutine at once", n)
		}
		h.gate <- struct{}{}
	}
}

// reuser puts a descriptor into the spares for the next attempt, and sends its number.
type reuser chan int

func (reuser) Probe(context.Context, probe.Target) probe.Result { return probe.Result{} }

func (l reuser) Step(a *nonblock.Attempt) nonblock.Progress {
	fd, ok := a.Spares.Take()
	if !ok {
		var ends [2]int
		if err := syscall.Pipe2(ends[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
			panic(err)
		}
		syscall.Close(ends[1])
		fd = ends[0]
	}
	if !a.Spares.Put(fd) {
		panic("a single descriptor was not kept")
	}
	l <- fd
	a.Result = probe.Succeed("")
	return nonblock.StepDone
}

func TestSpareDescriptorsAreReusedAndClosedWhenRunEnds(t *testing.T) {
	h := make(reuser, 1000)
	var first int
	t.Run("probing", func(t *testing.T) { // its engine stops with it
		rule := patient
		rule.Period = 10 * time.Millisecond
		step(t, h, rule)
		first = <-h
		for range 5 {
			if fd := <-h; fd != first {
				t.Errorf("an attempt has the descriptor %d, the first one left %d", fd, first)
			}
		}
	})
	if err := syscall.Fstat(first, new(syscall.Stat_t)); err != syscall.EBADF {
		t.Errorf("the descriptor was not closed: %v", err)
	}
}

// Waiting fails if another file takes the place of the epoll set. Workers then make attempts, and later attempts wait again.
func TestWaitingForDescriptorsIsTriedAgainAfterItFailed(t *testing.T) {
	tier.Slow(t)
	h := newStepper(t, probe.Success)
	before := epollSets(t)
	frequent := with(h)
	frequent.Rule = patient
	frequent.Rule.Period = 10 * time.Millisecond
	e := step(t, h, frequent.Rule)
	waits := <-h.writers
	defer syscall.Close(waits)
	var own map[int]bool // the engine's sets; it opens one once the attempt has begun
	testsync.Until(t, "the engine's set", func() bool {
		own = epollSets(t)
		maps.DeleteFunc(own, func(fd int, _ bool) bool { return before[fd] })
		return len(own) > 0
	})
	for fd := range own {
		if err := syscall.Dup3(waits, fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	other := named(readiness, "its start wakes the loop")
	if _, err := e.Apply(probe.Set{e.id: frequent, other: frequent}); err != nil {
		t.Fatal(err)
	}
	e.becomes(probe.Passing)
	h.awaitReady()
}

// The first attempt can open its pipe, but then there are no descriptors left for an epoll set.
func TestWaitingForDescriptorsIsTriedAgainAfterTheyWereShort(t *testing.T) {
	tier.Slow(t)
	h := newStepper(t, probe.Success)
	restore := faulttest.Descriptors(t, uint64(highestFile(t)+3))
	var taken []int
	for fd, err := syscall.Dup(1); err == nil; fd, err = syscall.Dup(1) {
		taken = append(taken, fd)
	}
	defer func() {
		for _, fd := range taken {
			syscall.Close(fd)
		}
	}()
	for range 2 {
		syscall.Close(taken[0])
		taken = taken[1:]
	}
	rule := patient
	rule.Period = 10 * time.Millisecond
	e := step(t, h, rule)
	if err := syscall.Close(<-h.writers); err != nil {
		t.Error(err)
	}
	e.becomes(probe.Passing)
	restore()
	h.awaitReady()
}

// awaitReady returns after an attempt has waited for its pipe and received the data written to it.
func (s *stepper) awaitReady() {
	s.t.Helper()
	for end := time.Now().Add(testsync.Timeout); time.Now().Before(end); {
		w := testsync.Receive(s.t, "an attempt", s.writers)
		syscall.Write(w, []byte("x"))
		syscall.Close(w)
		for len(s.events) > 0 {
			if <-s.events == nonblock.StepReady {
				return
			}
		}
	}
	s.t.Fatal("workers make all attempts")
}

// openFiles returns the open descriptors of this process with their files.
func openFiles(t *testing.T) map[int]string {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[int]string)
	for _, name := range names {
		fd, _ := strconv.Atoi(name.Name())
		if to, err := os.Readlink("/proc/self/fd/" + name.Name()); err == nil {
			files[fd] = to
		}
	}
	return files
}

func highestFile(t *testing.T) int { return slices.Max(slices.Collect(maps.Keys(openFiles(t)))) }

// epollSets returns the descriptors of all epoll sets of this process, including that of the runtime.
func epollSets(t *testing.T) map[int]bool {
	faulttest.StartPoller(t)
	sets := make(map[int]bool)
	for fd, to := range openFiles(t) {
		if strings.Contains(to, "eventpoll") {
			sets[fd] = true
		}
	}
	return sets
}
