package handlers

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/config"
)

// validate warns about each network that this machine lacks, once.
func TestANetworkThatThisMachineLacksIsWarnedOf(t *testing.T) {
	for network, want := range map[string]string{
		"":                           "",
		`source = "192.0.2.1"`:       "", // detected by an attempt
		`interface = "lo"`:           "",
		`interface = "absent0"`:      "interface cannot be used: interface absent0: no such device",
		`namespace = "sonde-absent"`: "namespace cannot be used: network namespace sonde-absent: no such file or directory",
		"namespace = \"/proc/self/ns/absent\"\n  ": "namespace cannot be used: network namespace /proc/self/ns/absent: no such file or directory",
	} {
		o := Options()
		lookUp(&o)
		text := "target \"db\" {\n for_each = toset([\"a\", \"b\"])\n address = \"10.0.0.1\"\n network {\n" + network + "\n}\n probe \"readiness\" {\n tcp { port = 80 }\n }\n}"
		c, diags := config.Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(text)}}, o)
		var found strings.Builder
		_ = diags.WriteText(&found, false) // a Builder returns no error
		if diags.HasErrors() || len(c.Set) != 2 || !strings.Contains(found.String(), want) || strings.Count(found.String(), "cannot be used") != min(len(want), 1) {
			t.Errorf("%s: it says %q, want %q", network, found.String(), want)
		}
	}
}
