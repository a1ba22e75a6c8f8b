package config

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

const differing = `
target "web" {
  for_each = { a = "1s", b = "2s", c = "1s", d = "1s" }
  address = each.key == "d" ? null : "10.0.0.1"
  probe "readiness" {
    http {
      path = each.value == "1s" ? "/one" : "/two"
      port = 80
    }
    period = each.value
    #more
  }
}
`

func TestElementsWithTheSameValuesShareTheirProbe(t *testing.T) {
	c := parseGood(t, strings.Replace(differing, "null", `"10.0.0.2"`, 1), Options{})
	at := func(key string) probe.Probe {
		return c.Set[probe.ID{Target: `web["` + key + `"]`, Kind: probe.Readiness}]
	}
	a := at("a")
	for _, key := range []string{"c", "d"} {
		if p := at(key); p.Handler == nil || p.Rule != a.Rule || p.Handler != a.Handler || p.Revision != a.Revision || p.Target.Name == a.Target.Name {
			t.Errorf("%s has %+v, a has %+v", key, p, a)
		}
	}
	if b := at("b"); b.Rule == a.Rule || b.Handler == a.Handler || b.Revision == a.Revision {
		t.Errorf("b has %+v, a has %+v", b, a)
	}
}

// The iterator of a dynamic block can hide another one. The values that its content has outside the block say nothing then.
func TestElementsDoNotShareWhatDependsOnAnInnerLoop(t *testing.T) {
	c := parseGood(t, `
target "web" {
  for_each = toset(["a", "b"])
  address  = "10.0.0.1"
  dynamic "probe" {
    for_each = [false]
    iterator = is
    labels   = ["readiness"]
    content {
      dynamic "tcp" {
        for_each = [true]
        iterator = is
        content {
          port = is.value && each.key == "a" ? 1 : 2
        }
      }
    }
  }
}
`, Options{})
	a, b := c.Set[probe.ID{Target: `web["a"]`, Kind: probe.Readiness}], c.Set[probe.ID{Target: `web["b"]`, Kind: probe.Readiness}]
	if a.Handler == nil || b.Handler == nil || a.Revision == b.Revision {
		t.Errorf("a has %+v, b has %+v", a, b)
	}
}

// What is wrong with an element is reported of each, whether it shares its values or not, and
// no value of an element decides about another.
func TestElementsThatDifferAreReportedEach(t *testing.T) {
	for more, want := range map[string]string{
		`timeout = each.key == "b" ? "0.5s" : "3s"`:                             `probe "readiness", with each.key = "a" (the first of 3 elements with this warning)`,
		`timeout = each.key == "b" ? "1s" : "x"`:                                `probe "readiness", with each.key = "a" (the first of 3 elements with this error)`,
		`failure_threshold = each.value.missing`:                                `probe "readiness", with each.key = "a" (the first of 4 elements with this error)`,
		`failure_threshold = { a = 1, c = 2, d = 3 }[each.key]`:                 `probe "readiness", with each.key = "b"` + "\n",
		`initial_delay = each.key == "b" ? sensitive("x") : "1s"`:               `probe "readiness", with each.key = "b"` + "\n",
		"dynamic \"tcp\" {\nfor_each = [each.value]\ncontent {\nport = 1\n}\n}": `(the first of 4 elements with this error)`,
		"": `http, with each.key = "d"` + "\n", // which has no address
	} {
		text := strings.Replace(differing, "#more", more, 1)
		_, diags := parse(t, text, Options{})
		if got := written(t, diags, false); strings.Count(got, want) != 1 {
			t.Errorf("%s: got\n%s\nwant %q", more, got, want)
		}
	}
}
