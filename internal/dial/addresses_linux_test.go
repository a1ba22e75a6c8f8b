package dial

import (
	"context"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

func TestAttemptsAtTheAddressesOfAHostsFile(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, hostsFile, "127.0.0.1 shop\n127.0.0.2 shop\n::1 shop\n")
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\n")
	port := listen(t, "[::1]")
	attempt := func(c Config, host string) probe.Result {
		t.Helper()
		d := dialer(t, c)
		return d.Attempt(t.Context(), host, port, func(ctx context.Context) probe.Result {
			var took probe.Timings
			conn, err := d.Open(ctx, host, port, &took)
			if err != nil {
				return Result(err)
			}
			defer conn.Close()
			r := probe.Succeed("")
			r.SetFacts(Facts(conn, host))
			return r
		})
	}
	for _, test := range []struct {
		name    string
		config  Config
		outcome probe.Outcome
		reason  probe.Reason
		peer    string
	}{
		{"one of them accepts", Config{}, probe.Success, "", "::1"},
		{"one of them refuses", Config{Addresses: AllAddresses}, probe.Failure, probe.ReasonTCPRefused, ""},
		{"some of them accept", Config{Addresses: SomeAddresses}, probe.Warning, probe.ReasonTCPRefused, ""},
		{"all of some accept", Config{Addresses: SomeAddresses, IPFamily: "6"}, probe.Success, "", "::1"},
		{"none of some accepts", Config{Addresses: SomeAddresses, IPFamily: "4"}, probe.Failure, probe.ReasonTCPRefused, ""},
		{"all of a family accept", Config{Addresses: AllAddresses, IPFamily: "6"}, probe.Success, "", "::1"},
		{"all of a family accept, half open", Config{Addresses: AllAddresses, IPFamily: "6", HalfOpen: true}, probe.Success, "", "::1"},
		{"all of a family refuse", Config{IPFamily: "4"}, probe.Failure, probe.ReasonTCPRefused, ""},
	} {
		r := attempt(test.config, "shop")
		peer := ""
		if r.Outcome == probe.Success {
			peer = r.Facts().Peer.String()
		}
		if r.Outcome != test.outcome || r.Reason != test.reason || peer != test.peer {
			t.Errorf("%s: got %v %q %q of %s", test.name, r.Outcome, r.Reason, r.Detail, peer)
		}
	}
	faulttest.NoDescriptors(t)
	for _, c := range []Config{{}, {Addresses: AllAddresses}, {Addresses: AllAddresses, IPFamily: "6"}} {
		for _, host := range []string{"shop", "known.example."} { // one of them needs no name server
			if r := attempt(c, host); r.Outcome != probe.Unknown || r.Reason != probe.ReasonResources {
				t.Errorf("without descriptors, %s, %+v: got %v %q %q", host, c, r.Outcome, r.Reason, r.Detail)
			}
		}
	}
}
