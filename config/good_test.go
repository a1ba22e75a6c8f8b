package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/golden"
)

func testEnv(name string) (string, bool) {
	return "/home/sonde", name == "SONDE_TEST_HOME"
}

func TestValidConfigurationsAreDecoded(t *testing.T) {
	for _, s := range configurations(t, "testdata/good/*") {
		t.Run(filepath.Base(s.Name), func(t *testing.T) {
			o := testOptions()
			o.Env = testEnv
			c, diags := Parse([]Source{s}, o)
			var text bytes.Buffer
			if err := diags.WriteText(&text, false); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, s.Name+".golden", text.String()+dump(t, c), *rewrite)
		})
	}
}

// dump writes a Config as text that can be compared with its HCL.
func dump(t *testing.T, c *Config) string {
	var s strings.Builder
	fmt.Fprintf(&s, "engine %s\n", asJSON(t, c.Engine))
	for _, name := range names(c.Plugins) {
		fmt.Fprintf(&s, "\nplugin %s\n", asJSON(t, c.Plugins[name]))
	}
	for _, name := range names(c.Groups) {
		fmt.Fprintf(&s, "\ngroup %s %+v\n", name, c.Groups[name])
	}
	for _, name := range names(c.Gateways) {
		fmt.Fprintf(&s, "\ngateway %s %+v\n", name, c.Gateways[name])
	}
	for _, name := range names(c.Notifiers) {
		n := c.Notifiers[name]
		fmt.Fprintf(&s, "\nnotify %s targets %+v, groups %q, from %v on, labels %v, at %q, by %s %+v\n", name, n.Targets, n.Groups, n.Severity, n.Labels, n.ExternalURL, n.Output, n.Settings)
	}
	for _, name := range names(c.Maintenances) {
		fmt.Fprintf(&s, "\nmaintenance %s %+v\n", name, c.Maintenances[name])
	}
	for _, name := range names(c.Targets) {
		fmt.Fprintf(&s, "\ntarget %s %s\n", name, asJSON(t, c.Targets[name]))
		for _, id := range sortedIDs(c.Set) {
			if id.Target == name {
				p := c.Set[id]
				fmt.Fprintf(&s, "  %s\n    rule    %+v\n    target  %s\n    %-7s %s\n", id, p.Rule, asJSON(t, p.Target), p.HandlerName, asJSON(t, p.Handler.(*fake).config))
			}
		}
	}
	return s.String()
}

func sortedIDs(set probe.Set) []probe.ID {
	ids := make([]probe.ID, 0, len(set))
	for id := range set {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, probe.ID.Compare)
	return ids
}

func asJSON(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`"Labels":null,`, "", `"MetricLabels":null,`, "").Replace(string(b))
}
