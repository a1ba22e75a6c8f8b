package config

import (
	"encoding/json"
	"io"
)

// The format is that of `terraform validate -json`, which editors and CI systems
// understand. Fields that Terraform does not have come last.
type (
	jsonReport struct {
		FormatVersion string           `json:"format_version"`
		Valid         bool             `json:"valid"`
		ErrorCount    int              `json:"error_count"`
		WarningCount  int              `json:"warning_count"`
		Diagnostics   []jsonDiagnostic `json:"diagnostics"`
	}
	jsonDiagnostic struct {
		Severity string       `json:"severity"`
		Summary  string       `json:"summary"`
		Detail   string       `json:"detail"`
		Range    *Range       `json:"range,omitempty"`
		Snippet  *jsonSnippet `json:"snippet,omitempty"`
		With     string       `json:"with,omitempty"`
		Notes    []Note       `json:"notes,omitempty"`
	}
	jsonSnippet struct {
		Context        *string    `json:"context"`
		Code           string     `json:"code"`
		StartLine      int        `json:"start_line"`
		HighlightStart int        `json:"highlight_start_offset"`
		HighlightEnd   int        `json:"highlight_end_offset"`
		Values         []struct{} `json:"values"` // always empty: a value might be secret
	}
)

// WriteJSON writes the diagnostics as one JSON object, in the format of
// `terraform validate -json`.
func (d Diagnostics) WriteJSON(w io.Writer) error {
	errors, warnings := d.Count()
	out := jsonReport{FormatVersion: "1.0", Valid: errors == 0, ErrorCount: errors, WarningCount: warnings, Diagnostics: []jsonDiagnostic{}}
	for _, one := range d {
		out.Diagnostics = append(out.Diagnostics, one.json())
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func (d Diagnostic) json() jsonDiagnostic {
	out := jsonDiagnostic{Severity: d.word(), Summary: d.Summary, Detail: d.Hint, With: d.With, Notes: d.Notes}
	if d.Range.File == "" || d.Range.Start.Line == 0 {
		return out
	}
	out.Range = &d.Range
	from, to := d.source.cut(d.Range)
	out.Snippet = &jsonSnippet{
		Code: d.source.text, StartLine: d.Range.Start.Line,
		HighlightStart: from, HighlightEnd: to, Values: []struct{}{},
	}
	if d.Where != "" {
		out.Snippet.Context = &d.Where
	}
	return out
}
