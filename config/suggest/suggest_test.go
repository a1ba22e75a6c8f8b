package suggest

import "testing"

func TestTheNearestNameIsSuggested(t *testing.T) {
	known := []string{"period", "timeout", "initial_delay", "tls", "command"}
	for wrong, want := range map[string]string{
		"perod":         "period",
		"timeot":        "timeout",
		"initial-delay": "initial_delay",
		"InitialDelay":  "initial_delay",
		"TLS":           "tls",
		"tsl":           "tls", // transposed letters
		"tlsl":          "tls",
		"slt":           "",
		"tl":            "tls",
		"x":             "",
		"":              "",
		"something":     "",
		"period":        "", // it is correct
	} {
		if got := Nearest(wrong, known); got != want {
			t.Errorf("Nearest(%q) is %q, not %q", wrong, got, want)
		}
	}
}

func TestAHintIsOneNameOrAListOfFew(t *testing.T) {
	for wrong, want := range map[string]string{"timeot": `did you mean "timeout"?`, "x": "known here: period, timeout"} {
		if got := Hint(wrong, []string{"timeout", "period"}); got != want {
			t.Errorf("Hint(%q) is %q, not %q", wrong, got, want)
		}
	}
	if got := Known(make([]string, maxListed+1)); got != "" {
		t.Errorf("many names are listed as %q", got)
	}
}

func TestNamesOfOtherToolsAreAnsweredWithOurs(t *testing.T) {
	known := []string{"period", "http", "path", "probe"}
	for name, want := range map[string]string{
		"httpGet":        `did you mean "http"? Kubernetes' httpGet is written http { … } here`,
		"period_seconds": `did you mean "period"? Kubernetes' periodSeconds is written period = "10s" here`,
		"httpHeaders":    `Kubernetes' httpHeaders is written headers = { Host = "example.com" } here, in an http block`,
		"interval":       `did you mean "period"? Docker's interval is written period = "10s" here`,
		"url":            `did you mean "path"? url, as several tools call it, is written path = "/healthz" here`,
		"healthCheck":    `did you mean "probe"? Docker's healthCheck is written probe "readiness" { … } here`,
		"retries":        "", // failure_threshold is not known here
		"redis":          "",
	} {
		if got := FromTool(name, known); got != want {
			t.Errorf("FromTool(%q) is %q, not %q", name, got, want)
		}
	}
}
