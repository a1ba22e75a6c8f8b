package probe_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/probe"
)

func TestAPortIsANumberOrAName(t *testing.T) {
	target := probe.Target{Name: "web", Ports: map[string]uint16{"http": 8080}}
	cases := []struct {
		text string
		want uint16 // 0 if the port is rejected
	}{
		{"http", 8080}, {"1", 1}, {"65535", 65535},
		{"", 0}, {"grpc", 0}, {"0", 0}, {"-1", 0}, {"65536", 0}, {"80.5", 0}, {" 80", 0}, {"99999999999999999999", 0},
	}
	for _, c := range cases {
		got, err := target.Port(c.text)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("Port(%q) = %d, %v, want %d", c.text, got, err, c.want)
		}
	}
}

func TestAMissingPortIsNamed(t *testing.T) {
	cases := map[string]string{
		"grpc":  `port is "grpc", but target web has no such port; it has no ports`,
		"70000": "port is 70000; it must be from 1 to 65535",
	}
	for text, want := range cases {
		_, err := probe.Target{Name: "web"}.Port(text)
		if err == nil || err.Error() != want {
			t.Errorf("Port(%q): got %v, want %s", text, err, want)
		}
	}
}

// A port of the machine that is not forwarded to the instance belongs to another program.
func TestAPortThatIsNotPublishedIsRefused(t *testing.T) {
	target := probe.Target{Name: "web", Ports: map[string]uint16{"http": 32768, "8080": 32768}}
	if got, err := target.Port("8080"); got != 32768 || err != nil {
		t.Errorf("Port(8080) = %d, %v", got, err)
	}
	if got, err := target.Port("22"); got != 0 || err == nil || !strings.Contains(err.Error(), "port is 22, which target web does not publish") {
		t.Errorf("Port(22) = %d, %v", got, err)
	}
}

func TestPortNamesAreInOrder(t *testing.T) {
	target := probe.Target{Ports: map[string]uint16{"http": 80, "admin": 81, "grpc": 82}}
	if got, want := target.PortNames(), []string{"admin", "grpc", "http"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTargetsAreEqualInEveryField(t *testing.T) {
	full := func() probe.Target {
		return probe.Target{
			Name: "web", Address: "10.0.0.1", Ports: map[string]uint16{"http": 80},
			Env: map[string]string{"A": "b"}, Dir: "/srv", User: "web",
		}
	}
	if !full().Equal(full()) {
		t.Error("two copies are not equal")
	}
	if empty := (probe.Target{Ports: map[string]uint16{}}); !empty.Equal(probe.Target{}) {
		t.Error("no ports and an empty map of ports are not equal")
	}
	changes := map[string]func(*probe.Target){
		"Name":       func(t *probe.Target) { t.Name = "api" },
		"Address":    func(t *probe.Target) { t.Address = "" },
		"Ports":      func(t *probe.Target) { t.Ports = nil },
		"Ports' own": func(t *probe.Target) { t.Ports["http"] = 81 },
		"Env":        func(t *probe.Target) { t.Env["B"] = "" },
		"Env's own":  func(t *probe.Target) { t.Env["A"] = "c" },
		"Dir":        func(t *probe.Target) { t.Dir = "/" },
		"User":       func(t *probe.Target) { t.User = "root" },
	}
	for _, field := range slices.Sorted(maps.Keys(changes)) {
		other := full()
		changes[field](&other)
		if full().Equal(other) || other.Equal(full()) {
			t.Errorf("a target with another %s is equal", field)
		}
	}
}

func TestInstancesHaveDifferentIDsThatAreUTF8(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{"4711-k5zq2m7xwa", "containerd://5f2c", "\xff", "\xfe", "a\nb", "a b", strings.Repeat("x", 300), strings.Repeat("x", 301), strings.Repeat("é", 400)} {
		got := probe.InstanceID(id)
		if seen[got] || len(got) > 256 || !utf8.ValidString(got) || probe.InstanceID(got) != got {
			t.Errorf("%q has the ID %q, and that one %q", id, got, probe.InstanceID(got))
		}
		if seen[got] = true; len(id) < 20 && utf8.ValidString(id) && !strings.Contains(id, "\n") && got != id {
			t.Errorf("%q has the ID %q", id, got)
		}
	}
	if got := probe.InstanceID(""); got != "" {
		t.Errorf("no ID is %q", got)
	}
}
