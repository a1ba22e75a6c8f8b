package tree

import "testing"

func TestTheNearestNameIsTheOneThatIsMeant(t *testing.T) {
	known := []string{"period", "timeout", "initial_delay", "tls", "command"}
	for wrong, want := range map[string]string{
		"perod":         "period",
		"timeot":        "timeout",
		"initial-delay": "initial_delay",
		"InitialDelay":  "initial_delay",
		"TLS":           "tls",
		"tsl":           "tls", // two letters that have changed places
		"tlsl":          "tls",
		"slt":           "",
		"tl":            "tls",
		"x":             "",
		"":              "",
		"something":     "",
		"period":        "", // it is not wrong
	} {
		if got := Nearest(wrong, known); got != want {
			t.Errorf("Nearest(%q) is %q, not %q", wrong, got, want)
		}
	}
}

func TestFewNamesAreListedAndManyAreNot(t *testing.T) {
	if got := Known([]string{"b", "a"}); got != "known here: a, b" {
		t.Errorf("two names are listed as %q", got)
	}
	if got := Known(make([]string, maxListed+1)); got != "" {
		t.Errorf("many names are listed as %q", got)
	}
}
