package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config/suggest"
)

// Round rounds a duration below 1ms to microseconds, any other to tenths of a millisecond.
func Round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(100 * time.Microsecond)
}

// DidYouMean returns the end of an error message about an unknown name: "; " and a suggestion or the known names. It returns ""
// if there are too many known names.
func DidYouMean(name string, known []string) string {
	if hint := suggest.Hint(name, known); hint != "" {
		return "; " + hint
	}
	return ""
}

// MakeGroup turns c into a command with only subcommands. Without a subcommand it shows its help; an unknown one is an error.
func MakeGroup(c *cobra.Command) {
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var known []string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				known = append(known, sub.Name())
			}
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), DidYouMean(args[0], known))
	}
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
