// Package beatprobe is the beat handler: a target reports by itself that it works, by beats that it
// sends over HTTP or UDP, and an attempt checks the last one.
//
// A Registry receives the beats of all targets. Beats that the engine may have missed itself never
// count against a target: see judge.go.
//
//	beat.go         Config, New and handler
//	rhythm.go       when beats are due
//	judge.go        the result of an attempt, by the last beat
//	report.go       Report: the content of a beat
//	registry.go     Registry: the last beat of each target, and who may send it
//	interruption.go times in which the engine may have missed beats
//	saved.go        the values that are saved for the next engine
//	sent.go         the latest time in a datagram of each target and token
//	datagram.go     the format of a beat in a datagram
//	receiver.go     the socket for datagrams
//	allowance.go    the rate limit for rejected datagrams
//	drops_linux.go  the number of datagrams that the system has dropped
package beatprobe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Config is a beat block.
type Config struct {
	Every    time.Duration `hcl:"every,optional,nonzero" doc:"time between two beats. Either every or cron is required" default:"as cron says" min:"1s" max:"8784h"`
	Cron     string        `hcl:"cron,optional" doc:"when beats are due, as in crontab(5): minute, hour, day of the month, month, day of the week; \"0 2 * * 1-5\" is on work days at 2 o'clock. A beat may come from then until grace later, and none need come at other times" default:"every"`
	Timezone string        `hcl:"timezone,optional" doc:"time zone of cron, such as \"Europe/Vienna\"" default:"that of this machine"`
	Grace    time.Duration `hcl:"grace,optional,nonzero" doc:"how much later than every or cron says a beat may come. If the engine was interrupted, beats that were due up to grace earlier by every may have been missed" default:"a quarter of every; with cron of the shortest time between two beats, 1h at most" min:"1ms" max:"8784h"`
	Token    string        `hcl:"token,sensitive" doc:"what the target shows with its beats, or signs them with: 16 or more characters of printable ASCII without spaces, such as those of openssl rand -hex 16. All beat blocks of a target have the same"`
}

// checkToken returns an error if a token is invalid.
func checkToken(token string) error {
	problem := listener.Token(token).Problem()
	if token == "" {
		problem = "must not be empty"
	}
	if problem == "" {
		return nil
	}
	return &probe.FieldError{Field: "token", Problem: problem, Hint: listener.TokenHint, Plain: true}
}

// handler checks the last beat of a target. It is safe for concurrent use by multiple goroutines.
type handler struct {
	config   Config
	rhythm   rhythm
	registry *Registry // nil outside a running engine
}

// New returns a handler for the beats that r receives. If r is nil, the outcome of each attempt is unknown. Errors are
// *probe.FieldErrors with the HCL names of the fields.
func (r *Registry) New(c Config) (probe.Handler, error) {
	of, noRhythm := c.rhythm()
	if err := errors.Join(limits.Check(c, "").Err(), noRhythm, checkToken(c.Token)); err != nil {
		return nil, err
	}
	return &handler{config: c, rhythm: of, registry: r}, nil
}

// CheckSibling returns an error if another beat probe of the same target has another token.
func (h *handler) CheckSibling(other probe.Handler) error {
	if o, ok := other.(*handler); ok && o.config.Token != h.config.Token {
		return errors.New("token differs from that of another beat block of the target: a target has one token, so define another target for another sender")
	}
	return nil
}

// CheckRule returns an error for each argument of a probe that has no effect with a beat block.
func (h *handler) CheckRule(r probe.Rule) error {
	var wrong probe.FieldErrors
	if r.WarnAfter != 0 {
		wrong.Add("warn_after", "has no effect on a beat, since an attempt only looks at the last one")
	}
	if r.FailAfter != 0 {
		wrong.Add("fail_after", "has no effect on a beat, since an attempt only looks at the last one")
	}
	if r.WarnOnRise == probe.RiseOfLatency {
		wrong.Add("warn_on_rise", "has no effect on a beat, since an attempt only looks at the last one")
	}
	if r.Policy == probe.PolicyEvidence {
		wrong.Add("policy", "must be runs for a beat: attempts that look at the same beat are not independent")
	}
	return wrong.Err()
}

// Probe checks the last beat. It does not wait.
func (h *handler) Probe(_ context.Context, t probe.Target) probe.Result { return h.look(t) }

// Step implements nonblock.Stepper: an attempt needs no goroutine.
func (h *handler) Step(a *nonblock.Attempt) nonblock.Progress {
	a.Result = h.look(a.Target)
	return nonblock.StepDone
}

func (h *handler) look(t probe.Target) probe.Result {
	if h.registry == nil {
		return unheard("only a running engine receives beats: run sonde explain")
	}
	s, ok := h.registry.sighting(t)
	if !ok {
		return unheard("the engine does not receive the beats of the target yet")
	}
	return s.judge(h.rhythm)
}

// unheard returns the result of an attempt while no beat is due yet.
func unheard(format string, a ...any) probe.Result {
	return probe.Result{Reason: probe.ReasonNoBeatDue, Detail: fmt.Sprintf(format, a...), NoRetry: true}
}
