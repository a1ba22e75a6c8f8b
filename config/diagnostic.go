package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxDiagnostics bounds what Parse returns; one more says how many there were
// beside them.
const MaxDiagnostics = 50

// Severity says whether a configuration with a diagnostic can be used.
type Severity uint8

// The severities. The zero Severity is Error.
const (
	Error   Severity = iota // it cannot
	Warning                 // it can, but it is probably not what is meant
)

// String returns "error" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Diagnostic is one mistake in a configuration.
type Diagnostic struct {
	Severity Severity
	Summary  string // what is wrong: `unknown argument "intervall"`
	Hint     string // what to write instead: `did you mean "period"?`; may be empty
	Where    string // the blocks around it: `target "web", probe "readiness"`; may be empty
	With     string // the element of for_each or dynamic it was found for, and how many more; may be empty
	Range    Range  // the text at fault; zero when it is not in a file
	Notes    []Note // other sources that have to do with it

	source   line
	elements int // how many elements of for_each it was found for
}

// Note is another place that has to do with a Diagnostic.
type Note struct {
	Text  string
	Range Range

	source line
}

// Range is a part of a file.
type Range struct {
	File       string
	Start, End Position // End is just after the last character
}

// Position is a place in a file.
type Position struct {
	Line   int // from 1; 0 when there is no such place
	Column int // from 1, in characters as a person counts them
	Byte   int // from 0
}

// String returns "config.hcl:12:5".
func (r Range) String() string {
	if r.Start.Line == 0 {
		return r.File
	}
	return fmt.Sprintf("%s:%d:%d", r.File, r.Start.Line, r.Start.Column)
}

// Diagnostics are all mistakes in a configuration, sorted by file and position.
type Diagnostics []Diagnostic

// HasErrors reports whether the configuration cannot be used.
func (d Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(d, func(one Diagnostic) bool { return one.Severity == Error })
}

// Count returns how many errors and warnings there are.
func (d Diagnostics) Count() (errors, warnings int) {
	for _, one := range d {
		if one.Severity == Error {
			errors++
		} else {
			warnings++
		}
	}
	return errors, warnings
}

// Err returns the errors as one error, a line for each, or nil when there are
// only warnings.
func (d Diagnostics) Err() error {
	var lines []string
	for _, one := range d {
		if one.Severity == Error {
			lines = append(lines, one.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

// String returns the diagnostic in one line, as compilers write it:
// `config.hcl:12:5: error: unknown argument "intervall"; did you mean "period"?`
func (d Diagnostic) String() string {
	var s strings.Builder
	if d.Range.File != "" {
		s.WriteString(d.Range.String() + ": ")
	}
	s.WriteString(d.Severity.String() + ": " + d.Summary)
	if d.Hint != "" {
		s.WriteString("; " + strings.ReplaceAll(d.Hint, "\n", " "))
	}
	return s.String()
}

// sorted returns the diagnostics in the order in which they are shown, at most
// MaxDiagnostics and one that counts the rest. Beyond is how many were not kept.
func (d Diagnostics) sorted(beyond int) Diagnostics {
	slices.SortStableFunc(d, func(a, b Diagnostic) int {
		return cmp.Or(
			strings.Compare(a.Range.File, b.Range.File),
			cmp.Compare(a.Range.Start.Byte, b.Range.Start.Byte),
			cmp.Compare(a.Range.End.Byte, b.Range.End.Byte),
			cmp.Compare(a.Severity, b.Severity),
			strings.Compare(a.Summary, b.Summary),
		)
	})
	if len(d) <= MaxDiagnostics {
		return d
	}
	return d.capped(beyond)
}

// capped drops what is too much: warnings before errors.
func (d Diagnostics) capped(beyond int) Diagnostics {
	errors, _ := d.Count()
	var kept, rest Diagnostics
	for _, one := range d {
		if len(kept) < MaxDiagnostics && (one.Severity == Error || errors < MaxDiagnostics) {
			kept = append(kept, one)
		} else {
			rest = append(rest, one)
		}
	}
	more := Diagnostic{Severity: Warning, Summary: fmt.Sprintf("… and %d more", len(rest)+beyond)}
	if rest.HasErrors() {
		more.Severity = Error
	}
	return append(kept, more)
}
