package tck

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// rule is something that every plugin has to do.
type rule struct {
	name string
	real bool // a server that is well is needed
	keep func(*trial) error
}

// rules is a table.
func rules() []rule {
	return []rule{
		{"a server that is well is a success", true, wellIsSuccess},
		{"attempts of one probe find the same again and again", true, attemptsAgree},
		{"an answer that comes a byte at a time is a success", true, bytewiseIsSuccess},
		{"an answer that comes too late is a failure", true, lateIsFailure},
		{"an answer that breaks off ends the attempt", true, brokenOff},
		{"a connection that has ended is made anew", true, endedIsReplaced},
		{"a port where nobody listens is a failure", false, refusedIsFailure},
		{"a server that closes at once is a failure", false, at(closing, false)},
		{"a server that never answers is a failure, in time", false, at(silent, false)},
		{"random bytes are a failure", false, at(garbage, false)},
		{"another protocol is a failure", false, at(otherProtocol, false)},
		{"an answer without end is a failure", false, at(flood, true)},
		{"what is not granted is not dialled", false, grantsHold},
		{"settings and ports that are not known are skipped", true, greaseIsSkipped},
		{"nothing is left of what went wrong before", true, wellIsSuccess},
	}
}

func (t *trial) well(p *wasmhost.Plugin, name string) error {
	r, err := t.attempt(p, name, t.kit.config.Address, t.kit.config.Port)
	return either(err, mustSucceed(r))
}

func wellIsSuccess(t *trial) error { return t.well(t.kit.plugin, "well") }

// repeats is how often attempts are compared. The first has a new instance.
const repeats = 10

func attemptsAgree(t *trial) error {
	settings, target := Aim(t.kit.plugin.Manifest(), t.kit.config.Settings, t.kit.config.Address, t.kit.config.Port)
	h, err := t.kit.plugin.New(settings)
	if err != nil {
		return err
	}
	defer h.Close()
	var first probe.Result
	for i := range repeats {
		r, err := t.probe(h, target)
		if err := either(err, mustSucceed(r)); err != nil {
			return fmt.Errorf("attempt %d: %w", i+1, err)
		}
		if i == 0 {
			first = r
		}
		if r.Outcome != first.Outcome || r.Reason != first.Reason {
			return fmt.Errorf("attempt 1 ended with %s, attempt %d with %s", said(first), i+1, said(r))
		}
	}
	return nil
}

// between makes an attempt at the real server through a relay.
func (t *trial) between(relay relay) (probe.Result, error) {
	to := net.JoinHostPort(t.kit.config.Address, fmt.Sprint(t.kit.config.Port))
	return t.server(relayTo(to, relay))
}

// server makes an attempt at a server of the kit's own.
func (t *trial) server(b behaviour) (probe.Result, error) {
	s, err := serve(b)
	if err != nil {
		return probe.Result{}, fmt.Errorf("the kit's own server: %w", err)
	}
	defer s.stop()
	return t.attempt(t.kit.plugin, "unwell", loopback, s.port)
}

func bytewiseIsSuccess(t *trial) error {
	r, err := t.between(relay{bytewise: true})
	return either(err, mustSucceed(r))
}

func lateIsFailure(t *trial) error {
	r, err := t.between(relay{delay: 3 * t.kit.config.Timeout})
	return either(err, t.mustFail(r))
}

// brokenOff cuts the answer after a few bytes. The plugin may have seen enough.
func brokenOff(t *trial) error {
	for _, most := range []int{1, 5, 20} {
		r, err := t.between(relay{most: most})
		if err := either(err, mustEnd(r)); err != nil {
			return fmt.Errorf("after %d bytes: %w", most, err)
		}
	}
	return nil
}

// endedIsReplaced ends what the plugin may have kept of an attempt. The next attempt may
// tell of that, but the one after it may not.
func endedIsReplaced(t *trial) error {
	to := net.JoinHostPort(t.kit.config.Address, fmt.Sprint(t.kit.config.Port))
	s, err := serve(relayTo(to, relay{}))
	if err != nil {
		return fmt.Errorf("the kit's own server: %w", err)
	}
	defer s.stop()
	settings, target := Aim(t.kit.plugin.Manifest(), t.kit.config.Settings, loopback, s.port)
	h, err := t.kit.plugin.New(settings)
	if err != nil {
		return err
	}
	defer h.Close()
	r, err := t.probe(h, target)
	if err := either(err, mustSucceed(r)); err != nil {
		return err
	}
	s.hangUp()
	if r, err = t.probe(h, target); err != nil || mustSucceed(r) == nil {
		return err
	}
	if err := mustEnd(r); err != nil {
		return err
	}
	r, err = t.probe(h, target)
	return either(err, mustSucceed(r))
}

func refusedIsFailure(t *trial) error {
	s, err := serve(silent)
	if err != nil {
		return fmt.Errorf("the kit's own server: %w", err)
	}
	s.stop()
	r, err := t.attempt(t.kit.plugin, "refused", loopback, s.port)
	return either(err, mustFailAlways(r))
}

// at returns the rule that a server of the kit's own is a failure. With limited, so is
// a limit that was reached.
func at(b behaviour, limited bool) func(*trial) error {
	return func(t *trial) error {
		r, err := t.server(b)
		if limited && r.Reason == wasmhost.ReasonLimit {
			return err
		}
		return either(err, t.mustFail(r))
	}
}

// grantsHold loads the plugin once more, without any grant.
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
		return fmt.Errorf("the kit's own server: %w", err)
	}
	defer s.stop()
	r, err := t.attempt(p, "refused", loopback, s.port)
	switch {
	case err != nil:
		return err
	case r.Outcome == probe.Success || r.Outcome == probe.Warning:
		return fmt.Errorf("it found %v without a connection", r.Outcome)
	case r.Reason != wasmhost.ReasonGrant:
		return fmt.Errorf("it ended with %s", said(r))
	}
	return nil
}

// greaseIsSkipped gives the plugin a setting and ports that it has never heard of.
func greaseIsSkipped(t *trial) error {
	c := t.kit.config.Plugin
	m := t.kit.plugin.Manifest()
	m.Settings = append(append([]abi.Setting{}, m.Settings...),
		abi.Setting{Name: "grease_text", Type: abi.TypeString, Default: []byte(`"\"=\\\n\u0000 ☃"`)},
		abi.Setting{Name: "grease_list", Type: abi.TypeStrings, Default: []byte(`["", "]"]`)},
		abi.Setting{Name: "grease_map", Type: abi.TypeMap, Default: []byte(`{"": "}"}`)},
		abi.Setting{Name: "grease_number", Type: abi.TypeNumber, Default: []byte(`-1.5e300`)})
	var err error
	if c.Module, err = greased(c, m); err != nil {
		return err
	}
	c.Path, c.SHA256, c.AllowUnpinned = "", "", true
	p, err := t.kit.load(t.ctx, c)
	if err != nil {
		return err
	}
	defer unload(p)
	return t.well(p, "a=b \\n ☃/"+strings.Repeat("x", 100))
}

// greased returns the module with another manifest.
func greased(c wasmhost.Config, m abi.Manifest) ([]byte, error) {
	if c.Module != nil {
		return abi.WriteManifest(c.Module, m)
	}
	f, err := os.Open(c.Path) // which was loaded before
	if err != nil {
		return nil, err
	}
	defer f.Close()
	module, err := io.ReadAll(io.LimitReader(f, cmp.Or(c.Limits.ModuleSize, wasmhost.DefaultModuleSize)))
	if err != nil {
		return nil, err
	}
	return abi.WriteManifest(module, m)
}

// either returns the first error there is.
func either(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// said says how an attempt ended.
func said(r probe.Result) string {
	s := r.Outcome.String()
	if r.Reason != "" {
		s += " " + string(r.Reason)
	}
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

func mustSucceed(r probe.Result) error {
	if r.Outcome == probe.Success || r.Outcome == probe.Warning {
		return nil
	}
	return fmt.Errorf("it ended with %s", said(r))
}

// mustEnd refuses what is the plugin's own fault.
func mustEnd(r probe.Result) error {
	own := strings.HasPrefix(string(r.Reason), "plugin.") && r.Reason != wasmhost.ReasonFailure
	if own {
		return fmt.Errorf("it ended with %s", said(r))
	}
	return nil
}

func mustFailAlways(r probe.Result) error {
	if err := mustEnd(r); err != nil || r.Outcome == probe.Failure {
		return err
	}
	return fmt.Errorf("it ended with %s", said(r))
}

// mustFail is mustFailAlways, but for plugins that ask for a connection only.
func (t *trial) mustFail(r probe.Result) error {
	if t.kit.config.Shallow {
		return mustEnd(r)
	}
	return mustFailAlways(r)
}
