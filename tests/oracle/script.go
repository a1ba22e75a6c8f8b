package oracle

import (
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Script describes the events of one pod.
type Script struct {
	Name       string // unique in a run: "seed-17"
	Policy     string // the pod's restart policy: Always, OnFailure or Never
	Deleting   bool   // its deletion was requested before it was added (K38)
	Containers []Container
	Steps      []Step
}

// Container is one target.
type Container struct {
	Name    string
	Sidecar bool // an init container that is always restarted
	Checks  []Check
}

// Check is one probe of a container, with the numbers of the Kubernetes API.
type Check struct {
	Kind    probe.Kind
	Via     Via
	Delay   int // seconds
	Period  int // seconds, 1 or more
	Timeout int // seconds, 1 or more
	Success int
	Failure int
}

// Via is the handler of a probe.
type Via string

// The handlers. The kernel answers tcp probes: one letter stands for as many attempts as needed to decide.
const (
	ViaExec Via = "exec"
	ViaHTTP Via = "http"
	ViaTCP  Via = "tcp"
)

// Step is one event.
type Step struct {
	Do        Verb
	Container string    // for verbs that concern one container
	Exit      int       // Exit: the exit code
	Answers   []Answers // Answer: one for each probe that gets answers
}

// Answers are the answers to one probe, a letter for each attempt.
type Answers struct {
	Container string
	Kind      probe.Kind
	Letters   string
}

// Verb is the kind of a step.
type Verb string

// Verbs.
const (
	Add       Verb = "add"       // the pod is added, without containers
	Sync      Verb = "sync"      // the pod is added again, as at each of the kubelet's syncs (K4)
	Wait      Verb = "wait"      // a container has a new instance, which does not run yet
	Start     Verb = "start"     // the waiting instance, or else a new one, runs
	Stall     Verb = "stall"     // the running instance waits
	Resume    Verb = "resume"    // the instance that waited or ended runs again
	Exit      Verb = "exit"      // the instance ends with an exit code
	Lose      Verb = "lose"      // the container's state is unknown
	Answer    Verb = "answer"    // answers are handed out
	Terminate Verb = "terminate" // the pod's deletion is requested (K7)
	Succeed   Verb = "succeed"   // the pod's phase is Succeeded (K32)
	Remove    Verb = "remove"    // the pod is removed
	Cleanup   Verb = "cleanup"   // the pod is not among the wanted ones
)

// Letters of answers.
const (
	Success  = 'S' // exit code 0, status 200, an open port
	Failure  = 'F' // exit code 1, status 503, a closed port
	Warning  = 'W' // a redirect to another host; http only
	Late     = 'T' // no answer before the timeout
	Broken   = 'E' // an attempt that could not be made: no exit code, a body that breaks off
	Stalled  = 'B' // a body that does not end before the timeout; http only
	Closed   = 'C' // the connection is closed without an answer; http only
	Slow     = 'Z' // a success that takes longer than the period, but not than the timeout
	Nothing  = 0   // the script has no answer
	maxTries = 3   // tries of an attempt that could not be made (K69)
)

// rule returns the rule of a check.
func (c Check) rule() probe.Rule {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return probe.Rule{
		Kind: c.Kind, InitialDelay: second(c.Delay), Period: second(c.Period), Timeout: second(c.Timeout),
		SuccessThreshold: int32(c.Success), FailureThreshold: int32(c.Failure),
	}
}

// container returns the container with a name, or nil.
func (s *Script) container(name string) *Container {
	for i := range s.Containers {
		if s.Containers[i].Name == name {
			return &s.Containers[i]
		}
	}
	return nil
}

func (c *Container) check(k probe.Kind) *Check {
	for i := range c.Checks {
		if c.Checks[i].Kind == k {
			return &c.Checks[i]
		}
	}
	return nil
}

// follows reports whether a container that exited with a code is restarted (K37).
func (s *Script) follows(c *Container, code int) bool {
	switch {
	case c.Sidecar || s.Policy == "Always":
		return true
	case s.Policy == "OnFailure":
		return code != 0
	}
	return false
}

// instanceAt returns a container's instance after a step.
func (s *Script) instanceAt(c *Container, n int) (l instance) {
	for _, step := range s.Steps[:n+1] {
		if step.Container == c.Name {
			l = l.after(step, s.follows(c, step.Exit))
		}
	}
	return l
}

// showsEnd reports whether the kubelet shows that a container has ended for good: its readiness worker stops. Workers of other
// kinds may be held, and stay; those of a pod that is being deleted stop anyway.
func (s *Script) showsEnd(c *Container, l instance) bool {
	return c.check(probe.Readiness) != nil && !s.isLeft() && !l.lost
}

// isLeft reports whether the pod is ever deleted.
func (s *Script) isLeft() bool {
	return s.Deleting || slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Do == Terminate })
}

// exists reports whether the pod exists, without a terminal phase, after step n.
func (s *Script) exists(n int) (there bool) {
	for _, step := range s.Steps[:n+1] {
		switch step.Do {
		case Add:
			there = true
		case Remove, Cleanup, Succeed:
			there = false
		}
	}
	return there
}
