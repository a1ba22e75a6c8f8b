package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Others has which targets other engines of a cluster probe. Its functions must not block, and must be safe for
// concurrent use by multiple goroutines.
type Others struct {
	Has     func(target string) bool   // whether another engine probes the target, and Config.Engine shows its findings
	Name    string                     // of this engine in the cluster
	OwnerOf func(target string) string // the name of the engine that probes a target, which may be this one; "" if none does, or if the target is not shared
	Stale   func() func(string) bool   // returns which targets of other engines are stale now: see Target.Stale; nil for none
	Heard   func() time.Time           // when the shared store last responded to this engine while Config.Engine was up to date with it; zero if never
}

// staleness reports whether a target is stale; nil: no target is.
type staleness func(target string) bool

func (s staleness) has(target string) bool { return s != nil && s(target) }

// stale returns the current staleness of targets.
func (o *Others) stale() staleness {
	if o.Stale == nil {
		return nil
	}
	return o.Stale()
}

// setOwner sets the owner of a target in a cluster, and whether it is stale.
func (o *Others) setOwner(to *Target, stale staleness) {
	if o.OwnerOf == nil {
		return
	}
	if to.Owner = o.OwnerOf(to.Name); o.Has(to.Name) {
		to.Heard, to.Stale = utc(o.Heard()), stale.has(to.Name)
	}
}

// owner reports whether another engine probes a target, and returns its name; "" if no engine does now.
func (o *Others) owner(target string) (name string, isOther bool) {
	if o.OwnerOf == nil || !o.Has(target) {
		return "", false
	}
	return o.OwnerOf(target), true
}

// checkOwner returns an error for a request to restart, stop or start a target that another engine probes.
func (o *Others) checkOwner(target string) error {
	owner, isOther := o.owner(target)
	switch {
	case !isOther:
		return nil
	case owner == "":
		return errorf(http.StatusConflict, "no engine owns the target %q now: retry when one has taken it over", target)
	case owner == o.Name:
		return errorf(http.StatusConflict, "this engine is taking the target %q over: ask again in a moment", target)
	}
	return errorf(http.StatusMisdirectedRequest, "the engine %q owns the target %q: send the request to that engine (--address)", owner, target)
}

// explainOwner says which engine probes the target, if it is another one.
func (t Target) explainOwner(now time.Time) string {
	switch {
	case t.Heard.IsZero() || t.Instance.Reason == probe.ReasonNotConfigured:
		return ""
	case t.Stale && t.Owner != "":
		return fmt.Sprintf("The engine %s owns it, and has not confirmed this for longer than a lease lasts: it may have changed since (stale). This engine has heard from etcd%s.", t.Owner, before(t.Heard, now))
	case t.Owner == "":
		return fmt.Sprintf("No engine of the cluster probes it now: all of this is what its last owner has stored, and this engine has heard from etcd%s.", before(t.Heard, now))
	}
	return fmt.Sprintf("The engine %s probes it, and stores its verdicts, but not each result: this engine has heard from etcd%s.", t.Owner, before(t.Heard, now))
}
