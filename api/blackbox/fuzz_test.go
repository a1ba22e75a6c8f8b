package blackbox_test

import (
	"context"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api/blackbox"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// FuzzOnlyTheAllowedNetworkIsProbed sends any request: attempts are made only to addresses of the allowed network.
func FuzzOnlyTheAllowedNetworkIsProbed(f *testing.F) {
	for _, target := range []string{
		"10.0.0.1:1", "http://10.0.0.1/", "[::ffff:10.0.0.1]:2", "http://10.0.0.1@192.0.2.1/", "192.0.2.1#10.0.0.1", "10.0.0.1%00.evil", "fe80::1%10.0.0.1",
		"//10.0.0.1:1", "http://[::1%25a]:1", "\\10.0.0.1:1", "010.0.0.1:1", "0x0a000001:1", "a:1?target=10.0.0.1",
	} {
		f.Add(target, "10", "debug=true")
	}
	allowed := netip.MustParsePrefix("10.0.0.0/8")
	h := probe.HandlerFunc(func(_ context.Context, t probe.Target) probe.Result {
		ip, err := netip.ParseAddr(t.Address)
		if err != nil || !allowed.Contains(ip.Unmap().WithZone("")) || t.Ports[port] == 0 {
			panic("attempted " + t.Address)
		}
		return probe.Succeed("")
	})
	s := serverOf(f, &fakeEngine{}, map[string]blackbox.Module{"m": {Handler: h, PortName: port, Port: "80", Allow: []string{"10.0.0.0/8"}}})
	f.Fuzz(func(t *testing.T, target, timeout, query string) {
		switch status, body := ask(s, url.Values{"module": {"m"}, "target": {target}}.Encode()+"&"+strings.ToValidUTF8(url.PathEscape(query), ""), "X-Prometheus-Scrape-Timeout-Seconds", strings.Map(printable, timeout)); status {
		case 200, 400, 403:
		default:
			t.Errorf("%q is %d %s", target, status, body)
		}
	})
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}

// FuzzPatternsAreNeverWiderThanTheyAre checks any element of allow: it allows no other ports than its own, and, without
// * and ?, no other name.
func FuzzPatternsAreNeverWiderThanTheyAre(f *testing.F) {
	for _, text := range []string{"*", "a.b", "a.b:80", "10.0.0.0/8:1", "[::1]:2", "::1", "a*:3", "10.*", ":", "[", "]:1", "::"} {
		f.Add(text, "other.example:80")
	}
	h := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })
	f.Fuzz(func(t *testing.T, text, target string) {
		if blackbox.CheckAllowed(text) != nil {
			return
		}
		s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{"m": {Handler: h, PortName: port, Allow: []string{text}}})
		status, _ := ask(s, url.Values{"module": {"m"}, "target": {target}}.Encode())
		if status != 200 || strings.ContainsAny(text, "*?/") {
			return
		}
		host := strings.ToLower(strings.TrimSuffix(strings.Trim(hostOf(t, target), "[]"), "."))
		if ip, err := netip.ParseAddr(host); err == nil {
			host = ip.Unmap().WithZone("").String()
		}
		own := strings.ToLower(text)
		if ip, err := netip.ParseAddr(strings.Trim(own, "[]")); err == nil {
			own = ip.Unmap().WithZone("").String()
		} else if a, err := netip.ParseAddrPort(own); err == nil {
			own = a.Addr().Unmap().WithZone("").String()
		} else {
			own, _, _ = strings.Cut(own, ":")
			own = strings.TrimSuffix(own, ".")
		}
		if host != own {
			t.Errorf("%q allows %q", text, target)
		}
	})
}

func hostOf(t *testing.T, target string) string {
	u, err := url.Parse("//" + target)
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname()
}

// FuzzTargetsOfHTTPAreURLs makes handlers for any URL: none has a different host than the URL.
func FuzzTargetsOfHTTPAreURLs(f *testing.F) {
	for _, text := range []string{"http://a/b?c=d", "https://a", "//a:1/%2F", "//u:p@a", "//a?#", "//a/*"} {
		f.Add(text)
	}
	h := httpModule(f, httpprobe.Config{Path: "/healthz"}).Handler.(interface {
		ForURL(*url.URL) (probe.Handler, *url.URL)
	})
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return
		}
		if made, full := h.ForURL(u); made == nil || full.Host != u.Host || full.Scheme == "" {
			t.Errorf("%q is %v", text, full)
		}
	})
}
