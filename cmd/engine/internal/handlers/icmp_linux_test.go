package handlers

import (
	"strings"
	"testing"

	icmpprobe "github.com/sonde-probe/sonde/builtin/icmp"
	"github.com/sonde-probe/sonde/config"
)

func TestICMPBlocksAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"target \"router\" {\n address = \"10.0.0.1\"\n probe \"liveness\" {\n icmp { ttl = 5 }\n }\n}":      "",
		"target \"router\" {\n address = \"10.0.0.1\"\n probe \"liveness\" {\n icmp { ttl = 256 }\n }\n}":    "ttl is 256; it must be from 1 to 255",
		"target \"router\" {\n address = \"224.0.0.1\"\n probe \"liveness\" {\n icmp {}\n }\n}":              "many hosts reply",
		"target \"router\" {\n probe \"liveness\" {\n icmp {}\n }\n}":                                        "has no address",
		"target \"router\" {\n probe \"liveness\" {\n icmp { host = \"10.0.0\" }\n }\n}":                     "four numbers from 0 to 255",
		"engine {\n allow_empty = true\n}\nprobe_module \"ping\" {\n icmp {}\n}":                             "",
		"engine {\n allow_empty = true\n}\nprobe_module \"ping\" {\n icmp { host = \"10.0.0.1\" }\n}":        "host must not be set in a probe module",
		"engine {\n allow_empty = true\n}\nprobe_module \"ping\" {\n icmp { port = 80 }\n}":                  "port",
		"engine {\n allow_empty = true\n}\nprobe_module \"ping\" {\n icmp { source_address = \"web\" }\n}\n": "source_address is",
	} {
		c, diags := config.Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(text)}}, Options())
		var found strings.Builder
		_ = diags.WriteText(&found, false) // a Builder returns no error
		if diags.HasErrors() && want == "" || !strings.Contains(found.String(), want) {
			t.Errorf("%s\nsays %q, want %q", text, found.String(), want)
		}
		if want == "" && strings.Contains(text, "probe_module") {
			if m := c.ProbeModules["ping"]; m.HandlerName != "icmp" || m.PortName != "" {
				t.Errorf("the module is %+v", m)
			}
		}
	}
}

// validate warns only if the process is not allowed to send.
func TestICMPWithoutPermissionIsWarnedOf(t *testing.T) {
	o := Options()
	lookUp(&o)
	_, diags := config.Parse([]config.Source{{Name: "c.hcl", Bytes: []byte("target \"router\" {\n address = \"10.0.0.1\"\n probe \"liveness\" {\n icmp {}\n }\n}")}}, o)
	var found strings.Builder
	_ = diags.WriteText(&found, false) // a Builder returns no error
	denied := icmpprobe.Permission() != nil
	if warned := strings.Contains(found.String(), "net.ipv4.ping_group_range"); warned != denied || diags.HasErrors() {
		t.Errorf("denied: %t, it says %q", denied, found.String())
	}
}
