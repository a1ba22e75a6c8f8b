package main

import (
	"fmt"
	"strings"
)

// maxListed bounds the names that a message lists.
const maxListed = 8

// didYouMean returns the end of a message about an unknown name: the known name
// that is most like it, or all of them when they are few.
func didYouMean(name string, known []string) string {
	best, least := "", max(len(name)/3, 2)+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(known) > 0 && len(known) <= maxListed:
		return ", only " + strings.Join(known, ", ")
	}
	return ""
}

// distance is Levenshtein's: how many characters to add, drop or change to turn a
// into b.
func distance(a, b string) int {
	to := []rune(b)
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range []rune(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range to {
			changed := diagonal
			if r != s {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(to)]
}
