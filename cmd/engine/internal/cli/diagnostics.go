package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
)

// ShowDiagnostics writes diagnostics and their number to a command's standard error. If there are errors, it returns an error
// with the exit code.
func ShowDiagnostics(c *cobra.Command, diags config.Diagnostics, code int) error {
	if len(diags) == 0 {
		return nil
	}
	w := c.ErrOrStderr()
	if err := diags.WriteText(w, ScreenOf(w).Color); err != nil {
		return err
	}
	errs, warnings := diags.Count()
	var count []string // "2 errors, 1 warning"
	if errs > 0 {
		count = append(count, Plural(errs, "error"))
	}
	if warnings > 0 {
		count = append(count, Plural(warnings, "warning"))
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", strings.Join(count, ", ")); err != nil || errs == 0 {
		return err
	}
	return ErrReported(code)
}

// Plural returns "1 probe" or "2 probes".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// maxNames is the maximum number of names that SomeNames returns.
const maxNames = 3

// SomeNames returns the first of several names: "a, b, c and 7 more".
func SomeNames(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
