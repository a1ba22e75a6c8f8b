package grant

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestGrantsAreParsed(t *testing.T) {
	good := []string{
		"target", "tcp://10.0.0.0/8:6379", "tls://*.internal:6380", "udp://[fd00::1]:53", "tcp://fd00::/8:1-65535", "tcp://db.Example.:*",
		"unix:///run/x/*.sock", "unix://@name", "tcp://169.254.169.254:80",
	}
	bad := []string{
		"", "*", "target:80", "http://web:80", "tcp://web", "tcp://:80", "tcp://web:0", "tcp://web:65536", "tcp://web:9-8", "tcp://web:http",
		"tcp://10.0.0.1/8:80", "tcp://*:80", "tcp://*.*.internal:80", "tcp://a.*.internal:80", "tcp://*internal:80", "tcp://we b:80",
		"tcp://[fd00::1]", "tcp://[fe80::1%eth0]:80", "tcp://[::ffff:10.0.0.0]/104:80", "unix://run/x", "unix:///run/../x", "unix:///run/[", "tcp://..:80",
		"tcp://010.0.0.1:80", "tcp://127.1:80", "udp://300.1.1.1:53",
	}
	for names, isValid := range map[string]bool{"HOME": true, "http_proxy": true, "HOME*": false, "$HOME": false, "HOME=x": false, "": false} {
		if _, err := Parse(nil, nil, []string{names}); (err == nil) != isValid {
			t.Errorf("env %q: %v", names, err)
		}
	}
	for _, entry := range good {
		if _, err := Parse([]string{entry}, nil, nil); err != nil {
			t.Errorf("%q is refused: %v", entry, err)
		}
	}
	for _, entry := range bad {
		var wrong *probe.FieldError
		if _, err := Parse([]string{entry}, nil, nil); !errors.As(err, &wrong) || wrong.Field != "grant.dial" {
			t.Errorf("%q gives the error %v", entry, err)
		}
	}
}

func TestAddressesAreGranted(t *testing.T) {
	tests := []struct {
		name    string
		dial    []string // nil: the default
		network string
		host    string
		port    uint16
		ip      string
		want    bool
	}{
		{"the target", nil, "tcp", "10.0.0.7", 8080, "10.0.0.7", true},
		{"the target over TLS", nil, "tls", "10.0.0.7", 8080, "10.0.0.7", true},
		{"the target as a mapped address", nil, "tcp", "::ffff:10.0.0.7", 8080, "10.0.0.7", true},
		{"another port of the target", nil, "tcp", "10.0.0.7", 22, "10.0.0.7", false},
		{"another host", nil, "tcp", "10.0.0.8", 8080, "10.0.0.8", false},
		{"nothing granted", []string{}, "tcp", "10.0.0.7", 8080, "10.0.0.7", false},
		{"a block", []string{"tcp://10.0.0.0/8:6379"}, "tcp", "10.1.2.3", 6379, "10.1.2.3", true},
		{"a block, another port", []string{"tcp://10.0.0.0/8:6379"}, "tcp", "10.1.2.3", 6380, "10.1.2.3", false},
		{"a block, another network", []string{"tcp://10.0.0.0/8:6379"}, "udp", "10.1.2.3", 6379, "10.1.2.3", false},
		{"out of a block", []string{"tcp://10.0.0.0/8:6379"}, "tcp", "11.1.2.3", 6379, "11.1.2.3", false},
		{"a name in a block", []string{"tcp://10.0.0.0/8:6379"}, "tcp", "db", 6379, "10.1.2.3", true},
		{"a name out of a block", []string{"tcp://10.0.0.0/8:6379"}, "tcp", "db", 6379, "11.1.2.3", false},
		{"a range", []string{"tcp://10.0.0.0/8:10-20"}, "tcp", "10.0.0.1", 20, "10.0.0.1", true},
		{"a pattern", []string{"tcp://*.internal:80"}, "tcp", "a.b.Internal.", 80, "10.0.0.1", true},
		{"a pattern's suffix alone", []string{"tcp://*.internal:80"}, "tcp", "internal", 80, "10.0.0.1", false},
		{"a name that ends like it", []string{"tcp://*.internal:80"}, "tcp", "evilinternal", 80, "10.0.0.1", false},
		{"a pattern that resolves to loopback", []string{"tcp://*.internal:80"}, "tcp", "a.internal", 80, "127.0.0.1", false},
		{"a name that resolves to loopback", []string{"tcp://db:80"}, "tcp", "db", 80, "127.0.0.1", true},
		{"a pattern that resolves to metadata", []string{"tcp://*.internal:80"}, "tcp", "a.internal", 80, "169.254.169.254", false},
		{"a name that resolves to metadata", []string{"tcp://db:80"}, "tcp", "db", 80, "169.254.169.254", false},
		{"metadata in a block", []string{"tcp://0.0.0.0/0:80"}, "tcp", "169.254.169.254", 80, "169.254.169.254", false},
		{"metadata as itself", []string{"tcp://169.254.169.254:80"}, "tcp", "169.254.169.254", 80, "169.254.169.254", true},
		{"metadata, mapped", []string{"tcp://::/0:80"}, "tcp", "::ffff:169.254.169.254", 80, "::ffff:169.254.169.254", false},
		{"metadata, translated", []string{"tcp://::/0:80"}, "tcp", "64:ff9b::a9fe:a9fe", 80, "64:ff9b::a9fe:a9fe", false},
		{"Google's metadata over IPv6", []string{"tcp://fd00::/8:80"}, "tcp", "fd20:ce::254", 80, "fd20:ce::254", false},
		{"Oracle's metadata", []string{"tcp://0.0.0.0/0:80"}, "tcp", "192.0.0.192", 80, "192.0.0.192", false},
		{"Oracle's metadata by its own entry", []string{"tcp://192.0.0.192:80"}, "tcp", "192.0.0.192", 80, "192.0.0.192", true},
		{"metadata over IPv6", []string{"tcp://fd00::/8:80"}, "tcp", "fd00:ec2::254", 80, "fd00:ec2::254", false},
		{"credentials of a pod over IPv6", []string{"tcp://::/0:80"}, "tcp", "fd00:ec2::23", 80, "fd00:ec2::23", false},
		{"Scaleway's metadata over IPv6", []string{"tcp://fd00::/8:80"}, "tcp", "fd00:42::42", 80, "fd00:42::42", false},
		{"Scaleway's metadata by its own entry", []string{"tcp://[fd00:42::42]:80"}, "tcp", "fd00:42::42", 80, "fd00:42::42", true},
		{"a neighbour of Scaleway's metadata", []string{"tcp://fd00::/8:80"}, "tcp", "fd00:42::43", 80, "fd00:42::43", true},
		{"another cloud's metadata", []string{"tcp://100.64.0.0/10:80"}, "tcp", "100.100.100.200", 80, "100.100.100.200", false},
		{"link-local over IPv6", []string{"tcp://fe80::/10:80"}, "tcp", "fe80::1%eth0", 80, "fe80::1%eth0", false},
		{"multicast", []string{"udp://224.0.0.0/4:53"}, "udp", "224.0.0.251", 53, "224.0.0.251", false},
		{"metadata, translated for one site", []string{"tcp://::/0:80"}, "tcp", "64:ff9b:1::a9fe:a9fe", 80, "64:ff9b:1::a9fe:a9fe", false},
		{"metadata, translated for one site with 48 bits", []string{"tcp://::/0:80"}, "tcp", "64:ff9b:1:a9fe:a9:fe00::", 80, "64:ff9b:1:a9fe:a9:fe00::", false},
		{"metadata, translated for one site with 56 bits", []string{"tcp://::/0:80"}, "tcp", "64:ff9b:1:a9:fe:a9fe::", 80, "64:ff9b:1:a9:fe:a9fe::", false},
		{"metadata, translated for one site with 64 bits", []string{"tcp://::/0:80"}, "tcp", "64:ff9b:1:0:a9:fea9:fe00:0", 80, "64:ff9b:1:0:a9:fea9:fe00:0", false},
		{"others, translated for one site", []string{"tcp://::/0:80"}, "tcp", "64:ff9b:1::a00:1", 80, "64:ff9b:1::a00:1", true},
		{"metadata, translated without a prefix", []string{"tcp://::/0:80"}, "tcp", "::ffff:0:a9fe:a9fe", 80, "::ffff:0:a9fe:a9fe", false},
		{"metadata by 6to4", []string{"tcp://::/0:80"}, "tcp", "2002:a9fe:a9fe::1", 80, "2002:a9fe:a9fe::1", false},
		{"metadata, compatible", []string{"tcp://::/0:80"}, "tcp", "::169.254.169.254", 80, "::169.254.169.254", false},
		{"loopback, compatible", []string{"tcp://::/0:80"}, "tcp", "::127.0.0.1", 80, "::127.0.0.1", false},
		{"others, translated", []string{"tcp://::/0:80"}, "tcp", "64:ff9b::a00:1", 80, "64:ff9b::a00:1", true},
		{"loopback in everything", []string{"tcp://0.0.0.0/0:80", "tcp://::/0:80"}, "tcp", "127.0.0.1", 80, "127.0.0.1", false},
		{"loopback in everything, mapped", []string{"tcp://0.0.0.0/0:80"}, "tcp", "::ffff:127.0.0.1", 80, "::ffff:127.0.0.1", false},
		{"loopback over IPv6 in everything", []string{"tcp://::/0:80"}, "tcp", "::1", 80, "::1", false},
		{"loopback in its block", []string{"tcp://127.0.0.0/8:80"}, "tcp", "127.0.0.2", 80, "127.0.0.2", true},
		{"loopback as itself", []string{"tcp://[::1]:80"}, "tcp", "::1", 80, "::1", true},
		{"a name that resolves to loopback, in everything", []string{"tcp://0.0.0.0/0:80"}, "tcp", "db", 80, "127.0.0.1", false},
		{"an international name", []string{"tcp://Bücher.internal:80"}, "tcp", "xn--bcher-kva.internal", 80, "10.0.0.1", true},
		{"an international pattern", []string{"tcp://*.bücher.internal:80"}, "tcp", "a.bücher.internal", 80, "10.0.0.1", true},
		{"another international name", []string{"tcp://bücher.internal:80"}, "tcp", "bucher.internal", 80, "10.0.0.1", false},
		{"the unspecified address", []string{"tcp://0.0.0.0/0:80"}, "tcp", "0.0.0.0", 80, "0.0.0.0", false},
		{"the unspecified address over IPv6", []string{"tcp://::/0:80"}, "tcp", "::", 80, "::", false},
		{"the unspecified address, mapped", []string{"tcp://0.0.0.0/0:80"}, "tcp", "::ffff:0.0.0.0", 80, "::ffff:0.0.0.0", false},
		{"the unspecified address as itself", []string{"tcp://0.0.0.0:80"}, "tcp", "0.0.0.0", 80, "0.0.0.0", false},
	}
	target := probe.Target{Name: "web", Address: "10.0.0.7", Ports: map[string]uint16{"http": 8080}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g, err := Parse(test.dial, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			d := Dest{test.network, test.host, test.port, IsTarget(target, 0, test.host, test.port)}
			if got := g.AllowsAddr(d, netip.MustParseAddr(test.ip)); got != test.want {
				t.Errorf("%v at %s: got %v", d, test.ip, got)
			}
		})
	}
}

func TestATargetsNameNeverGrantsMetadata(t *testing.T) {
	g, _ := Parse(nil, nil, nil)
	target := probe.Target{Address: "web.internal", Ports: map[string]uint16{"http": 80}}
	d := Dest{"tcp", "WEB.internal.", 80, IsTarget(target, 0, "WEB.internal.", 80)}
	for ip, want := range map[string]bool{"10.0.0.1": true, "127.0.0.1": true, "169.254.169.254": false, "0.0.0.0": false, "fe80::1": false} {
		if got := g.AllowsAddr(d, netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: got %v", ip, got)
		}
	}
	literal := probe.Target{Address: "169.254.0.7", Ports: map[string]uint16{"http": 80}}
	d = Dest{"tcp", "169.254.0.7", 80, IsTarget(literal, 0, "169.254.0.7", 80)}
	if !g.AllowsAddr(d, netip.MustParseAddr("169.254.0.7")) {
		t.Error("a target that is given by a link-local address is refused")
	}
	zoned := probe.Target{Address: "fe80::1%eth0", Ports: map[string]uint16{"http": 80}}
	for host, want := range map[string]bool{"fe80::1%eth0": true, "fe80::1%eth1": false, "fe80::1": false} {
		d = Dest{"tcp", host, 80, IsTarget(zoned, 0, host, 80)}
		if got := g.AllowsAddr(d, netip.MustParseAddr(host)); got != want {
			t.Errorf("a target on a link: %s is granted: %v", host, got)
		}
	}
}

func TestNamesAreLookedUpOnlyWhenGranted(t *testing.T) {
	g, err := Parse([]string{"target", "tcp://*.internal:80"}, []string{"*.example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.internal": true, "a.example.org": true, "A.Example.Org.": true, "secret.evil.org": false, "example.org": false} {
		if got := g.AllowsLookup(Dest{Network: "tcp", Host: name, Port: 80}); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if g.AllowsResolve("a.internal") {
		t.Error("a name that may be dialled may be resolved for any purpose")
	}
}

func TestPathsAreGranted(t *testing.T) {
	g, _ := Parse([]string{"unix:///run/x/*.sock", "unix://@y"}, nil, nil)
	for name, want := range map[string]bool{"/run/x/a.sock": true, "@y": true, "/run/x/b/a.sock": false, "/run/x/a": false, "": false} {
		if real, got := g.AllowsPath(name); got != want || real != name {
			t.Errorf("%q: got %v, %q", name, got, real)
		}
	}
}

// A symbolic link in a granted directory must not lead out of it. The path of the directory itself may contain links.
func TestALinkDoesNotLeadOutOfAGrantedDirectory(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"run/x/sub", "run/other"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"run/x/a.sock", "run/x/sub/s.sock", "run/other/o.sock"} {
		if err := os.WriteFile(filepath.Join(top, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"var": "run", "run/x/in.sock": "a.sock", "run/x/out.sock": "../other/o.sock", "run/x/whole.sock": filepath.Join(top, "run/other/o.sock"),
		"run/x/loop.sock": "loop.sock", "run/x/away": "../other",
	} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		pattern, name string
		real          string // "": not allowed
	}{
		{"run/x/*.sock", "run/x/a.sock", "run/x/a.sock"},
		{"run/x/*.sock", "run/x/in.sock", "run/x/a.sock"},
		{"run/x/*.sock", "run/x/out.sock", ""},
		{"run/x/*.sock", "run/x/whole.sock", ""},
		{"run/x/*.sock", "run/x/loop.sock", ""},
		{"run/x/*.sock", "run/x/absent.sock", "run/x/absent.sock"},
		{"run/x/*/*.sock", "run/x/sub/s.sock", "run/x/sub/s.sock"},
		{"run/x/*/*.sock", "run/x/away/o.sock", ""},
		{"run/*/*/*.sock", "run/x/away/o.sock", ""},
		{"var/x/*.sock", "var/x/a.sock", "run/x/a.sock"},
		{"var/x/*.sock", "var/x/out.sock", ""},
		{"run/x/out.sock", "run/x/out.sock", "run/x/out.sock"}, // granted by its exact path
	} {
		g, err := Parse([]string{"unix://" + filepath.Join(top, test.pattern)}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		real, ok := g.AllowsPath(filepath.Join(top, test.name))
		if ok != (test.real != "") || ok && real != filepath.Join(top, test.real) {
			t.Errorf("%s, %s: got %q, %v", test.pattern, test.name, real, ok)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add("tcp://10.0.0.0/8:6379", "169.254.169.254")
	f.Add("tls://*.internal:1-2", "::1")
	f.Fuzz(func(t *testing.T, entry, address string) {
		g, err := Parse([]string{entry}, nil, nil)
		ip, ipErr := netip.ParseAddr(address)
		if err != nil || ipErr != nil || entry == "target" {
			return
		}
		d := Dest{Network: g.dial[0].scheme, Host: "name.internal", Port: g.dial[0].minPort}
		if ip = ip.Unmap(); needsOwnEntry(ip) && g.AllowsAddr(d, ip) && !(g.dial[0].prefix.IsSingleIP() && g.dial[0].prefix.Addr() == ip.WithZone("")) {
			t.Errorf("%q grants %s by a name", entry, ip)
		}
	})
}

func TestErrorsOfEntriesHaveOneRemedy(t *testing.T) {
	for entry, want := range map[string]string{
		"10.0.0.0/8:6379":  `grant.dial has invalid entry "10.0.0.0/8:6379": scheme is missing; write "target", or a URL such as "tcp://10.0.0.0/8:6379"`,
		"tcp://10.0.0.1":   `grant.dial has invalid entry "tcp://10.0.0.1": port is missing; write a number, a range such as 8000-8999, or *`,
		"unix:///run/../x": `grant.dial has invalid entry "unix:///run/../x": path is not canonical: write /x`,
	} {
		if _, err := Parse([]string{entry}, nil, nil); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
