// Package suggest finds the name that a misspelt one was meant to be, for error
// messages: "did you mean …?"
//
//	suggest.go     the nearest of the known names, or a list of them
//	tools.go       what names of Kubernetes and other tools are called here
package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// maxListed is the largest number of names that Known lists.
const maxListed = 12

// Hint returns `did you mean "period"?` if one of the known names is near to the
// wrong one, else a list of the known names, or "" if they are too many to list.
func Hint(wrong string, known []string) string {
	return cmp.Or(DidYouMean("%q", wrong, known), Known(known))
}

// DidYouMean returns "did you mean local.name?", with the nearest of the known names in a
// format such as "local.%s", or nothing if none is near.
func DidYouMean(format, wrong string, known []string) string {
	near := Nearest(wrong, known)
	if near == "" {
		return ""
	}
	return "did you mean " + fmt.Sprintf(format, near) + "?"
}

// Nearest returns the known name with the smallest edit distance to a wrong one,
// or "" if none is near. Upper and lower case, and - and _, count as equal.
func Nearest(wrong string, known []string) string {
	best, limit := "", 1+min(3, (len(wrong)+1)/3)
	for _, name := range known {
		d := distance(fold(wrong), fold(name))
		if d < limit && name != wrong {
			best, limit = name, d
		}
	}
	return best
}

// distance returns the number of characters to insert, delete or replace; two
// transposed neighbours count as one.
func distance(a, b string) int {
	if transposed(a, b) {
		return 1
	}
	return levenshtein.Distance(a, b, nil)
}

// transposed reports whether two texts differ only in the order of two neighbours.
func transposed(a, b string) bool {
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

// Known returns "known here: " and the names in alphabetical order, or "" if there
// are none, or more than 12.
func Known(names []string) string {
	if len(names) == 0 || len(names) > maxListed {
		return ""
	}
	return "known here: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
}
