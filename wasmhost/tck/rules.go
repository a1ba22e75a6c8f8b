package tck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// rule is a requirement that every plugin must meet.
type rule struct {
	name        string
	needsServer bool // a healthy server
	check       func(*trial) error
}

// rules returns all rules, in the order in which they are checked.
func rules() []rule {
	return []rule{
		{"a healthy server is a success", true, healthySucceeds},
		{"repeated attempts of a probe agree, and hold no more connections", true, attemptsAgree},
		{"a response that is sent byte by byte is a success", true, bytewiseSucceeds},
		{"a late response is a failure", true, lateFails},
		{"a truncated response ends the attempt", true, truncatedEnds},
		{"a closed connection is replaced", true, closedIsReplaced},
		{"a refused connection is a failure", false, refusedFails},
		{"a connection that is closed at once is a failure", false, mustFailAt(closeAtOnce, false)},
		{"a server that never responds is a failure, within the timeout", false, silenceFailsAt(silent)},
		{"random bytes are a failure", false, silenceFailsAt(garbage)},
		{"another protocol is a failure", false, mustFailAt(otherProtocol, false)},
		{"an endless response is a failure", false, mustFailAt(flood, true)},
		{"a destination that is not granted is not reached", false, grantsHold},
		{"unknown settings and ports are ignored", true, unknownsAreIgnored},
		{"a server that recovers is a success", true, recoveryIsSeen},
		{"an attempt without prepared data is a success", true, unpreparedSucceeds},
	}
}

func (t *trial) attemptHealthy(p *wasmhost.Plugin, name string) error {
	r, err := t.attempt(p, name, t.kit.config.Address, t.kit.config.Port)
	return cmp.Or(err, mustSucceed(r))
}

func healthySucceeds(t *trial) error { return t.attemptHealthy(t.kit.plugin, "healthy") }

// repeats is the number of attempts that are compared.
const repeats = 10

func attemptsAgree(t *trial) error {
	settings, target := Aim(t.kit.plugin.Manifest(), t.kit.config.Settings, t.kit.config.Address, t.kit.config.Port)
	h, err := t.kit.plugin.New(settings)
	if err != nil {
		return err
	}
	defer h.Close()
	var first probe.Result
	var held int // after two attempts
	for i := range repeats {
		r, err := t.probe(h, target)
		if err := cmp.Or(err, mustSucceed(r)); err != nil {
			return fmt.Errorf("attempt %d: %w", i+1, err)
		}
		if i == 0 {
			first = r
		}
		if r.Outcome != first.Outcome || r.Reason != first.Reason {
			return fmt.Errorf("attempt 1 ended with %s, attempt %d with %s", describe(first), i+1, describe(r))
		}
		if i == 1 {
			held = t.kit.plugin.Stats().Held
		}
	}
	if n := t.kit.plugin.Stats().Held; n > held {
		return fmt.Errorf("%d connections are held after 2 attempts, but %d after %d: hold a new connection under the key of the connection that it replaces", held, n, repeats)
	}
	return nil
}

func (t *trial) healthyAddress() string {
	return net.JoinHostPort(t.kit.config.Address, fmt.Sprint(t.kit.config.Port))
}

// attemptAt makes an attempt at one of the kit's own servers.
func (t *trial) attemptAt(b behaviour) (probe.Result, error) {
	s, err := serve(b)
	if err != nil {
		return probe.Result{}, err
	}
	defer s.stop()
	return t.attempt(t.kit.plugin, "faulty", Loopback, s.port)
}

func bytewiseSucceeds(t *trial) error {
	r, err := t.attemptAt(relayTo(t.healthyAddress(), relay{bytewise: true}))
	return cmp.Or(err, mustSucceed(r))
}

// lateFails delays the response for so long that an attempt that waits for it would end too late.
func lateFails(t *trial) error {
	t.timeout = t.kit.config.Silence
	r, err := t.attemptAt(relayTo(t.healthyAddress(), relay{delay: t.timeout + 3*slack}))
	return cmp.Or(err, t.mustFail(r))
}

// truncatedEnds truncates the response after a few bytes. An attempt may succeed, since the plugin
// may need no more.
func truncatedEnds(t *trial) error {
	for _, max := range []int{1, 5, 20} {
		r, err := t.attemptAt(relayTo(t.healthyAddress(), relay{max: max}))
		if err := cmp.Or(err, mustEnd(r)); err != nil {
			return fmt.Errorf("after %d bytes: %w", max, err)
		}
	}
	return nil
}

// handlerAt returns a handler and a target for one of the kit's own servers.
func (t *trial) handlerAt(s *server) (*wasmhost.Handler, probe.Target, error) {
	settings, target := Aim(t.kit.plugin.Manifest(), t.kit.config.Settings, Loopback, s.port)
	h, err := t.kit.plugin.New(settings)
	return h, target, err
}

// closedIsReplaced closes the connection that the plugin may hold after an attempt. The next
// attempt may therefore fail, but the one after that must succeed.
func closedIsReplaced(t *trial) error {
	s, err := serve(relayTo(t.healthyAddress(), relay{}))
	if err != nil {
		return err
	}
	defer s.stop()
	h, target, err := t.handlerAt(s)
	if err != nil {
		return err
	}
	defer h.Close()
	r, err := t.probe(h, target)
	if err := cmp.Or(err, mustSucceed(r)); err != nil {
		return err
	}
	s.closeConns()
	if r, err = t.probe(h, target); err != nil || mustSucceed(r) == nil {
		return err
	}
	if err := mustEnd(r); err != nil {
		return err
	}
	r, err = t.probe(h, target)
	return cmp.Or(err, mustSucceed(r))
}

// recoveryIsSeen attempts one probe against a server that closes its connections, and then against
// a healthy server at the same port: the probe's state must not make it fail because of the earlier
// failures.
func recoveryIsSeen(t *trial) error {
	var healthy atomic.Bool
	relayed := relayTo(t.healthyAddress(), relay{})
	s, err := serve(func(ctx context.Context, conn net.Conn) {
		if healthy.Load() {
			relayed(ctx, conn)
		}
	})
	if err != nil {
		return err
	}
	defer s.stop()
	h, target, err := t.handlerAt(s)
	if err != nil {
		return err
	}
	defer h.Close()
	for range 3 {
		r, err := t.probe(h, target)
		if err := cmp.Or(err, mustEnd(r)); err != nil {
			return err
		}
	}
	healthy.Store(true)
	s.closeConns()
	r, err := t.probe(h, target)
	if err == nil && mustSucceed(r) != nil { // it may have used an old connection
		r, err = t.probe(h, target)
	}
	return cmp.Or(err, mustSucceed(r))
}

// unpreparedSucceeds makes an attempt as on a host that lacks the memory to keep the plugin's
// prepared data.
func unpreparedSucceeds(t *trial) error {
	settings, target := Aim(t.kit.plugin.Manifest(), t.kit.config.Settings, t.kit.config.Address, t.kit.config.Port)
	h, err := t.kit.plugin.New(settings)
	if err != nil {
		return err
	}
	defer h.Close()
	unprepared := h.WithoutPrepared()
	defer unprepared.Close()
	r, err := t.probe(unprepared, target)
	return cmp.Or(err, mustSucceed(r))
}

func refusedFails(t *trial) error {
	s, err := serve(silent)
	if err != nil {
		return err
	}
	s.stop()
	r, err := t.attempt(t.kit.plugin, "refused", Loopback, s.port)
	return cmp.Or(err, mustFailAlways(r))
}

// mustFailAt returns a check that an attempt at a server with the given behaviour fails. With
// limitOK, the plugin may reach a limit instead.
func mustFailAt(b behaviour, limitOK bool) func(*trial) error {
	return func(t *trial) error {
		r, err := t.attemptAt(b)
		if limitOK && r.Reason == wasmhost.ReasonLimit {
			return err
		}
		return cmp.Or(err, t.mustFail(r))
	}
}

// silenceFailsAt is like mustFailAt, with the timeout Silence: the server keeps the connection open, so that the
// plugin may wait for more data.
func silenceFailsAt(b behaviour) func(*trial) error {
	return func(t *trial) error {
		t.timeout = t.kit.config.Silence
		return mustFailAt(b, false)(t)
	}
}

// grantsHold loads the plugin again without any grant, and checks that it is denied a connection.
func grantsHold(t *trial) error {
	c := t.kit.config.Plugin
	c.Grant = wasmhost.Grant{Dial: []string{}}
	p, err := t.kit.load(t.ctx, c)
	if err != nil {
		return err
	}
	defer unload(p)
	s, err := serve(silent)
	if err != nil {
		return err
	}
	defer s.stop()
	r, err := t.attempt(p, "refused", Loopback, s.port)
	switch {
	case err != nil:
		return err
	case r.Outcome == probe.Success || r.Outcome == probe.Warning:
		return fmt.Errorf("attempt ended with %v although no connection is possible", r.Outcome)
	case r.Reason != wasmhost.ReasonGrant:
		return endedWith(r)
	}
	return nil
}

// unknownsAreIgnored runs the plugin with settings that its author did not declare, and with a
// target name full of special characters.
func unknownsAreIgnored(t *trial) error {
	c := t.kit.config.Plugin
	m := t.kit.plugin.Manifest()
	m.Settings = append(append([]abi.Setting{}, m.Settings...),
		abi.Setting{Name: "grease_text", Type: abi.TypeString, Default: []byte(`"\"=\\\n\u0000 ☃"`)},
		abi.Setting{Name: "grease_list", Type: abi.TypeStrings, Default: []byte(`["", "]"]`)},
		abi.Setting{Name: "grease_map", Type: abi.TypeMap, Default: []byte(`{"": "}"}`)},
		abi.Setting{Name: "grease_number", Type: abi.TypeNumber, Default: []byte(`-1.5e300`)})
	var err error
	if c.Module, err = abi.WriteManifest(c.Module, m); err != nil {
		return err
	}
	p, err := t.kit.load(t.ctx, c)
	if err != nil {
		return err
	}
	defer unload(p)
	return t.attemptHealthy(p, "a=b \\n ☃/"+strings.Repeat("x", 100))
}

// describe returns a result as one line of text.
func describe(r probe.Result) string {
	s := r.Outcome.String()
	if r.Reason != "" {
		s += " " + string(r.Reason)
	}
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

func endedWith(r probe.Result) error { return errors.New("attempt ended with " + describe(r)) }

func mustSucceed(r probe.Result) error {
	if r.Outcome == probe.Success || r.Outcome == probe.Warning {
		return nil
	}
	return endedWith(r)
}

// mustEnd returns an error if the result is the plugin's own fault.
func mustEnd(r probe.Result) error {
	if strings.HasPrefix(string(r.Reason), "plugin.") && r.Reason != wasmhost.ReasonFailure {
		return endedWith(r)
	}
	return nil
}

func mustFailAlways(r probe.Result) error {
	if err := mustEnd(r); err != nil || r.Outcome == probe.Failure {
		return err
	}
	return endedWith(r)
}

// mustFail is like mustFailAlways, but accepts success from plugins that only connect.
func (t *trial) mustFail(r probe.Result) error {
	if t.kit.config.Shallow {
		return mustEnd(r)
	}
	return mustFailAlways(r)
}
