package group

import (
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// observed is the state of a target as the engine reports it.
type observed struct {
	target, address string
	ports           map[string]uint16
	labels          map[string]string
	state           probe.GatewayState
	since           time.Time
	reason          probe.Reason
	failing         []probe.ID // its probes that keep it from being ready
	absent          bool       // no such target exists
	started         bool       // its instance runs, and its startup probes have passed
	ejected         bool       // its probes pass, but gateways have ejected it or it is damped
	doubtful        bool       // it is down only because of probes whose failures the engine doubts
}

// absent returns the observed state of a target that does not exist.
func absent(target string, now time.Time) *observed {
	return &observed{target: target, since: now, absent: true}
}

func observe(st *engine.TargetStatus, now time.Time) *observed {
	o := &observed{target: st.Target, address: st.Address, ports: st.Ports, labels: st.Labels, state: st.Gateway, started: st.Started, since: now}
	o.ejected = o.state == probe.GatewayDown && st.Ready
	if o.state != probe.GatewayReady {
		o.reason = st.Cause.Reason
	}
	if o.reason == "" && st.State == probe.StateDamped {
		o.reason = probe.ReasonDamped
	}
	for i := range st.Probes {
		if p := &st.Probes[i]; st.Instance.Phase == probe.Running && p.ID.Kind != probe.Liveness && p.Verdict == probe.Failing && p.Rule.Effect == probe.EffectFail && p.Instance == st.Instance.ID {
			o.failing = append(o.failing, p.ID)
			if o.state == probe.GatewayDown && p.Since.Before(o.since) { // older than this process, or found by another engine
				o.since = p.Since
			}
		}
	}
	return o
}

// isDoubted reports whether the target is down and the engine doubts every failure that makes it so.
func (o *observed) isDoubted(e Engine) bool {
	return o.state == probe.GatewayDown && len(o.failing) > 0 && !slices.ContainsFunc(o.failing, func(id probe.ID) bool { return !e.Doubts(id) })
}

// port returns the port that a rule requests, or 0.
func (o *observed) port(wanted string) uint16 {
	if wanted == "" {
		return 0
	}
	port, err := probe.Target{Name: o.target, Ports: o.ports}.Port(wanted)
	if err != nil {
		return 0
	}
	return port
}

// equal reports whether o and p result in the same member.
func (o *observed) equal(p *observed) bool {
	return o.reason == p.reason && o.address == p.address && o.state == p.state && o.doubtful == p.doubtful && o.started == p.started && o.ejected == p.ejected && maps.Equal(o.ports, p.ports) && maps.Equal(o.labels, p.labels)
}
