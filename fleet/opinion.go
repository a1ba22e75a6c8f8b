package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// maxWitnesses is the number of engines that are asked about a failure. The second one is a reserve in case that the
	// first one has just died.
	maxWitnesses = 2

	// maxQuestions bounds the open questions of an engine. maxTestimonies bounds the attempts that it makes for others at a
	// time, and its answers that wait to be sent. Both equal the number of attempts that an engine makes concurrently by
	// default. Beyond them, questions are not asked, not attempted, or not answered.
	maxQuestions   = engine.DefaultConcurrency
	maxTestimonies = engine.DefaultConcurrency

	// maxPerMessage bounds the questions and the answers of one message, so that all target names fit into a request.
	// Further ones are ignored.
	maxPerMessage = 250

	// sendDelay is how long a message waits for more questions and answers. After sendTimeout, answers would arrive too
	// late.
	sendDelay   = 10 * time.Millisecond
	sendTimeout = time.Second
)

// message has questions and answers of an engine for others. The engine's entry holds its latest message; a watch
// delivers each one.
type message struct {
	Questions []question `json:"questions,omitempty"`
	Answers   []answer   `json:"answers,omitempty"`
}

// question asks other engines to attempt a probe once.
type question struct {
	Number uint64     `json:"number"` // unique among the questions of this engine
	Of     []string   `json:"of"`     // the engines that are asked
	Target string     `json:"target"`
	Kind   probe.Kind `json:"kind"`
	Name   string     `json:"name,omitempty"`

	Endpoint string `json:"endpoint"` // of the probe; an outcome at another endpoint would be meaningless
}

// answer is the outcome of an attempt for another engine: Unknown if the attempt could not be made.
type answer struct {
	To      string        `json:"to"`
	Number  uint64        `json:"number"`
	Outcome probe.Outcome `json:"outcome"`
}

// opinions asks other engines to attempt a probe that is about to fail here without a response, and attempts probes for
// them. So an engine that is cut off from some of its targets does not publish them as failing (SWIM's indirect probe;
// Das, Gupta and Motivala, DSN 2002).
type opinions struct {
	config  Config
	votes   *votes // has the engines that can be asked
	desired *desired
	sparse  *sparselog.Logger
	wake    wake.Signal // set when unsent has questions or answers

	opinionMu sync.Mutex // guards all below
	number    uint64     // of the latest question
	open      map[uint64]*open
	passingAt map[probe.ID]string // by probe that was gray: the engine at which it last passed
	unsent    message
}

// open is a question without an answer so far.
type open struct {
	question engine.Question
	waiting  []string // engines that may still answer
	before   string   // the engine at which the probe last passed, if it is gray
}

func newOpinions(c Config, v *votes, d *desired) *opinions {
	return &opinions{
		config: c, votes: v, desired: d, sparse: sparselog.New(c.Logger), wake: wake.New(),
		number: rand.Uint64(), // random, so that answers to an earlier process of this name do not match
		open:   map[uint64]*open{}, passingAt: map[probe.ID]string{},
	}
}

// ask asks other engines. It returns false if there are none, or if this engine does not decide the probe alone.
func (o *opinions) ask(q engine.Question) (isAsked bool) {
	before := o.grayAt(q.Probe)
	witnesses := o.witnesses(before)
	if len(witnesses) == 0 || !o.config.Coordinator.Allowed() || !o.desired.decidesAlone(q.Probe) {
		return false
	}
	endpoint := endpointOf(q.Probe.Target, o.desired.probe(q.Probe))
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	if len(o.open) >= maxQuestions {
		return false
	}
	o.number++
	number := o.number
	o.open[number] = &open{q, witnesses, before}
	o.unsent.Questions = append(o.unsent.Questions, question{number, witnesses, q.Probe.Target, q.Probe.Kind, q.Probe.Name, endpoint})
	o.wake.Set()
	time.AfterFunc(q.Within, func() { o.expire(number, q) })
	return true
}

// grayAt returns the engine at which a gray probe passes, or "" for any other probe.
func (o *opinions) grayAt(id probe.ID) string {
	if st, _ := o.config.Engine.Status(id); st.Result.Reason != probe.ReasonGray {
		return ""
	}
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	return o.passingAt[id]
}

// witnesses returns the engines to ask, in random order, but before comes first and engines that doubt themselves last.
func (o *opinions) witnesses(before string) (names []string) {
	engines := o.votes.engines()
	delete(engines, o.config.Coordinator.Name())
	names = slices.Collect(maps.Keys(engines))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	rank := func(name string) int {
		switch {
		case engines[name].Doubtful:
			return 2
		case name == before:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names[:min(len(names), maxWitnesses)]
}

// expire discards a question once the engine no longer waits for an answer.
func (o *opinions) expire(number uint64, q engine.Question) {
	if q.IsOpen() { // the engine was stalled
		time.AfterFunc(q.Within, func() { o.expire(number, q) })
		return
	}
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	delete(o.open, number)
}

// run sends messages and receives those of others until ctx is done.
func (o *opinions) run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { o.send(ctx) })
	var testimonies errgroup.Group
	testimonies.SetLimit(maxTestimonies)
	defer func() { _ = testimonies.Wait() }() // they return no errors
	coord.NewMirror(o.config.Coordinator, coord.Kind[message]{
		Keys: coord.OpinionKeys, Problem: "questions of other engines cannot be followed, trying again",
		Changed: func(all []coord.ItemChange[message], isAll bool) {
			if isAll {
				return // the messages are old
			}
			members := o.votes.engines()
			for _, c := range all {
				m := c.Now.Value
				if _, isMember := members[c.Name]; isMember && c.Name != o.config.Coordinator.Name() {
					o.receive(c.Name, m.Answers[:min(len(m.Answers), maxPerMessage)])
					o.testify(ctx, &testimonies, c.Name, m.Questions[:min(len(m.Questions), maxPerMessage)])
				}
			}
		},
	}).Run(ctx)
}

// receive handles the answers of an engine to questions of this one.
func (o *opinions) receive(from string, answers []answer) {
	for _, a := range answers {
		if a.To != o.config.Coordinator.Name() {
			continue
		}
		if q, opinion := o.conclude(from, a); opinion != nil {
			q.Answer(*opinion)
		}
	}
}

// conclude records an answer. If it closes the question, conclude returns the question and the opinion on it; otherwise
// the opinion is nil. A question is closed by an answer that the probe passes, or by the last answer.
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
			from = of.before // it is asked as well, and so the text of the result stays the same
		}
		o.passingAt[of.question.Probe] = from
		result = probe.Warn(probe.ReasonGray, "failing at %s: %s: %s; passing at %s", o.config.Coordinator.Name(), result.Reason, result.Detail, from)
	case len(of.waiting) > 0:
		return q, nil
	}
	delete(o.open, a.Number)
	return of.question, &result
}

// testify makes attempts for another engine, at most maxTestimonies at a time.
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

// attempt makes an attempt for another engine, according to this engine's configuration.
func (o *opinions) attempt(ctx context.Context, q question) probe.Outcome {
	id := probe.ID{Target: q.Target, Kind: q.Kind, Name: q.Name}
	p := o.desired.probe(id)
	if !o.desired.decidesAlone(id) || !isPrepared(p.Handler) || endpointOf(id.Target, p) != q.Endpoint {
		return probe.Unknown
	}
	p.Target.Name = id.Target
	return engine.Once(ctx, p).Outcome
}

// endpointOf returns the address to which a probe of a target connects.
func endpointOf(target string, p probe.Probe) string {
	p.Target.Name = target
	if h, knows := p.Handler.(probe.EndpointHandler); knows {
		return h.Endpoint(p.Target)
	}
	return p.Target.Address
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

// answer queues an answer, unless too many are queued.
func (o *opinions) answer(to string, q question, found probe.Outcome) {
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	if len(o.unsent.Answers) >= maxTestimonies {
		return
	}
	o.unsent.Answers = append(o.unsent.Answers, answer{to, q.Number, found})
	o.wake.Set()
}

// send sends questions and answers until ctx is done.
func (o *opinions) send(ctx context.Context) {
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(sendDelay):
		case <-ctx.Done():
			return
		}
		for m := o.take(); len(m.Questions)+len(m.Answers) > 0; m = o.take() {
			if err := o.put(ctx, m); err != nil {
				o.sparse.Warn("cannot ask other engines about targets that do not respond, so their failures count", "engine", o.config.Coordinator.Name(), "error", err)
				o.concede(m.Questions)
			}
		}
	}
}

// take removes the next message from unsent and returns it.
func (o *opinions) take() (m message) {
	o.opinionMu.Lock()
	defer o.opinionMu.Unlock()
	questions, answers := min(len(o.unsent.Questions), maxPerMessage), min(len(o.unsent.Answers), maxPerMessage)
	m = message{o.unsent.Questions[:questions], o.unsent.Answers[:answers]}
	o.unsent = message{o.unsent.Questions[questions:], o.unsent.Answers[answers:]}
	return m
}

// put writes a message to the store, under the lease of this engine.
func (o *opinions) put(ctx context.Context, m message) error {
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	lease, _ := o.config.Coordinator.Lease()
	if lease == 0 {
		return coord.ErrLeaseEnded
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	change := coord.Change{Key: coord.OpinionKeys.Key(o.config.Coordinator.Name()), Value: value, Lease: lease}
	_, err = o.config.Coordinator.Backend().Commit(ctx, coord.Transaction{Then: []coord.Change{change}})
	return err
}

// concede closes questions that could not be sent; their failures count.
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

// gray counts the probes that fail here without a response and pass at another engine.
func (o *opinions) gray() (n int) {
	o.opinionMu.Lock()
	ids := slices.Collect(maps.Keys(o.passingAt))
	o.opinionMu.Unlock()
	for _, id := range ids {
		if st, exists := o.config.Engine.Status(id); st.Result.Reason == probe.ReasonGray {
			n++
		} else if !exists {
			o.opinionMu.Lock()
			delete(o.passingAt, id)
			o.opinionMu.Unlock()
		}
	}
	return n
}
