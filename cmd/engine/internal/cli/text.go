package cli

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// OneLine makes text of unknown origin fit for one line of a terminal: without
// control characters and line breaks, and at most so many bytes long.
func OneLine(s string, limit int) string {
	return strings.Join(strings.Fields(probe.CleanText(s, limit)), " ")
}

// Round drops digits of a duration that are not worth reading.
func Round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(100 * time.Microsecond)
}

// DidYouMean returns the end of a message about an unknown name: a suggestion, or the
// known names if they are few, or nothing.
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
