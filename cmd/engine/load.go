package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
)

// defaultConfig is read when no configuration is named.
const defaultConfig = "config.hcl"

// inputs are the flags that say what a configuration's variables are.
type inputs struct {
	vars  variables
	files []string
}

func (in *inputs) flags(c *cobra.Command) {
	c.Flags().Var(&in.vars, "var", "set a variable, `name=value`; can be repeated")
	c.Flags().StringArrayVar(&in.files, "var-file", nil, "read variables from a `file`; can be repeated")
}

// load reads a configuration and loads its plugins. It starts nothing.
func (in *inputs) load(paths []string, p *plugins) (*config.Config, config.Diagnostics) {
	sources, diags := config.Read(orDefault(paths))
	files, more := config.Read(in.files)
	if diags = append(diags, more...); diags.HasErrors() {
		return nil, diags
	}
	return config.Parse(sources, config.Options{Handlers: handlers(), Plugin: p.open, Vars: in.vars, VarFiles: files})
}

// loadOrTell is load, which shows what is wrong. The error has been told when it
// is returned.
func (in *inputs) loadOrTell(c *cobra.Command, paths []string, p *plugins, code int) (*config.Config, error) {
	loaded, diags := in.load(paths, p)
	if err := tell(c, diags); err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, told(code)
	}
	return loaded, nil
}

// tell shows diagnostics, and how many they are.
func tell(c *cobra.Command, diags config.Diagnostics) error {
	if len(diags) == 0 {
		return nil
	}
	w := c.ErrOrStderr()
	if err := diags.WriteText(w, colored(w)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", tally(diags))
	return err
}

// tally returns "2 errors, 1 warning".
func tally(diags config.Diagnostics) string {
	errs, warnings := diags.Count()
	var parts []string
	if errs > 0 {
		parts = append(parts, count(errs, "error"))
	}
	if warnings > 0 {
		parts = append(parts, count(warnings, "warning"))
	}
	return strings.Join(parts, ", ")
}

// count returns "1 probe" or "2 probes".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func orDefault(paths []string) []string {
	if len(paths) == 0 {
		return []string{defaultConfig}
	}
	return paths
}

// variables is the flag --var.
type variables []config.Var

// Set adds name=value.
func (v *variables) Set(s string) error {
	name, value, found := strings.Cut(s, "=")
	if !found || name == "" {
		return errors.New("must be name=value")
	}
	*v = append(*v, config.Var{Name: name, Value: value, From: "--var " + name})
	return nil
}

// String returns the names: values may be secrets.
func (v *variables) String() string {
	var names []string
	for _, one := range *v {
		names = append(names, one.Name)
	}
	return strings.Join(names, ",")
}

// Type returns what stands for a value in the help.
func (v *variables) Type() string { return "name=value" }
