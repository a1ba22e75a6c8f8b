package dial

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestHostsHaveOneForm(t *testing.T) {
	for host, want := range map[string]string{
		"shop.example":           "shop.example",
		"Shop.Example.":          "Shop.Example.",
		"my_db":                  "my_db",
		"10.0.0.7":               "10.0.0.7",
		"fe80::1%eth0":           "fe80::1%eth0",
		"bücher.example":         "xn--bcher-kva.example",
		"BÜCHER.example":         "xn--bcher-kva.example",
		"bu\u0308cher.example":   "xn--bcher-kva.example", // u and a combining diaeresis
		"bücher.example.":        "xn--bcher-kva.example.",
		"my_bücher.example":      "xn--my_bcher-95a.example",
		"xn--bcher-kva.example":  "xn--bcher-kva.example",
		"例え.テスト":                 "xn--r8jz45g.xn--zckzah",
		"bücher。example":         "xn--bcher-kva.example", // a full stop of East Asian scripts
		"１０.0.0.7":               "10.0.0.7",              // full-width digits, which are validated as an IP address
		"*.bücher.example":       "*.xn--bcher-kva.example",
		"a\u202eb.example":       "a\u202eb.example", // cannot be a name
		"\xff\xfe":               "\xff\xfe",
		strings.Repeat("ü", 999): strings.Repeat("ü", 999),
	} {
		if got := CanonicalHost(host); got != want {
			t.Errorf("%q is %q, want %q", host, got, want)
		}
		if again := CanonicalHost(want); again != want {
			t.Errorf("%q is %q the second time", host, again)
		}
	}
	for text, want := range map[string]string{
		"http://bücher.example/ü":   "xn--bcher-kva.example",
		"http://bücher.example:80/": "xn--bcher-kva.example:80",
		"http://[::1]:80/":          "[::1]:80",
		"http://shop.example":       "shop.example",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if CanonicalURL(u); u.Host != want {
			t.Errorf("%s has the host %q, want %q", text, u.Host, want)
		}
	}
}

// Go programs may write a host in either form, for a handler or as a target's address.
func TestADialerConnectsToTheCanonicalHost(t *testing.T) {
	const want = "xn--bcher-kva.example:80"
	for _, c := range []Config{{Port: "80"}, {Port: "80", Host: "bücher.example"}} {
		d, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Endpoint(probe.Target{Name: "shop", Address: "Bücher.example"}); got != want {
			t.Errorf("the endpoint is %s, want %s", got, want)
		}
	}
	for _, host := range []string{"bü cher.example", "a\u202eb.example"} {
		if _, err := New(Config{Port: "80", Host: host}); err == nil {
			t.Errorf("%q is accepted", host)
		}
	}
	verify := false
	if config, err := (&TLS{ServerName: "bücher.example", Verify: &verify}).Load(); err != nil || config.ServerName != "xn--bcher-kva.example" {
		t.Errorf("the name for TLS is %v, %v", config, err)
	}
}

func TestSpellingsOfOneHostHaveOneID(t *testing.T) {
	for id, spellings := range map[string][]string{
		"localhost":             {"LOCALHOST", "localhost.", "LocalHost."},
		"127.0.0.1":             {"127.0.0.1", "::ffff:127.0.0.1", "::FFFF:7f00:1"},
		"::1":                   {"0:0:0:0:0:0:0:1"},
		"xn--bcher-kva.example": {"bücher.example", "BÜCHER.example.", "XN--BCHER-KVA.example"},
		"127.0.0.2":             {"127.0.0.2"},
	} {
		for _, host := range spellings {
			if got := HostID(host); got != id {
				t.Errorf("%s has %q, want %q", host, got, id)
			}
		}
	}
}
