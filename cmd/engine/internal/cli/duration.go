package cli

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/sonde-probe/sonde/config"
)

// DurationVar defines a flag with a duration as configurations have it: also "14d".
func DurationVar(flags *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	flags.Var((*duration)(into), name, usage)
}

// duration is the value of a flag.
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

// String implements pflag.Value.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }
