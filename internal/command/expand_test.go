package command

import (
	"strings"
	"testing"
)

func TestExpandDoesWhatKubernetesDoes(t *testing.T) {
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

func FuzzExpandOfTextWithoutADollarIsTheText(f *testing.F) {
	f.Add("plain", "A")
	f.Add("$(A)", "A")
	f.Fuzz(func(t *testing.T, word, name string) {
		got := Expand(word, map[string]string{name: word})
		if !strings.Contains(word, "$") && got != word {
			t.Errorf("Expand(%q) = %q", word, got)
		}
	})
}
