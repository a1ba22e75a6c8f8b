package wasmhost_test

import (
	"context"
	"net"
	"testing"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/wasmhost"
)

// A failed connect has the same outcome and reason whether a plugin or the built-in
// tcp handler made it.
func TestPluginsAndBuiltInHandlersGiveTheSameReason(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := targetOf(closed.Addr())
	closed.Close()
	at := func(address string) probe.Target {
		return probe.Target{Name: "shop/db", Address: address, Ports: refused.Ports}
	}
	p := load(t, wasmhost.Config{Module: dialer("tcp", ":db", "")})
	plugin := handler(t, p, nil)
	builtIn, err := tcpprobe.New(tcpprobe.Config{Port: "db"})
	if err != nil {
		t.Fatal(err)
	}
	noDescriptors := func(t *testing.T) { faulttest.NoDescriptors(t) }
	for name, test := range map[string]struct {
		target  probe.Target
		prepare func(*testing.T)
		outcome probe.Outcome
	}{
		"refused":                   {at("127.0.0.1"), nil, probe.Failure},
		"refused at each address":   {at("localhost"), nil, probe.Failure},
		"no zone (EINVAL)":          {at("fe80::1"), nil, probe.Unknown},
		"no descriptors (EMFILE)":   {at("127.0.0.1"), noDescriptors, probe.Unknown},
		"no descriptors to resolve": {at("sonde.invalid"), noDescriptors, probe.Unknown},
		"no descriptors for a name": {at("localhost"), noDescriptors, probe.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if test.prepare != nil {
				test.prepare(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), plenty)
			defer cancel()
			got, want := plugin.Probe(ctx, test.target), builtIn.Probe(ctx, test.target)
			if want.Outcome != test.outcome {
				t.Errorf("the built-in handler found %+v, want the outcome %v", want, test.outcome)
			}
			if got.Outcome != want.Outcome || got.Reason != want.Reason {
				t.Errorf("a plugin found          %+v\nthe built-in handler    %+v", got, want)
			}
		})
	}
}
