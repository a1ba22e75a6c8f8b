package dial

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestAddressesOfAFamilyAreUsed(t *testing.T) {
	for _, test := range []struct {
		family string
		ips    string
		want   string // or the reason
	}{
		{"", "10.0.0.1 fd00::1 10.0.0.2", "10.0.0.1 fd00::1 10.0.0.2"},
		{"any", "fd00::1 10.0.0.2", "fd00::1 10.0.0.2"},
		{"4", "10.0.0.1 fd00::1 10.0.0.2", "10.0.0.1 10.0.0.2"},
		{"4", "::ffff:10.0.0.1", "10.0.0.1"},
		{"6", "10.0.0.1 fd00::1", "fd00::1"},
		{"6", "10.0.0.1", "dns.failed"},
		{"4", "fd00::1", "dns.failed"},
		{"prefer_4", "fd00::1 10.0.0.2 fd00::2 10.0.0.1", "10.0.0.2 10.0.0.1 fd00::1 fd00::2"},
		{"prefer_6", "10.0.0.2 fd00::2", "fd00::2 10.0.0.2"},
		{"prefer_6", "10.0.0.2", "10.0.0.2"},
	} {
		d := dialer(t, Config{IPFamily: test.family})
		d.lookup = names{"shop": strings.Fields(test.ips)}.lookup
		ips, err := d.Addresses(t.Context(), "shop", 80, new(probe.Timings))
		var got []string
		for _, ip := range ips {
			got = append(got, ip.String())
		}
		if err != nil {
			got = []string{string(Result(err).Reason)}
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%q of %s: got %s %v, want %s", test.family, test.ips, text, err, test.want)
		}
	}
}

func TestAnAddressOfAnotherFamilyIsAnErrorOfTheConfiguration(t *testing.T) {
	for field, c := range map[string]Config{
		"ip_family ":     {Port: "80", IPFamily: "4", Host: "::1"},
		"ip_family  ":    {UnixSocket: "/s", IPFamily: "4"},
		"addresses":      {UnixSocket: "/s", Addresses: AllAddresses},
		"source_address": {Port: "80", IPFamily: "6", SourceAddress: "127.0.0.1"},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(field)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	d := dialer(t, Config{IPFamily: "6"})
	here := probe.Target{Name: "web", Address: "127.0.0.1"}
	if err := d.Check(here); err == nil || !strings.Contains(err.Error(), "ip_family") {
		t.Errorf("got %v", err)
	}
	if _, _, ok := d.LiteralAddr(&here); ok {
		t.Error("the loop would connect to it")
	}
}

func TestAttemptsAtAllAddressesOfAName(t *testing.T) {
	results := map[string]probe.Result{
		"10.0.0.1": {Outcome: probe.Success, CertificateExpiry: 20}, "10.0.0.2": {Outcome: probe.Success, CertificateExpiry: 10},
		"10.0.0.3": probe.Fail(probe.ReasonHTTPStatus, "status 503"), "10.0.0.4": probe.Broken(probe.ReasonResources, "no ports"),
		"10.0.0.5": {Outcome: probe.Warning, Detail: "old"},
	}
	for ips, want := range map[string]struct {
		outcome probe.Outcome
		detail  string
	}{
		"10.0.0.1 10.0.0.2":          {probe.Success, "10.0.0.1 success; 10.0.0.2 success"},
		"10.0.0.1 10.0.0.3 10.0.0.4": {probe.Failure, "10.0.0.1 success; 10.0.0.3 failure: http.status: status 503; 10.0.0.4 unknown: engine.resources: no ports"},
		"10.0.0.4 10.0.0.5":          {probe.Unknown, ""},
		"10.0.0.5 10.0.0.1":          {probe.Warning, ""},
		"":                           {probe.Failure, "shop has no address to connect to"},
		"10.0.1.1 10.0.1.2 10.0.1.3 10.0.1.4 10.0.1.5 10.0.1.6 10.0.1.7 10.0.1.8 10.0.1.9": {probe.Unknown, `shop has 9 addresses, at most 8 can be checked: use addresses = "any"`},
	} {
		d := dialer(t, Config{Addresses: AllAddresses})
		d.lookup = names{"shop": strings.Fields(ips)}.lookup
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := len(strings.Fields(ips))
		r := d.Attempt(ctx, "shop", 80, func(ctx context.Context) probe.Result {
			pinned, err := d.Addresses(ctx, "SHOP", 80, new(probe.Timings))
			if err != nil || len(pinned) != 1 {
				t.Fatalf("got %v, %v", pinned, err)
			}
			if end, _ := ctx.Deadline(); n > 1 && time.Until(end) > time.Minute/time.Duration(n)+time.Second {
				t.Errorf("one of %d has all the time", n)
			}
			n--
			return results[pinned[0].String()]
		})
		if r.Outcome != want.outcome || want.detail != "" && r.Detail != want.detail {
			t.Errorf("%s: got %v %q", ips, r.Outcome, r.Detail)
		}
		if want.outcome == probe.Success && r.CertificateExpiry != 10 {
			t.Errorf("%s: got the expiry %d", ips, r.CertificateExpiry)
		}
	}
	some := dialer(t, Config{Addresses: SomeAddresses})
	for ips, want := range map[string]string{
		"10.0.0.1 10.0.0.2":          "success: 10.0.0.1 success; 10.0.0.2 success",
		"10.0.0.3 10.0.0.1":          "warning http.status: 10.0.0.3 failure: http.status: status 503; 10.0.0.1 success",
		"10.0.0.5 10.0.0.3":          "warning http.status: 10.0.0.5 warning: old; 10.0.0.3 failure: http.status: status 503",
		"10.0.0.1 10.0.0.5":          "warning: 10.0.0.1 success; 10.0.0.5 warning: old",
		"10.0.0.4 10.0.0.1":          "success: 10.0.0.4 unknown: engine.resources: no ports; 10.0.0.1 success",
		"10.0.0.4 10.0.0.1 10.0.0.3": "warning http.status: 10.0.0.4 unknown: engine.resources: no ports; 10.0.0.1 success; 10.0.0.3 failure: http.status: status 503",
		"10.0.0.4 10.0.0.3":          "failure http.status: 10.0.0.4 unknown: engine.resources: no ports; 10.0.0.3 failure: http.status: status 503",
		"10.0.0.3":                   "failure http.status: 10.0.0.3 failure: http.status: status 503",
	} {
		some.lookup = names{"shop": strings.Fields(ips)}.lookup
		r := some.Attempt(t.Context(), "shop", 80, func(ctx context.Context) probe.Result {
			pinned, _ := some.Addresses(ctx, "shop", 80, new(probe.Timings))
			return results[pinned[0].String()]
		})
		if got := strings.TrimSpace(r.Outcome.String()+" "+string(r.Reason)) + ": " + r.Detail; got != want {
			t.Errorf("some of %s: got %s, want %s", ips, got, want)
		}
	}
	checkReserve(t, some)
	var tried []string
	d := dialer(t, Config{Addresses: AllAddresses})
	d.lookup = names{"shop": {"10.0.0.1", "10.0.0.2"}}.lookup
	restricted := WithAllow(t.Context(), func(_ string, to netip.AddrPort) error {
		if to.Addr().String() == "10.0.0.1" {
			return errUnixRestricted
		}
		return nil
	})
	d.Attempt(restricted, "shop", 80, func(ctx context.Context) probe.Result {
		ips, _ := d.Addresses(ctx, "shop", 80, new(probe.Timings))
		tried = append(tried, ips[0].String())
		return probe.Succeed("")
	})
	if !slices.Equal(tried, []string{"10.0.0.2"}) {
		t.Errorf("an attempt that may reach 10.0.0.2 only was made at %v", tried)
	}
	if r := d.Attempt(t.Context(), "10.0.0.9", 80, func(context.Context) probe.Result { return probe.Succeed("once") }); r.Detail != "once" {
		t.Errorf("an address: got %+v", r)
	}
}

func TestAnAddressOfAnAttemptAtAllIsCheckedForEachPort(t *testing.T) {
	d := dialer(t, Config{Addresses: AllAddresses})
	d.lookup = names{"shop": {"10.0.0.1", "10.0.0.2"}}.lookup
	ctx := WithAllow(t.Context(), func(_ string, to netip.AddrPort) error {
		if to.Port() != 80 {
			return errors.New("is not allowed")
		}
		return nil
	})
	r := d.Attempt(ctx, "shop", 80, func(ctx context.Context) probe.Result {
		if _, err := d.Addresses(ctx, "shop", 80, new(probe.Timings)); err != nil {
			return Result(err)
		}
		if _, err := d.Addresses(ctx, "shop", 22, new(probe.Timings)); err != nil { // as after a redirect
			return Result(err)
		}
		return probe.Succeed("")
	})
	if r.Outcome != probe.Failure || r.Reason != probe.ReasonNotAllowed {
		t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
}

// checkReserve checks that an attempt whose last address never responds is not late.
func checkReserve(t *testing.T, some *Dialer) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		some.lookup = names{"shop": {"10.0.0.1", "10.0.0.2"}}.lookup
		n := 0
		r := some.Attempt(ctx, "shop", 80, func(ctx context.Context) probe.Result {
			if n++; n == 1 {
				return probe.Succeed("")
			}
			<-ctx.Done()
			return probe.Fail(probe.ReasonTCPTimeout, "")
		})
		if r.Outcome != probe.Warning || ctx.Err() != nil {
			t.Errorf("got %v, %v", r, ctx.Err())
		}
	})
}
