package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sonde-probe/sonde/config"
)

// DurationVar defines a flag with a duration in the format of configurations, which includes days: "14d".
func DurationVar(flags *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	flags.Var((*duration)(into), name, usage)
}

// duration is the value of a duration flag.
type duration time.Duration

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	parsed, ok := config.ParseDuration(text)
	if !ok {
		return fmt.Errorf("%.50q is not a duration: write a number with its unit, such as 30s, 5m, 1h or 2d", text)
	}
	*d = duration(parsed)
	return nil
}

// String implements pflag.Value. It returns "" for zero, so that the help shows no default.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }

// WordVar defines a flag whose value is one of several words. shorthand is its one-letter form, or "" for none.
func WordVar(flags *pflag.FlagSet, into *string, name, shorthand, value, usage string, words ...string) {
	*into = value
	flags.VarP(&word{into, words}, name, shorthand, usage)
}

// OutputVar defines the flag -o for the format of a command's output: text or json.
func OutputVar(flags *pflag.FlagSet, into *string) {
	WordVar(flags, into, "output", "o", "text", "`format`: text or json", "text", "json")
}

// word is the value of a word flag.
type word struct {
	to    *string
	words []string
}

// Set implements pflag.Value.
func (w *word) Set(text string) error {
	if !slices.Contains(w.words, text) {
		last := len(w.words) - 1
		return fmt.Errorf("use %s or %s", strings.Join(w.words[:last], ", "), w.words[last])
	}
	*w.to = text
	return nil
}

// String implements pflag.Value.
func (w *word) String() string { return *w.to }

// Type implements pflag.Value.
func (w *word) Type() string { return "string" }
