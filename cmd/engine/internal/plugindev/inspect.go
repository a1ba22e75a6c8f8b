package plugindev

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// maxModule limits the size of a module that is inspected or built, in bytes.
const maxModule = 1 << 30

// maxGrantText limits the displayed text of one kind of grant, in bytes.
const maxGrantText = 1000

func inspectCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect FILE.wasm",
		Short: "Show a plugin's manifest, imports and settings, without running it, and check that an engine loads it",
		Args:  cli.Args(1, 1, "one FILE.wasm is required"),
		RunE: func(c *cobra.Command, args []string) error {
			one, err := inspect(args[0])
			if err != nil {
				return err
			}
			write := one.write
			if asJSON {
				write = func(w io.Writer) error { return cli.WriteJSON(w, one) }
			}
			if err := write(c.OutOrStdout()); err != nil || one.Manifest == nil {
				return err
			}
			progress := cli.StartProgress(c.ErrOrStderr(), "compiling the plugin")
			defer progress.Stop()
			return accept(c.Context(), one.module, max(one.Memory.Least, wasmhost.DefaultMemory))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// inspected is the output of sonde plugin inspect for a file.
type inspected struct {
	File     string        `json:"file"`
	Size     bytesize.Size `json:"size"`
	SHA256   string        `json:"sha256"`
	Manifest *abi.Manifest `json:"manifest"` // nil if there is none

	Imports []string     `json:"imports"` // "sonde_v1.dial"
	Exports []string     `json:"exports"`
	Memory  memoryLimits `json:"memory"`

	module []byte
}

// memoryLimits are the limits of a module's own memory, in bytes.
type memoryLimits struct {
	Least int64 `json:"least"`
	Most  int64 `json:"most,omitempty"` // 0 if the module sets no maximum
}

func inspect(name string) (inspected, error) {
	b, err := files.ReadRegular(name, maxModule)
	if err != nil {
		return inspected{}, err
	}
	module, err := wasmhost.Inspect(b)
	if err != nil {
		return inspected{}, fmt.Errorf("%s: %w", name, err)
	}
	one := inspected{
		File: name, Size: bytesize.Size(len(b)), SHA256: cli.SHA256(b),
		Imports: cleanAll(module.Imports), Exports: cleanAll(module.Exports),
		Memory: memoryLimits{module.Memory, module.MaxMemory}, module: b,
	}
	m, err := abi.ReadManifest(b)
	switch {
	case err == nil:
		one.Manifest = &m
	case !errors.Is(err, abi.ErrNoManifest):
		return one, fmt.Errorf("%s: %w", name, err)
	}
	return one, nil
}

// write writes the report as text.
func (i inspected) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	i.head(t)
	i.memory(t)
	i.calls(t)
	if err := t.Flush(); err != nil || i.Manifest == nil {
		return err
	}
	if err := writeSettings(w, i.Manifest.Settings); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nIn a configuration:\n\n%s", i.block())
	return err
}

func (i inspected) head(w io.Writer) {
	m := i.Manifest
	if m == nil {
		fmt.Fprintf(w, "plugin\t- (%v: see sonde plugin build --help)\n", abi.ErrNoManifest)
	} else {
		fmt.Fprintf(w, "plugin\t%s\n", strings.TrimSpace(m.Name+" "+m.Version))
		line(w, "about", m.Doc)
		line(w, "sdk", m.SDK)
		fmt.Fprintf(w, "abi\t%d\n", m.ABI)
		for _, grant := range wants(m.Grants) {
			line(w, "wants", grant.Name+" = "+probe.OneLine(document.Expression(grant.Value), maxGrantText))
		}
	}
	fmt.Fprintf(w, "file\t%s, %s\n", i.File, i.Size.Rounded())
	fmt.Fprintf(w, "sha256\t%s\n", i.SHA256)
}

// line writes a name and its value, or nothing if the value is empty.
func line(w io.Writer, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "%s\t%s\n", name, value)
	}
}

func (i inspected) memory(w io.Writer) {
	most := "the limit"
	if i.Memory.Most > 0 {
		most = bytesize.Size(i.Memory.Most).String()
	}
	fmt.Fprintf(w, "memory\t%s to start, at most %s\n", bytesize.Size(i.Memory.Least), most)
}

func (i inspected) calls(w io.Writer) {
	byModule := make(map[string][]string)
	for _, one := range i.Imports {
		module, name, _ := strings.Cut(one, ".")
		byModule[module] = append(byModule[module], name)
	}
	for _, module := range slices.Sorted(maps.Keys(byModule)) {
		slices.Sort(byModule[module])
		fmt.Fprintf(w, "imports\t%s: %s\n", module, strings.Join(slices.Compact(byModule[module]), ", "))
	}
	fmt.Fprintf(w, "exports\t%s\n", strings.Join(i.Exports, ", "))
}

// cleanAll sanitizes names of a module for a terminal.
func cleanAll(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = probe.OneLine(name, abi.MaxName*2)
	}
	return all
}

// wants returns the grants that a plugin requests, as arguments of a grant block.
func wants(g abi.Grants) []document.Argument {
	var arguments []document.Argument
	for _, grant := range []struct {
		name string
		list []string
	}{{"dial", g.Dial}, {"env", g.Env}, {"dns", g.DNS}} {
		if len(grant.list) > 0 {
			arguments = append(arguments, document.Argument{Name: grant.name, Value: grant.list})
		}
	}
	return arguments
}

// writeSettings writes a table of the handler block's settings.
func writeSettings(w io.Writer, settings []abi.Setting) error {
	if len(settings) == 0 {
		_, err := fmt.Fprintln(w, "\nIts handler block has no settings.")
		return err
	}
	if _, err := fmt.Fprintln(w, "\nIts handler block has:"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	settingLines(t, settings, "  ")
	return t.Flush()
}

func settingLines(w io.Writer, settings []abi.Setting, indent string) {
	for _, s := range settings {
		note := "optional"
		switch {
		case s.Required:
			note = "required"
		case s.Default != nil && s.Sensitive:
			note = "default hidden"
		case s.Default != nil:
			note = "default " + probe.OneLine(string(s.Default), 80)
		}
		if s.Sensitive {
			note += ", sensitive"
		}
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\n", indent, s.Name, s.Type, note, s.Doc)
		settingLines(w, s.Block, indent+"  ")
	}
}

// block returns a plugin block for the file, which can be copied into a configuration.
func (i inspected) block() []byte {
	d := document.New()
	body := d.Block("plugin", i.Manifest.Name)
	body.Set("source", filepath.Base(i.File))
	body.Set("sha256", i.SHA256)
	if grants := wants(i.Manifest.Grants); len(grants) > 0 {
		body.BlockOf("grant", grants...)
	}
	return d.Bytes()
}
