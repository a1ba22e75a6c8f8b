package handlers

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/config"
)

func TestBeatBlocksAreChecked(t *testing.T) {
	const beat = `beat { 
		every = "1m" 
		token = sensitive("correct-horse-battery") 
	}`
	target := func(probes ...string) string { return `target "job" { ` + "\n" + strings.Join(probes, "\n") + "\n}\n" }
	liveness, readiness := "probe \"readiness\" \"b\" {\n"+beat+"\n", "probe \"readiness\" \"a\" {\n"+beat+"\n"
	for want, text := range map[string]string{
		"": target(liveness+"}", readiness+"}"),
		"token differs from that of another beat block of the target":                         target(liveness+"}", strings.Replace(readiness, "horse", "house", 1)+"}"),
		"warn_after has no effect on a beat":                                                  target(readiness + "warn_after = \"10ms\"\n}"),
		"policy must be runs for a beat":                                                      target(readiness + "policy = \"evidence\"\n}"),
		"every is 10ms; it must be from 1s to 366d":                                           target(strings.Replace(readiness, "1m", "10ms", 1) + "}"),
		"token has 5 bytes":                                                                   target(strings.Replace(readiness, "correct-horse-battery", "short", 1) + "}"),
		"grace must be greater than 0":                                                        target(strings.Replace(readiness, "every", "grace = \"0s\"\nevery", 1) + "}"),
		"listen must be an address and a port number":                                         "engine {\n beats { listen = \"9651\" } \n}\n" + target(readiness+"}"),
		"beats lacks the required argument \"listen\"":                                        "engine {\n beats { } \n}\n" + target(readiness+"}"),
		"beat cannot be used in a probe module: it has no argument port, so that it does not": target(readiness+"}") + "probe_module \"beats\" {\n" + beat + "\n}",
	} {
		_, diags := config.Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(text)}}, Options())
		var found strings.Builder
		_ = diags.WriteText(&found, false) // a Builder returns no error
		if diags.HasErrors() != (want != "") || !strings.Contains(found.String(), want) {
			t.Errorf("it says %q, want %q", found.String(), want)
		}
		for _, secret := range []string{"horse-battery", "house-battery"} {
			if text := strings.ReplaceAll(found.String(), `sensitive("`+secret, ""); strings.Contains(text, secret) && !strings.Contains(text, "token = sensitive") {
				t.Errorf("it shows a token: %s", found.String())
			}
		}
	}
	if _, diags := config.Parse([]config.Source{{Name: "c.hcl", Bytes: []byte("defaults {\n policy = \"evidence\"\n warn_after = \"1ms\"\n}\n" + target(readiness+"}"))}}, Options()); diags.HasErrors() {
		t.Errorf("defaults for other handlers are errors: %v", diags)
	}
}
