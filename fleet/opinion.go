package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// reasonDiffer is that of a warning: this engine gets no answer from the target, and another one does.
const reasonDiffer probe.Reason = "cluster.gray"

const (
	// maxWitnesses is how many engines are asked about a failure. The second one is for a first one that has just died.
	maxWitnesses = 2

	// maxQuestions bounds the questions of an engine that wait for answers, and maxTestimonies its attempts for others at a time: as
	// many as an engine makes on goroutines by default. What is more is not asked, or not attempted.
	maxQuestions   = engine.DefaultConcurrency
	maxTestimonies = engine.DefaultConcurrency

	// maxSaid bounds the questions, and the answers, of one message, so that all names of targets fit into a request.
	maxSaid = 250

	// sayDelay is how long a message waits for more to say, and sayTimeout bounds the request: a later answer would be too late.
	sayDelay   = 10 * time.Millisecond
	sayTimeout = time.Second
)

// message is what an engine says to others. The entry of the engine has its latest message: those who watch it see each of them.
type message struct {
	Questions []question `json:"questions,omitempty"`
	Answers   []answer   `json:"answers,omitempty"`
}

// question asks other engines to attempt a probe once.
type question struct {
	Number uint64     `json:"number"` // of the engine that asks
	Of     []string   `json:"of"`     // who is asked
	Target string     `json:"target"`
	Kind   probe.Kind `json:"kind"`
	Name   string     `json:"name,omitempty"`
}

// answer is what an attempt for another engine has found. An unknown outcome says that it could not be made.
type answer struct {
	To      string        `json:"to"`
	Number  uint64        `json:"number"`
	Outcome probe.Outcome `json:"outcome"`
}

// opinions asks other engines to attempt a probe that is about to fail here without an answer, and attempts probes for them: an
// engine that is cut off from some of its targets publishes no failure of theirs (SWIM's indirect probe; Das, Gupta and Motivala, DSN 2002).
type opinions struct {
	config  Config
	votes   *votes // who can be asked
	desired *desired
	doubts  *doubts
	sparse  *sparselog.Logger
	wake    wake.Signal // there is something to say

	opinionMu sync.Mutex // guards all below
	number    uint64     // of the latest question
	open      map[uint64]*open
	differing map[probe.ID]string // probes of which the latest answer was that they pass elsewhere, and at which engine
	unsaid    message
}

// open is a question that was not answered yet.
type open struct {
	question engine.Question
	waiting  []string // who may still answer
	before   string   // who has passed the probe the last time, if it is gray
}

func newOpinions(c Config, v *votes, d *desired, doubts *doubts) *opinions {
	return &opinions{
		config: c, votes: v, desired: d, doubts: doubts, sparse: sparselog.New(c.Logger), wake: wake.New(),
		number: rand.Uint64(), // an answer to an earlier process of this name has another one
		open:   map[uint64]*open{}, differing: map[probe.ID]string{},
	}
}

// ask asks others, unless there are none, or it is about a probe that is not the fleet's to decide.
func (o *opinions) ask(q engine.Question) (isAsked bool) {
	before := o.passingAt(q.Probe)
	witnesses := o.witnesses(before)
	if len(witnesses) == 0 || !o.config.Coordinator.Allowed() || !o.desired.decidesAlone(q.Probe) {
		return false
	}
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	if len(o.open) >= maxQuestions {
		return false
	}
	o.number++
	number := o.number
	o.open[number] = &open{q, witnesses, before}
	o.unsaid.Questions = append(o.unsaid.Questions, question{number, witnesses, q.Probe.Target, q.Probe.Kind, q.Probe.Name})
	o.wake.Set()
	time.AfterFunc(q.Within, func() { o.close(number) })
	return true
}

// passingAt returns the engine at which a probe passes that is gray; "" for any other probe.
func (o *opinions) passingAt(id probe.ID) string {
	if st, _ := o.config.Engine.Status(id); st.Result.Reason != reasonDiffer {
		return ""
	}
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	return o.differing[id]
}

// witnesses returns whom to ask: some by chance, rather those that do not doubt themselves, and the one that was right before.
func (o *opinions) witnesses(before string) (names []string) {
	engines := o.votes.engines()
	delete(engines, o.config.Coordinator.Name())
	names = slices.Collect(maps.Keys(engines))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	rank := func(name string) int { return 2*one(engines[name].Doubtful) + one(name != before) }
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names[:min(len(names), maxWitnesses)]
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// close forgets a question.
func (o *opinions) close(number uint64) {
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	delete(o.open, number)
}

// run says what there is to say, and follows what others say, until ctx is done.
func (o *opinions) run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { o.say(ctx) })
	var testimonies errgroup.Group
	testimonies.SetLimit(maxTestimonies)
	defer func() { _ = testimonies.Wait() }() // they return none
	o.config.Coordinator.Follow(ctx, "questions of other engines cannot be followed, trying again", func(ctx context.Context) error {
		return coord.FollowEntries(ctx, o.config.Coordinator.Backend(), coord.KeyOpinion, func(events []coord.Event, isAll bool) {
			for _, e := range events {
				from := strings.TrimPrefix(e.Key, coord.KeyOpinion)
				var m message
				if isAll || e.Deleted || from == o.config.Coordinator.Name() || json.Unmarshal(e.Value, &m) != nil {
					continue // it is old, our own, or none of this release
				}
				o.hear(from, m.Answers)
				o.testify(ctx, &testimonies, from, m.Questions)
			}
		})
	})
}

// hear takes the answers of an engine to questions of this one.
func (o *opinions) hear(from string, answers []answer) {
	for _, a := range answers {
		if a.To != o.config.Coordinator.Name() {
			continue
		}
		if q, opinion := o.conclude(from, a); opinion != nil {
			q.Answer(*opinion)
		}
	}
}

// conclude returns the question that an answer has closed, with the opinion on it; nil for none yet. It is closed by an engine that gets an
// answer from the target, or when nobody is left who might.
func (o *opinions) conclude(from string, a answer) (q engine.Question, opinion *probe.Result) {
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	of := o.open[a.Number]
	if of == nil || !slices.Contains(of.waiting, from) {
		return q, nil
	}
	of.waiting = slices.DeleteFunc(slices.Clone(of.waiting), func(name string) bool { return name == from })
	result := of.question.Result
	switch {
	case a.Outcome == probe.Success || a.Outcome == probe.Warning:
		if slices.Contains(of.waiting, of.before) {
			from = of.before // another one was quicker: the text stays
		}
		o.differing[of.question.Probe] = from
		result = probe.Warn(reasonDiffer, "failing at %s: %s: %s; passing at %s", o.config.Coordinator.Name(), result.Reason, result.Detail, from)
	case len(of.waiting) > 0:
		return q, nil
	}
	delete(o.open, a.Number)
	return of.question, &result
}

// testify makes attempts for another engine, as many as it can at a time.
func (o *opinions) testify(ctx context.Context, testimonies *errgroup.Group, to string, questions []question) {
	for _, q := range questions {
		if !slices.Contains(q.Of, o.config.Coordinator.Name()) {
			continue
		}
		if !testimonies.TryGo(func() error { o.answer(to, q, o.attempt(ctx, q)); return nil }) {
			o.answer(to, q, probe.Unknown)
		}
	}
}

// attempt makes an attempt for another engine, as the configuration of this one says. A failure is none while this engine doubts its
// own verdicts.
func (o *opinions) attempt(ctx context.Context, q question) probe.Outcome {
	id := probe.ID{Target: q.Target, Kind: q.Kind, Name: q.Name}
	p := o.desired.probe(id)
	if !o.desired.decidesAlone(id) || !isPrepared(p.Handler) {
		return probe.Unknown
	}
	p.Target.Name = id.Target
	wasDoubtful := o.doubts.now().Doubtful
	outcome := engine.Once(ctx, p).Outcome
	if outcome == probe.Failure && (wasDoubtful || o.doubts.now().Doubtful) {
		return probe.Unknown
	}
	return outcome
}

// isPrepared reports whether a handler can make attempts now.
func isPrepared(h probe.Handler) bool {
	p, isPreparing := h.(probe.PreparingHandler)
	if !isPreparing {
		return true
	}
	select {
	case <-p.Ready():
		return true
	default:
		return false
	}
}

func (o *opinions) answer(to string, q question, found probe.Outcome) {
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	o.unsaid.Answers = append(o.unsaid.Answers, answer{to, q.Number, found})
	o.wake.Set()
}

// say puts what there is to say until ctx is done.
func (o *opinions) say(ctx context.Context) {
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(sayDelay):
		case <-ctx.Done():
			return
		}
		for m := o.take(); len(m.Questions)+len(m.Answers) > 0; m = o.take() {
			if err := o.put(ctx, m); err != nil {
				o.sparse.Warn("other engines cannot be asked about targets that do not answer: the failures count", "engine", o.config.Coordinator.Name(), "error", err)
				o.concede(m.Questions)
			}
		}
	}
}

// take takes the next message from what there is to say.
func (o *opinions) take() (m message) {
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	questions, answers := min(len(o.unsaid.Questions), maxSaid), min(len(o.unsaid.Answers), maxSaid)
	m = message{o.unsaid.Questions[:questions], o.unsaid.Answers[:answers]}
	o.unsaid = message{o.unsaid.Questions[questions:], o.unsaid.Answers[answers:]}
	return m
}

// put puts a message, under the lease of this engine.
func (o *opinions) put(ctx context.Context, m message) error {
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	lease, _ := o.config.Coordinator.Lease()
	if lease == 0 {
		return coord.ErrLeaseEnded
	}
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	change := coord.Change{Key: coord.KeyOpinion + o.config.Coordinator.Name(), Value: value, Lease: lease}
	_, err = o.config.Coordinator.Backend().Commit(ctx, coord.Transaction{Then: []coord.Change{change}})
	return err
}

// concede closes questions that could not be asked.
func (o *opinions) concede(questions []question) {
	for _, q := range questions {
		o.opinionMu.Lock()
		of := o.open[q.Number]
		delete(o.open, q.Number)
		o.opinionMu.Unlock()
		if of != nil {
			of.question.Answer(of.question.Result)
		}
	}
}

// gray counts the probes that fail here without an answer and pass at another engine.
func (o *opinions) gray() int {
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	maps.DeleteFunc(o.differing, func(id probe.ID, _ string) bool {
		st, _ := o.config.Engine.Status(id)
		return st.Result.Reason != reasonDiffer
	})
	return len(o.differing)
}
