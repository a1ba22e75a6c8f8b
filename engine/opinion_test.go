package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// asked is the owner of one probe, whose target on another machine may fall silent, and the engine's questions about it. The
// period of the probe is a second, its timeout 500 ms, and its threshold 3.
type asked struct {
	t       *testing.T
	engine  *engine.Engine
	network *network
	id      probe.ID

	askedMu   sync.Mutex // guards all below
	questions []engine.Question
	refuses   bool         // there is nobody to ask
	says      probe.Result // the answer; the zero Result means no answer
}

// answer records and answers a question.
func (a *asked) answer(q engine.Question) (isAsked bool) {
	a.askedMu.Lock()
	defer a.askedMu.Unlock()
	a.questions = append(a.questions, q)
	if a.says != (probe.Result{}) {
		q.Answer(a.says)
	}
	return !a.refuses
}

// say sets the answer to further questions.
func (a *asked) say(r probe.Result) {
	a.askedMu.Lock()
	defer a.askedMu.Unlock()
	a.says = r
}

// refuse makes the owner refuse further questions.
func (a *asked) refuse() {
	a.askedMu.Lock()
	defer a.askedMu.Unlock()
	a.refuses = true
}

// asked returns all questions so far.
func (a *asked) asked() []engine.Question {
	a.askedMu.Lock()
	defer a.askedMu.Unlock()
	return slices.Clone(a.questions)
}

const askedAddress = "10.0.0.1"

// ask runs f with an engine and a passing probe of the given kind, about which the engine asks.
func ask(t *testing.T, kind probe.Kind, f func(a *asked)) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		a := &asked{t: t, engine: e, network: &network{broken: map[string]probe.Result{}}, id: probe.ID{Target: "web", Kind: kind}}
		owner := e.Owner("fleet")
		owner.SeekOpinions(a.answer)
		a.change(owner, "1")
		a.report("a")
		pass(5 * time.Second)
		want(t, e, a.id, probe.Passing)
		f(a)
	})
}

func (a *asked) change(owner *engine.Owner, revision string) {
	a.t.Helper()
	p := probe.Probe{
		Handler: a.network, HandlerName: "network", Revision: revision, Target: probe.Target{Address: askedAddress},
		Rule: probe.Rule{Period: time.Second, Timeout: 500 * time.Millisecond},
	}
	if _, err := owner.Change(engine.Change{Set: probe.Set{a.id: p}}); err != nil {
		a.t.Fatal(err)
	}
}

func (a *asked) report(instance string) {
	a.engine.Report(probe.Instance{Target: "web", ID: instance, Phase: probe.Running, Since: time.Now()})
}

func (a *asked) fallSilent() {
	a.network.fallSilent(askedAddress, probe.Fail(probe.ReasonTCPTimeout, "no answer"))
}

// awaitQuestion waits for the n-th question, and returns how long that took.
func (a *asked) awaitQuestion(n int) time.Duration {
	a.t.Helper()
	began := time.Now()
	for len(a.asked()) < n {
		if pass(10 * time.Millisecond); time.Since(began) > 10*time.Minute {
			a.t.Fatalf("%d questions were asked in ten minutes, want %d: %+v", len(a.asked()), n, status(a.t, a.engine, a.id))
		}
	}
	return time.Since(began)
}

var elsewhere = probe.Warn("test.gray", "passing elsewhere")

func TestOthersAreAskedBeforeAVerdictTurnsToFailingWithoutAnAnswer(t *testing.T) {
	for _, kind := range []probe.Kind{probe.Readiness, probe.Liveness} {
		ask(t, kind, func(a *asked) {
			a.fallSilent()
			if took := a.awaitQuestion(1); took < 2*time.Second || took > 4*time.Second {
				t.Errorf("%v: asked after %v, which is not at the third failure", kind, took)
			}
			if got := a.asked()[0]; got.Probe != a.id || got.Result.Reason != probe.ReasonTCPTimeout {
				t.Errorf("%v: asked %+v", kind, got)
			}
			want(t, a.engine, a.id, probe.Passing)
			a.asked()[0].Answer(a.asked()[0].Result)
			want(t, a.engine, a.id, probe.Failing)
			if got := status(t, a.engine, a.id).Result; got.Reason != probe.ReasonTCPTimeout || got.Detail != "no answer" {
				t.Errorf("%v: failing with %+v", kind, got)
			}
		})
	}
}

func TestAFailureCountsIfNobodyAnswersInTime(t *testing.T) {
	ask(t, probe.Liveness, func(a *asked) {
		a.fallSilent()
		a.awaitQuestion(1)
		pass(1480 * time.Millisecond)
		want(t, a.engine, a.id, probe.Passing)
		pass(40 * time.Millisecond)
		want(t, a.engine, a.id, probe.Failing)
		a.asked()[0].Answer(elsewhere) // too late
		want(t, a.engine, a.id, probe.Failing)
	})
}

func TestAFailureCountsAtOnceIfNobodyCanBeAsked(t *testing.T) {
	ask(t, probe.Liveness, func(a *asked) {
		a.refuse()
		a.fallSilent()
		a.awaitQuestion(1)
		want(t, a.engine, a.id, probe.Failing)
	})
}

func TestAnAnswerMayComeBeforeTheQuestionReturns(t *testing.T) {
	ask(t, probe.Liveness, func(a *asked) {
		a.say(elsewhere)
		a.fallSilent()
		a.awaitQuestion(1)
		if st := status(t, a.engine, a.id); st.Verdict != probe.Passing || st.Result.Reason != "test.gray" {
			t.Errorf("got %+v", st)
		}
	})
}

// A target that others reach stays gray, and they are asked again after as many failures as its threshold: it may go down in the
// meantime.
func TestAnOverruledFailureIsAskedAboutAgainAtTheThreshold(t *testing.T) {
	ask(t, probe.Readiness, func(a *asked) {
		a.say(elsewhere)
		a.fallSilent()
		a.awaitQuestion(1)
		for n := 2; n < 5; n++ {
			began := time.Now()
			for len(a.asked()) < n {
				pass(100 * time.Millisecond)
				st := status(t, a.engine, a.id)
				if target, _ := a.engine.Target("web"); st.Verdict != probe.Passing || st.Result.Reason != "test.gray" || !target.Ready || target.Gateway != probe.GatewayDegraded {
					t.Fatalf("%v after the question: %+v, %+v", time.Since(began), st, target)
				}
			}
			if took := time.Since(began).Round(500 * time.Millisecond); took < 2500*time.Millisecond || took > 3500*time.Millisecond {
				t.Errorf("asked again after %v, want three periods", took)
			}
		}
		a.say(probe.Fail(probe.ReasonTCPTimeout, "no answer there either"))
		before := len(a.asked())
		if a.awaitQuestion(before + 1); status(t, a.engine, a.id).Verdict != probe.Failing {
			t.Error("the target is down everywhere, and passes")
		}
	})
}

// A target that failed without another opinion, or with a wrong one, may be reachable for others. They are asked again, less and
// less often.
func TestATargetThatFailsIsAskedAboutAgain(t *testing.T) {
	ask(t, probe.Readiness, func(a *asked) {
		a.fallSilent()
		a.say(probe.Fail(probe.ReasonTCPTimeout, "no answer there either"))
		a.awaitQuestion(1)
		want(t, a.engine, a.id, probe.Failing)
		last := time.Duration(0)
		for n := 2; n < 9; n++ {
			took := a.awaitQuestion(n)
			if want := min(2*last, 3*8*time.Second); took < 2*time.Second || took < want*9/10 {
				t.Errorf("question %d came after %v, the one before after %v", n, took, last)
			}
			last = took
		}
		a.say(elsewhere)
		a.awaitQuestion(9)
		if st := status(t, a.engine, a.id); st.Verdict != probe.Passing || st.Result.Reason != "test.gray" {
			t.Errorf("others reach it: %+v", st)
		}
		a.awaitQuestion(10)
		want(t, a.engine, a.id, probe.Passing)
		a.say(probe.Fail(probe.ReasonTCPTimeout, "no answer there either"))
		if took := a.awaitQuestion(11); took > 5*time.Second {
			t.Errorf("asked after %v, want three periods", took)
		}
		want(t, a.engine, a.id, probe.Failing)
	})
}

// A startup probe also passes by the opinion of others. Otherwise its target would be out of rotation while this engine is cut
// off.
func TestAProbeWithoutAVerdictPassesByTheOpinionOfOthers(t *testing.T) {
	ask(t, probe.Startup, func(a *asked) {
		a.fallSilent()
		a.report("b")
		a.say(elsewhere)
		a.awaitQuestion(1)
		if st := status(t, a.engine, a.id); st.Verdict != probe.Passing || st.Result.Reason != "test.gray" {
			t.Errorf("got %+v", st)
		}
	})
}

func TestAnAnswerOfTheTargetEndsThatItIsGray(t *testing.T) {
	ask(t, probe.Readiness, func(a *asked) {
		a.say(elsewhere)
		a.fallSilent()
		a.awaitQuestion(1)
		a.network.answerAgain(askedAddress)
		pass(2 * time.Second)
		if st := status(t, a.engine, a.id); st.Result.Outcome != probe.Success {
			t.Errorf("got %+v", st.Result)
		}
		a.fallSilent()
		if took := a.awaitQuestion(2); took < 2*time.Second {
			t.Errorf("asked after %v, before the third failure", took)
		}
	})
}

func TestNobodyIsAskedAbout(t *testing.T) {
	for name, res := range map[string]probe.Result{
		"a refused connection": probe.Fail(probe.ReasonTCPRefused, ""),
		"a wrong status":       probe.Fail(probe.ReasonHTTPStatus, "status 500"),
		"a command":            probe.Fail(probe.ReasonExecExit, ""),
	} {
		t.Run(name, func(t *testing.T) {
			ask(t, probe.Liveness, func(a *asked) {
				a.network.breakTarget(askedAddress, res)
				pass(5 * time.Second)
				want(t, a.engine, a.id, probe.Failing)
				if len(a.asked()) > 0 {
					t.Errorf("asked %+v", a.asked())
				}
			})
		})
	}
}

func TestNobodyIsAskedAboutTargetsOfThisMachineOrOfOtherOwners(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}}
		silent := func(ctx string) probe.Probe {
			n.breakTarget(ctx, probe.Fail(probe.ReasonTCPTimeout, ""))
			return probe.Probe{Handler: n, HandlerName: "network", Target: probe.Target{Address: ctx}, Rule: probe.Rule{Period: time.Second, Timeout: 500 * time.Millisecond}}
		}
		owner := e.Owner("fleet")
		owner.SeekOpinions(func(q engine.Question) bool { t.Errorf("asked about %v", q.Probe); return true })
		local, others := probe.ID{Target: "local", Kind: probe.Liveness}, probe.ID{Target: "others", Kind: probe.Liveness}
		if _, err := owner.Change(engine.Change{Set: probe.Set{local: silent("127.0.0.1")}}); err != nil {
			t.Fatal(err)
		}
		apply(t, e, probe.Set{others: silent("10.0.0.9")})
		for _, target := range []string{"local", "others"} {
			e.Report(probe.Instance{Target: target, ID: "a", Phase: probe.Running, Since: time.Now()})
		}
		pass(5 * time.Second)
		want(t, e, local, probe.Failing)
		want(t, e, others, probe.Failing)
	})
}

func TestAnAnswerAboutWhatIsGoneChangesNothing(t *testing.T) {
	for name, replace := range map[string]func(a *asked){
		"an earlier instance": func(a *asked) { a.report("b") },
		"an earlier handler":  func(a *asked) { a.change(a.engine.Owner("fleet"), "2") },
		"a removed probe": func(a *asked) {
			if _, err := a.engine.Owner("fleet").Change(engine.Change{Remove: []probe.ID{a.id}}); err != nil {
				a.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ask(t, probe.Liveness, func(a *asked) {
				a.fallSilent()
				a.awaitQuestion(1)
				a.network.answerAgain(askedAddress)
				replace(a)
				before, _ := a.engine.Status(a.id)
				a.asked()[0].Answer(a.asked()[0].Result)
				synctest.Wait()
				if after, _ := a.engine.Status(a.id); after.Verdict != before.Verdict || fmt.Sprint(after.Attempts) != fmt.Sprint(before.Attempts) {
					t.Errorf("it was %+v, and is %+v", before, after)
				}
				pass(3 * time.Second)
			})
		})
	}
}

// An engine that is stopped while it waits does not receive the answer in time.
func TestTheTimeThatTheEngineIsStalledIsNotThatOfTheAnswer(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		n, id := &network{broken: map[string]probe.Result{}}, probe.ID{Target: "far", Kind: probe.Liveness}
		p := probe.Probe{Handler: n, HandlerName: "network", Target: probe.Target{Address: askedAddress}, Rule: probe.Rule{Period: 10 * time.Second}}
		owner := e.Owner("fleet")
		a := &asked{t: t, engine: e, id: id}
		owner.SeekOpinions(a.answer)
		if _, err := owner.Change(engine.Change{Set: probe.Set{id: p}}); err != nil {
			t.Fatal(err)
		}
		set, s := stallable(readiness, probe.Probe{Handler: n, HandlerName: "network", Rule: probe.Rule{Period: time.Minute}})
		apply(t, e, set)
		for _, target := range []string{"far", "web"} {
			e.Report(probe.Instance{Target: target, ID: "a", Phase: probe.Running, Since: time.Now()})
		}
		n.fallSilent(askedAddress, probe.Fail(probe.ReasonTCPTimeout, "no answer"))
		a.awaitQuestion(1)
		s.stall(t, e, 5*time.Second)
		want(t, e, id, probe.Passing)
		if !a.asked()[0].IsOpen() {
			t.Error("the question is closed")
		}
		a.asked()[0].Answer(elsewhere)
		want(t, e, id, probe.Passing)
		if a.asked()[0].IsOpen() {
			t.Error("the question that was answered is open")
		}
	})
}
