package tree

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// maxListed is how many known names a hint lists.
const maxListed = 12

// Nearest returns the name that is so near to a wrong one that it is most
// likely meant, or "". Names that differ in case, or in - and _, are near.
func Nearest(wrong string, names []string) string {
	best, least := "", 1+min(3, (len(wrong)+1)/3)
	for _, name := range names {
		d := distance(fold(wrong), fold(name))
		if d < least && name != wrong {
			best, least = name, d
		}
	}
	return best
}

// distance is how many characters to add, drop or change, where two that have changed
// places are one.
func distance(a, b string) int {
	if swapped(a, b) {
		return 1
	}
	return levenshtein.Distance(a, b, nil)
}

// swapped reports whether two texts are the same but for two neighbours.
func swapped(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) - 1 {
		if a[i] != b[i] {
			return a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
		}
	}
	return false
}

func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }

// Known says which names there are, when there are few enough to read.
func Known(names []string) string {
	if len(names) == 0 || len(names) > maxListed {
		return ""
	}
	return "known here: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

func known(first, second []string) string {
	if s := Known(first); s != "" {
		return s
	}
	return Known(second)
}
