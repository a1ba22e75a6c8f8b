package config

import (
	"bytes"
	"fmt"
	"regexp"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// The first lines that formats have: those of YAML and INI, HCL never has.
var (
	manifest = regexp.MustCompile(`(?m)^apiVersion:`)
	yamlLine = regexp.MustCompile(`^(- )?[A-Za-z_"][\w./"-]*:(\s|$)`)
	iniLine  = regexp.MustCompile(`^\[[^\]"{,]+\]\s*$`)
	haproxy  = regexp.MustCompile(`^(global|defaults|frontend|backend|listen)(\s+\S+)?$`)
	monit    = regexp.MustCompile(`^check (process|host|file|program|system|directory|network)\s`)
	nginx    = regexp.MustCompile(`^(upstream|server|http|events|stream)\b[^"]*\{$`)
	services = regexp.MustCompile(`(?m)^services:[ \t]*(?:#.*)?\r?$`)
	hclLine  = regexp.MustCompile(`^[a-z_]+(\s+"[^"]*")*\s*[{=]`)
)

// foreignFormat returns what a file with syntax errors really is, if that is another
// format: one answer instead of an error for each line.
func (s Source) foreignFormat() (tree.Problem, bool) {
	at, line := s.firstLine()
	p := tree.Problem{Range: at}
	native := "configurations are written in HCL, target \"web\" { … }, or in JSON in a file that ends in .hcl.json"
	switch {
	case bytes.HasPrefix(s.Bytes, []byte{0xff, 0xfe}) || bytes.HasPrefix(s.Bytes, []byte{0xfe, 0xff}):
		p.Summary, p.Hint, p.Range = "the file is encoded in UTF-16", "save it as UTF-8", hcl.Range{Filename: s.Name}
	case bytes.HasPrefix(s.Bytes, []byte{0x1f, 0x8b}):
		p.Summary, p.Hint, p.Range = "the file is compressed with gzip", "decompress it: gunzip", hcl.Range{Filename: s.Name}
	case bytes.IndexByte(s.Bytes, 0) >= 0:
		p.Summary, p.Hint, p.Range = "the file has zero bytes", "it is not text, or was damaged when the machine stopped: restore it", hcl.Range{Filename: s.Name}
	case s.JSON() && hclLine.Match(line):
		p.Summary, p.Hint = "the file is HCL, but its name says JSON", "give it a name that ends in .hcl and not in .json"
	case s.JSON():
		return p, false
	case iniLine.Match(line):
		p.Summary, p.Hint = "the file is in the INI or TOML format", native
	case bytes.HasPrefix(line, []byte("{")) || bytes.HasPrefix(line, []byte("[")):
		p.Summary, p.Hint = "the file is JSON, but its name says HCL", "give it a name that ends in .hcl.json"
	case haproxy.Match(line):
		p.Summary, p.Hint = "the file is a configuration of HAProxy", native
	case monit.Match(line):
		p.Summary, p.Hint = "the file is a configuration of monit", native
	case nginx.Match(line) && bytes.Contains(s.Bytes, []byte(";\n")):
		p.Summary, p.Hint = "the file is a configuration of nginx", native
	case yamlLine.Match(line) && manifest.Match(s.Bytes):
		p.Summary, p.Hint = "the file is a manifest of Kubernetes", fmt.Sprintf("convert it: sonde import %s > imported.hcl; or run its pods: sonde run --pods DIRECTORY", s.Name)
	case yamlLine.Match(line) && services.Match(s.Bytes):
		p.Summary, p.Hint = "the file is a compose file", fmt.Sprintf("follow its containers: sonde run --compose %s; or convert it: sonde import %s > imported.hcl", s.Name, s.Name)
	case yamlLine.Match(line):
		p.Summary, p.Hint = "the file is YAML", native
	default:
		return p, false
	}
	return p, true
}

// firstLine returns the first line that is neither empty nor a comment, without the white
// space around it.
func (s Source) firstLine() (hcl.Range, []byte) {
	number, start := 0, 0
	for full := range bytes.Lines(s.Bytes) {
		number++
		line := bytes.TrimSpace(full)
		if skip := len(line) == 0 || line[0] == '#' || line[0] == ';' || bytes.HasPrefix(line, []byte("//")) || bytes.HasPrefix(line, []byte("---")); !skip {
			column := bytes.Index(full, line)
			from := hcl.Pos{Line: number, Column: column + 1, Byte: start + column}
			to := hcl.Pos{Line: number, Column: column + 1 + len(line), Byte: start + column + len(line)}
			return hcl.Range{Filename: s.Name, Start: from, End: to}, line
		}
		start += len(full)
	}
	return hcl.Range{Filename: s.Name}, nil
}
