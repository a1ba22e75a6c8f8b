package command

import (
	"strings"
	"testing"
)

func TestExpandFollowsKubernetes(t *testing.T) {
	env := map[string]string{"A": "1", "B": "$(A)", "EMPTY": "", "with space": "x"}
	for in, want := range map[string]string{
		"":                 "",
		"plain":            "plain",
		"$(A)":             "1",
		"a$(A)b$(A)c":      "a1b1c",
		"$$(A)":            "$(A)",
		"$$$(A)":           "$1",
		"$$$$(A)":          "$$(A)",
		"$(MISSING)":       "$(MISSING)",
		"$(B)":             "$(A)",
		"[$(EMPTY)]":       "[]",
		"$(with space)":    "x",
		"$":                "$",
		"$$":               "$",
		"$A ${A}":          "$A ${A}",
		"$(A":              "$(A",
		"$()":              "$()",
		"$($(A))":          "$($(A))",
		"é$(A)é$é":         "é1é$é",
		"cost: 5$":         "cost: 5$",
		"$(A)$(MISSING)$$": "1$(MISSING)$",
	} {
		if got := Expand(in, env); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzExpandKeepsTextWithoutADollar(f *testing.F) {
	f.Add("plain", "A")
	f.Add("$(A)", "A")
	f.Fuzz(func(t *testing.T, word, name string) {
		got := Expand(word, map[string]string{name: word})
		if !strings.Contains(word, "$") && got != word {
			t.Errorf("Expand(%q) = %q", word, got)
		}
	})
}

func TestExpandUndoesEscape(t *testing.T) {
	env := map[string]string{"A": "1", "a $(A": "2"}
	known := func(name string) bool { _, ok := env[name]; return ok }
	all := func(string) bool { return true }
	for _, word := range []string{"", "x", "$", "$$", "$$$", "$(A)", "$$(A)", "$$$(A)", "$(B)", "$(A", "$(", "$()", "$(a $(A))", "$(b $(A))", "$(date) $(A)$", "${A} $A"} {
		for _, escaped := range []string{Escape(word, known), Escape(word, all)} {
			if got := Expand(escaped, env); got != word {
				t.Errorf("%s is escaped as %s, which expands to %s", word, escaped, got)
			}
		}
	}
	if got := Escape("$(date) $A", known); got != "$(date) $A" {
		t.Errorf("a word that needs no escape becomes %s", got)
	}
}

func FuzzExpandUndoesEscape(f *testing.F) {
	f.Add("$(a $(A)$$(B)$", "A")
	f.Fuzz(func(t *testing.T, word, name string) {
		env := map[string]string{name: "value", "A": "1"}
		known := func(name string) bool { _, ok := env[name]; return ok }
		all := func(string) bool { return true }
		for _, escaped := range []string{Escape(word, known), Escape(word, all)} {
			if got := Expand(escaped, env); got != word {
				t.Errorf("%q is escaped as %q, which expands to %q", word, escaped, got)
			}
		}
	})
}
