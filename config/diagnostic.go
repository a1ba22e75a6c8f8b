package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxDiagnostics bounds what Parse returns; one more diagnostic says how many were
// left out.
const maxDiagnostics = 50

// Diagnostic is one error or warning about a configuration.
type Diagnostic struct {
	IsWarning bool   // the configuration can be used, but is probably not what was meant
	Summary   string // what is wrong: `unknown argument "intervall"`
	Hint      string // what to write instead: `did you mean "period"?`; may be empty
	Where     string // the enclosing blocks: `target "web", probe "readiness"`; may be empty
	With      string // the element of for_each or dynamic that has it, and the number of others; may be empty
	Range     Range  // the text that is wrong; zero if that is not in a file
	Notes     []Note // related places

	source   sourceLine
	elements int    // how many have it: elements of for_each, or probes
	of       string // "elements" or "probes"
}

// word returns "error" or "warning".
func (d Diagnostic) word() string {
	if d.IsWarning {
		return "warning"
	}
	return "error"
}

// Note is a place that is related to a Diagnostic.
type Note struct {
	Text  string `json:"text"`
	Range Range  `json:"range"`

	source sourceLine
}

// Range is a part of a file.
type Range struct {
	File  string   `json:"filename"`
	Start Position `json:"start"`
	End   Position `json:"end"` // just after the last character
}

// Position is a position in a file.
type Position struct {
	Line   int `json:"line"`   // from 1; 0 if the position is unknown
	Column int `json:"column"` // from 1, in characters (grapheme clusters)
	Byte   int `json:"byte"`   // from 0
}

// String returns where the range starts, as file:line:column, such as
// "config.hcl:12:5".
func (r Range) String() string {
	if r.Start.Line == 0 {
		return r.File
	}
	return fmt.Sprintf("%s:%d:%d", r.File, r.Start.Line, r.Start.Column)
}

// Diagnostics are all errors and warnings about a configuration, sorted by file and
// position.
type Diagnostics []Diagnostic

// HasErrors reports whether the configuration cannot be used.
func (d Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(d, func(one Diagnostic) bool { return !one.IsWarning })
}

// Count returns the number of errors and warnings.
func (d Diagnostics) Count() (errors, warnings int) {
	for _, one := range d {
		if !one.IsWarning {
			errors++
		} else {
			warnings++
		}
	}
	return errors, warnings
}

// privateSummary is what is said of a diagnostic in a private file.
const privateSummary = "the engine's own files or variables have this %s; its log has the text"

// WithoutTexts returns the diagnostics with nothing but places, and which are warnings, of those that are in private files, for
// readers who need not be able to read these: a summary, too, may quote a file. The name is "" for what is in no file,
// such as an error in a variable of the environment.
func (d Diagnostics) WithoutTexts(isPrivate func(file string) bool) Diagnostics {
	out := slices.Clone(d)
	for i, one := range d {
		if isPrivate(one.Range.File) {
			one = Diagnostic{IsWarning: one.IsWarning, Summary: fmt.Sprintf(privateSummary, one.word()), Range: one.Range, Notes: one.Notes}
		}
		one.Notes = slices.Clone(one.Notes)
		for j, note := range one.Notes {
			if isPrivate(note.Range.File) {
				one.Notes[j] = Note{Text: "this place is in the engine's own files", Range: note.Range}
			}
		}
		out[i] = one
	}
	return out
}

// Err returns the errors as one error with a line for each, or nil if there are only
// warnings.
func (d Diagnostics) Err() error {
	var lines []string
	for _, one := range d {
		if !one.IsWarning {
			lines = append(lines, one.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

// String returns the diagnostic on one line, as file:line:column: severity: message:
//
//	config.hcl:12:5: error: unknown argument "peroid"; did you mean "period"?
func (d Diagnostic) String() string {
	var s strings.Builder
	if d.Range.File != "" {
		s.WriteString(d.Range.String() + ": ")
	}
	s.WriteString(d.word() + ": " + d.Summary)
	if d.Hint != "" {
		s.WriteString("; " + strings.ReplaceAll(d.Hint, "\n", " "))
	}
	return s.String()
}

// maxEqual is up to how many diagnostics with equal texts are shown one by one.
const maxEqual = 10

// folded returns the diagnostics with one instead of each group of more than maxEqual
// that say the same about different places: the first, with a note about the rest.
func (d Diagnostics) folded() Diagnostics {
	type text struct {
		isWarning     bool
		summary, hint string
	}
	keyOf := func(one Diagnostic) text { return text{one.IsWarning, one.Summary, one.Hint} }
	count, last := map[text]int{}, map[text]Range{}
	for _, one := range d {
		count[keyOf(one)]++
		last[keyOf(one)] = one.Range
	}
	var out Diagnostics
	for _, one := range d {
		key := keyOf(one)
		n := count[key]
		if n > maxEqual {
			one.Notes = append(slices.Clip(one.Notes), Note{Text: fmt.Sprintf("%d more places have this %s, the last is here", n-1, one.word()), Range: last[key]})
			count[key] = 0 // the others are left out
		}
		if n > 0 {
			out = append(out, one)
		}
	}
	return out
}

// sorted returns the diagnostics by file and position: at most maxDiagnostics, errors
// before warnings, and one with the number of the rest, to which dropped is added.
func (d Diagnostics) sorted(dropped int) Diagnostics {
	slices.SortStableFunc(d, func(a, b Diagnostic) int {
		return cmp.Or(
			strings.Compare(a.Range.File, b.Range.File),
			cmp.Compare(a.Range.Start.Byte, b.Range.Start.Byte),
			cmp.Compare(a.Range.End.Byte, b.Range.End.Byte),
			strings.Compare(a.word(), b.word()),
			strings.Compare(a.Summary, b.Summary),
		)
	})
	d = d.folded()
	if len(d) <= maxDiagnostics {
		return d
	}
	errors, _ := d.Count()
	var kept, rest Diagnostics
	for _, one := range d {
		if len(kept) < maxDiagnostics && (!one.IsWarning || errors < maxDiagnostics) {
			kept = append(kept, one)
		} else {
			rest = append(rest, one)
		}
	}
	return append(kept, Diagnostic{IsWarning: !rest.HasErrors(), Summary: fmt.Sprintf("… and %d more", len(rest)+dropped)})
}
