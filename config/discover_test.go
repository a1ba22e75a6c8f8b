package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/discover"
)

const discovered = `
discover "http" {
  url = "http://inventory.example"
  target "web" {
    name    = "${each.value.meta.job}/${each.key}"
    address = each.value.address
    ports   = { http = each.value.port }
    labels  = merge(each.value.labels, { rack = lookup(each.value.meta, "__rack", "none") })
    probe "readiness" {
      tcp { port = "http" }
    }
  }
}
`

// withFound parses a text of which each discover block finds the same.
func withFound(text string, found discover.Elements) (*Config, Diagnostics) {
	o := testOptions()
	o.Discovered = func(Discovery) discover.Elements { return found }
	return Parse([]Source{{Name: "c.hcl", Bytes: []byte(text)}}, o)
}

func TestEachElementThatIsFoundIsATarget(t *testing.T) {
	c, diags := withFound(discovered, discover.Elements{
		"10.0.0.7:80": {Address: "10.0.0.7", Port: 80, Labels: map[string]string{"site": "a"}, Meta: map[string]string{"job": "a", "__rack": "r1"}},
		"db:81":       {Address: "db", Port: 81, Labels: map[string]string{"site": "b"}, Meta: map[string]string{"job": "b"}},
	})
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	got := map[string]string{}
	for id, p := range c.Set {
		got[id.String()] = p.Target.Address + " " + p.Target.Labels["rack"] + " " + p.Target.Labels["site"]
	}
	want := map[string]string{"a/10.0.0.7:80:readiness": "10.0.0.7 r1 a", "b/db:81:readiness": "db none b"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(c.Discoveries) != 1 || c.Discoveries[0].Name != "http/web" || !reflect.DeepEqual(c.Discoveries[0].Settings, discover.HTTP{URL: "http://inventory.example"}) {
		t.Errorf("the discoveries are %+v", c.Discoveries)
	}
}

// An element that the block cannot use is an error of the configuration, which a reload then rejects.
func TestAnElementThatTheBlockCannotUseIsAnError(t *testing.T) {
	for want, e := range map[string]discover.Element{
		`"job"`: {Address: "db", Port: 81},
		`http`:  {Address: "db", Meta: map[string]string{"job": "b"}},
	} {
		if _, diags := withFound(discovered, discover.Elements{"x": e}); !diags.HasErrors() || !strings.Contains(diags.Err().Error(), want) {
			t.Errorf("%+v gives %v, want %s", e, diags, want)
		}
	}
}

// A configuration whose only targets are found has no targets until then, and is no error.
func TestNothingWasFoundYet(t *testing.T) {
	if c, diags := withFound(discovered, nil); len(diags) > 0 || len(c.Targets) > 0 || len(c.Discoveries) != 1 {
		t.Errorf("got %+v, %v", c, diags)
	}
}
