package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAProbeModuleIsAProbeWithoutATarget(t *testing.T) {
	c, diags := Parse([]Source{{"t.hcl", []byte(`
engine { allow_empty = true }
variable "token" {
  default   = "hunter2"
  sensitive = true
}
probe_module "http_2xx" {
  timeout = "5s"
  allow   = ["*.example.com", "10.0.0.0"]
  http {
    port    = 8080
    path    = "/healthz"
    headers = { Authorization = var.token }
  }
}
probe_module "tcp_connect" {
  tcp {}
}
`)}}, testOptions())
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	m := c.ProbeModules["http_2xx"]
	if m.Timeout != 5*time.Second || m.Port != "8080" || m.HandlerName != "http" || m.Handler == nil || !slices.Equal(m.Allow, []string{"*.example.com", "10.0.0.0"}) {
		t.Errorf("got %+v", m)
	}
	if !strings.Contains(m.Settings, `port = "8080"`) || !strings.Contains(m.Settings, `path = "/healthz"`) || strings.Contains(m.Settings, "hunter") {
		t.Errorf("what is shown is %q", m.Settings)
	}
	if m := c.ProbeModules["tcp_connect"]; m.Timeout != 0 || m.Port != "" || m.HandlerName != "tcp" || m.Handler == nil || len(m.Allow) > 0 {
		t.Errorf("got %+v", m)
	}
	if len(c.Set) > 0 || !slices.Contains(c.Secrets, "hunter2") {
		t.Errorf("there are the probes %v and the secrets %v", c.Set, c.Secrets)
	}
}

// A handler that connects to no port is allowed nothing at one.
func TestAProbeModuleWithoutPortsAllowsNone(t *testing.T) {
	o := testOptions()
	tcp := o.Handlers["tcp"]
	tcp.NoPort = true
	o.Handlers["tcp"] = tcp
	for allow, hint := range map[string]string{
		"10.0.0.0/8": "", "*.example.com": "", "fd00::1": "",
		"10.0.0.0/8:80": `write "10.0.0.0/8"`, "*.example.com:443": `write "*.example.com"`, "[fd00::1]:80": `write "fd00::1"`,
	} {
		_, diags := Parse([]Source{{"t.hcl", []byte("engine { allow_empty = true }\nprobe_module \"x\" {\n  allow = [\"" + allow + "\"]\n  tcp {}\n}\n")}}, o)
		if text := written(t, diags, false); strings.Contains(text, "so that nothing is allowed") != (hint != "") || !strings.Contains(text, hint) {
			t.Errorf("%s: %s", allow, text)
		}
	}
}

func TestAProbeModuleHasNoQuorum(t *testing.T) {
	_, diags := parse(t, "probe_module \"x\" {\n  quorum {}\n}\n", Options{})
	if text := written(t, diags, false); len(diags) != 1 || !strings.Contains(text, `unknown block "quorum"`) || !strings.Contains(text, `write it inside probe "readiness" { … }`) {
		t.Errorf("got %s", text)
	}
}
