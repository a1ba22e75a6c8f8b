package cli

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// OneLine returns untrusted text for one line of a terminal: without control characters
// and line breaks, and with at most limit bytes.
func OneLine(s string, limit int) string {
	return strings.Join(strings.Fields(probe.CleanText(s, limit)), " ")
}

// Round rounds a duration to microseconds below 1ms, else to tenths of a millisecond.
func Round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(100 * time.Microsecond)
}

// DidYouMean returns the end of an error message about an unknown name: "; " and a
// suggestion, or the known names, or "" if there are too many of them.
func DidYouMean(name string, known []string) string {
	if hint := suggest.Hint(name, known); hint != "" {
		return "; " + hint
	}
	return ""
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
