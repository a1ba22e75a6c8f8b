// Command sbom writes the software bill of materials of a Go program: the modules that the
// go command has recorded in it, in the JSON format of CycloneDX 1.6.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

type document struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(materials(info))
}

// materials returns the modules of a program, and the Go standard library.
func materials(info *debug.BuildInfo) document {
	main := componentOf("application", &info.Main)
	for _, s := range info.Settings {
		main.Properties = append(main.Properties, property{"go:" + s.Key, s.Value})
	}
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{main}}
	standard := componentOf("library", &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})
	d.Components = append(d.Components, standard)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Components = append(d.Components, componentOf("library", m))
	}
	uses := dependency{Ref: main.Ref}
	for _, c := range d.Components {
		uses.DependsOn = append(uses.DependsOn, c.Ref)
	}
	d.Dependencies = []dependency{uses}
	return d
}

func componentOf(kind string, m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Ref: purl, Type: kind, Name: m.Path, Version: m.Version, PURL: purl}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && m.Sum != "" {
		// The hash of a module (h1) is not that of one file, as CycloneDX' hashes are.
		c.Properties = []property{{"go:h1:sha256", hex.EncodeToString(sum)}}
	}
	return c
}
