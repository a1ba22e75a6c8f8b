package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// validateCommand is sonde validate. Its exit code is 0 for a configuration that
// can be used, and 1 for any other.
func validateCommand() *cobra.Command {
	var in inputs
	var asJSON bool
	c := &cobra.Command{
		Use:   "validate [CONFIG...]",
		Short: "Check a configuration and start nothing",
		Long: "Validate checks files, or directories of *.hcl and *.hcl.json files; default " + defaultConfig + ".\n" +
			"It shows every mistake, and exits with 1 when there is one. Warnings are no mistakes.\n\n" +
			"A plugin's settings are checked by its manifest, and by the plugin itself where it does so, which\n" +
			"can reach nothing meanwhile.",
		Example: "  sonde validate --var env=prod /etc/sonde",
		RunE: func(c *cobra.Command, paths []string) error {
			if asJSON {
				return validateJSON(c, &in, paths)
			}
			return validate(c, &in, paths)
		},
	}
	in.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "write the diagnostics as JSON to standard output")
	return c
}

func validate(c *cobra.Command, in *inputs, paths []string) error {
	loaded, err := in.loadOrTell(c, paths, newPlugins(c.Context(), waitToCheck, silent), exitFailed)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: valid, %s, %s\n",
		strings.Join(orDefault(paths), ", "), count(len(loaded.Targets), "target"), count(len(loaded.Set), "probe"))
	return err
}

func validateJSON(c *cobra.Command, in *inputs, paths []string) error {
	_, diags := in.load(paths, newPlugins(c.Context(), waitToCheck, silent))
	if err := diags.WriteJSON(c.OutOrStdout()); err != nil {
		return err
	}
	if diags.HasErrors() {
		return told(exitFailed)
	}
	return nil
}
