//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// median returns the median; for an even number of figures, the lower one.
func median[T cmp.Ordered](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)/2]
}

func writeJSON(w io.Writer, lines []line) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(lines)
}

// writeTable prints each measurement with its goal, and their ratio: the goal is missed above 1.00.
func writeTable(w io.Writer, lines []line) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "what\tgoal\tmeasured\tof goal\tnote\n")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.What, l.goal(), l.measured(), l.part(), l.note())
	}
	return t.Flush()
}

func (l line) goal() string {
	switch {
	case l.Zero:
		return "0"
	case l.Goal == 0:
		return "-"
	}
	if l.AtLeast {
		return "≥ " + figure(l.Goal, l.Unit)
	}
	return "≤ " + figure(l.Goal, l.Unit)
}

func (l line) measured() string {
	if l.Missing != "" {
		return "-"
	}
	return figure(l.Measured, l.Unit)
}

func (l line) part() string {
	switch {
	case l.Missing != "":
		return "-"
	case l.Zero && l.Measured == 0:
		return "met"
	case l.Zero:
		return "missed"
	case l.Goal == 0:
		return "-"
	}
	ratio := l.Measured / l.Goal
	if l.AtLeast {
		ratio = l.Goal / l.Measured
	}
	text := strconv.FormatFloat(ratio, 'f', 2, 64)
	if ratio > 1 {
		text += " missed"
	}
	return text
}

// note adds the range of the rounds to a line's note.
func (l line) note() string {
	if l.Missing != "" {
		return "not measured: " + strings.Join(strings.Fields(l.Missing), " ")
	}
	if len(l.Rounds) < 2 {
		return l.Note
	}
	apart := fmt.Sprintf("%s to %s in %d rounds", figure(slices.Min(l.Rounds), ""), figure(slices.Max(l.Rounds), l.Unit), len(l.Rounds))
	if l.Note == "" {
		return apart
	}
	return l.Note + "; " + apart
}

// figure formats a number with its unit, with about three digits.
func figure(v float64, unit string) string {
	digits := 2
	switch {
	case v >= 100 || v == float64(int(v)):
		digits = 0
	case v >= 10:
		digits = 1
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if unit == "" || unit == "×" {
		return text + unit
	}
	return text + " " + unit
}
