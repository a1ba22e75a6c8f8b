package config

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestSettingsAreShownWithoutSecrets(t *testing.T) {
	const text = `
variable "key" {
  sensitive = true
  default   = "hunter2"
}
target "web" {
  for_each = toset(["a", "b"])
  address  = "10.0.0.7"
  probe "readiness" "plain" {
    http {
      path    = "/${each.key}\n"
      port    = 80
      status  = ["200", "204"]
      headers = { X-Team = "shop", Authorization = "Basic hunter2", X-Url = ["http://a:hunter2@b/", "c"] }
      tls { verify = false }
    }
  }
  probe "readiness" "sensitive" {
    http {
      path = "/${var.key}"
      port = 80
    }
  }
  probe "readiness" "same value" {
    http {
      path = "/hunter2"
      port = 80
    }
  }
  probe "liveness" {
    tcp {
      port   = 443
      linger = "1500ms"
      token  = "hunter2"
    }
  }
}
`
	c, diags := parse(t, text, testOptions())
	if diags.HasErrors() {
		t.Fatal(written(t, diags, false))
	}
	for id, want := range map[probe.ID]string{
		{Target: `web["a"]`, Kind: probe.Readiness, Name: "plain"}: `path = "/a\n"
port = "80"
headers = { Authorization = (sensitive), X-Team = ["shop"], X-Url = ["http://(sensitive)@b/", "c"] }
status = ["200", "204"]
tls {
  verify = false
}`,
		{Target: `web["b"]`, Kind: probe.Readiness, Name: "sensitive"}:  "path = (sensitive)\nport = \"80\"",
		{Target: `web["b"]`, Kind: probe.Readiness, Name: "same value"}: "path = \"/hunter2\"\nport = \"80\"",
		{Target: `web["b"]`, Kind: probe.Liveness}:                      "port = \"443\"\nlinger = \"1.5s\"\ntoken = (sensitive)",
	} {
		if got := c.Set[id].Settings; got != want {
			t.Errorf("%v is shown as\n%s\nwant\n%s", id, got, want)
		}
	}
	long := strings.Replace(text, `"/${each.key}\n"`, `"/${join("", [for i in range(1000) : "xxxxxxxxxx"])}"`, 1)
	c, _ = parse(t, long, testOptions())
	if got := c.Set[probe.ID{Target: `web["a"]`, Kind: probe.Readiness, Name: "plain"}].Settings; len(got) != maxSettings {
		t.Errorf("a long text has %d bytes", len(got))
	}
}
