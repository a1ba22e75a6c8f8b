package handlers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/restart/container"
)

// found returns containers by name, with labels separated by line breaks, and with a port unless it is 0.
func found(port uint16, labels map[string]string) discover.Elements {
	all := discover.Elements{}
	for name, lines := range labels {
		e := discover.Element{Port: port, Meta: map[string]string{"sonde.enable": "true"}}
		for line := range strings.Lines(lines) {
			label, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			e.Meta[label] = value
		}
		all[name] = e
	}
	return all
}

const byLabels = `
discover "docker" {
  match = { "sonde.enable" = "true" }
  host  = "unix:///run/x.sock"
}
target "taken" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 1 }
  }
}
`

func parseFound(t *testing.T, text string, e discover.Elements, describe bool) *config.Config {
	t.Helper()
	o := Options()
	o.Describe = describe
	o.Discovered = func(config.Discovery) discover.Elements { return e }
	c, diags := config.Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(text)}}, o)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLabelsOfAContainerAreItsProbes(t *testing.T) {
	for _, describe := range []bool{false, true} {
		c := parseFound(t, byLabels, found(8080, map[string]string{
			"web": "sonde.group=front\nsonde.label.team=shop\nsonde.readiness.http=/healthz\nsonde.readiness.period=5s\nsonde.readiness.failure_threshold=2\nsonde.liveness.tcp=5432\nsonde.startup.exec=[\"cat\", \"/tmp/up\"]",
			"db":  "sonde.liveness.exec=test -e /tmp/healthy && true\nsonde.readiness.tcp=",
		}), describe)
		var got []string
		for id, p := range c.Set {
			if id.Target != "taken" {
				got = append(got, fmt.Sprintf("%s %s %s %v %d %s %s", id, p.HandlerName, p.Settings, p.Rule.Period, p.Rule.FailureThreshold, p.Target.Runtime, p.Target.Labels["team"]+p.Target.Labels["group"]))
			}
		}
		slices.Sort(got)
		t.Log(strings.Join(got, "\n"))
		for i, want := range []string{
			"db:liveness exec", "db:readiness tcp", "web:liveness tcp", "web:readiness http", "web:startup exec",
		} {
			if len(got) != 5 || !strings.HasPrefix(got[i], want) {
				t.Fatalf("got %q, want %s", got, want)
			}
		}
		driver, isContainer := c.Targets["web"].Driver.(container.Config)
		if !isContainer || driver.Name != "web" || driver.Host != "unix:///run/x.sock" {
			t.Errorf("driver: %+v", c.Targets["web"].Driver)
		}
		if !strings.Contains(got[3], " 5s 2 unix:///run/x.sock shopfront") {
			t.Errorf("readiness of web: %s", got[3])
		}
		if c.Discoveries[0].LeftOut != nil {
			t.Error(c.Discoveries[0].LeftOut)
		}
	}
}

// A warning names the container and the wrong label; other containers are not affected.
func TestAContainerWithWrongLabelsIsLeftOut(t *testing.T) {
	for labels, want := range map[string]string{
		"":                          "container bad: no label configures a probe",
		"sonde.readiness.period=5s": "container bad: its labels sonde.readiness.* have 0 handlers",
		"sonde.readines.tcp=1":      `container bad, label sonde.readines.tcp: unknown kind of probe "readines" (did you mean "readiness"?)`,
		"sonde.liveness.http=/\nsonde.liveness.port=1\nsonde.liveness.scheme=ftp": "container bad, label sonde.liveness.scheme: invalid scheme ",
		"sonde.liveness.tcp=99999":                                                   "container bad, label sonde.liveness.tcp: port ",
		"sonde.liveness.exec=":                                                       `container bad: label sonde.liveness.exec: "" is no command`,
		"sonde.liveness.exec=[1]":                                                    `container bad: label sonde.liveness.exec: "[1]" is no command`,
		"sonde.liveness.http=/":                                                      "container bad: label sonde.liveness.http has no port",
		"sonde.readines":                                                             "container bad: label sonde.readines is unknown",
		"sonde.read\x1b[31m.http=/":                                                  "container bad: label \"sonde.read\\x1b[31m.http\" has a name with other characters",
		"sonde.enable=x\nsonde.enable":                                               "container bad: no label configures",
		"sonde.liveness.tcp=80\nsonde.liveness.http=/":                               "container bad: its labels sonde.liveness.* have 2 handlers",
		"sonde.liveness.tcp=80\nsonde.liveness.peroid=5s":                            `container bad, label sonde.liveness.peroid: unknown argument "peroid" (did you mean "period"?`,
		"sonde.liveness.tcp=80\nsonde.liveness.period=5":                             "container bad, label sonde.liveness.period: period ",
		"sonde.liveness.tcp=80\nsonde.liveness.success_threshold=2":                  "container bad, label sonde.liveness.success_threshold: ",
		"sonde.liveness.http=/\nsonde.liveness.port=1\nsonde.liveness.host=10.0.0.9": `container bad, label sonde.liveness.host: unknown argument "host"`,
		"sonde.liveness.http=/\nsonde.liveness.port=1\nsonde.liveness.unix_socket=/run/docker.sock": `label sonde.liveness.unix_socket: unknown argument "unix_socket" (a label cannot set it)`,
		"sonde.liveness.exec=true\nsonde.liveness.on_host=true":                                     `label sonde.liveness.on_host: unknown argument "on_host"`,
		"sonde.liveness.http=/\nsonde.liveness.port=1\nsonde.liveness.proxy=http://10.0.0.9:3128":   `label sonde.liveness.proxy: unknown argument "proxy"`,
		"sonde.liveness.http=/\nsonde.liveness.port=1\nsonde.liveness.redirects=all":                `label sonde.liveness.redirects: unknown argument "redirects"`,
		"sonde.liveness.tcp=80\nsonde.label.x!=1":                                                   "container bad: label \"sonde.label.x!\" has a name with other",
		"sonde.liveness.tcp=80\nsonde.group=" + strings.Repeat("x", 5000):                           "container bad: ",
		"sonde.liveness.tcp=http": "container bad, label sonde.liveness.tcp: ",
	} {
		c := parseFound(t, byLabels, found(0, map[string]string{"good": "sonde.liveness.tcp=80", "bad": labels}), false)
		left := c.Discoveries[0].LeftOut
		if left == nil || left.N != 1 || !strings.Contains(left.First, want) {
			t.Errorf("%q gives %v, want %s", labels, left, want)
		} else {
			t.Log(left.First)
		}
		if got := slices.Sorted(maps.Keys(c.Targets)); !slices.Equal(got, []string{"good", "taken"}) {
			t.Errorf("%q gives the targets %v", labels, got)
		}
	}
	c := parseFound(t, byLabels, found(80, map[string]string{"taken": "sonde.liveness.tcp=80"}), false)
	if left := c.Discoveries[0].LeftOut; left == nil || !strings.Contains(left.First, "container taken: there is a target of this name already") {
		t.Errorf("got %v", left)
	}
}

// Labels are untrusted: whatever their content, the configuration stays valid, and each container becomes a target of its own
// name or is left out.
func FuzzLabelsOfContainers(f *testing.F) {
	for _, seed := range []string{"sonde.liveness.http=/\nsonde.liveness.port=80", "sonde.liveness.exec=[\"a\"", "sonde.label.a=${b}\nsonde.x.tcp=%{if}", "sonde.\x00.tcp=1", "sonde..=\nsonde.liveness.=1"} {
		f.Add("web", seed)
	}
	f.Fuzz(func(t *testing.T, name, labels string) {
		c := parseFound(t, byLabels, found(0, map[string]string{name: labels}), false)
		left := c.Discoveries[0].LeftOut
		for target := range c.Targets {
			if target != "taken" && (target != name || left != nil) {
				t.Errorf("%q %q gives the target %q, %v", name, labels, target, left)
			}
		}
		for id, p := range c.Set {
			if id.Target != "taken" && (p.Target.Address != "" || p.Target.Runtime == "") {
				t.Errorf("%s reaches %q: %s", id, p.Target.Address, p.Settings)
			}
		}
	})
}
