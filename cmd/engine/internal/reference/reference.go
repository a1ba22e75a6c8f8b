// Package reference implements sonde docs. It describes each block and argument of the configuration, using the schemas with
// which package config decodes them.
//
//	reference.go  the pages, and looking them up by name
//	markdown.go   the pages as Markdown, for docs/configuration and the command
//	command.go    sonde docs
//
// The purpose of a block, with an example, is in the folder blocks. The description of an argument is in the tag of its field.
package reference

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/suggest"
)

//go:embed blocks functions.md
var texts embed.FS

// page describes one block, including inner blocks without their own page.
type page struct {
	name  string
	where []string // the blocks that may contain it; "" stands for a file
	field config.Field
	text  string // from blocks/NAME.txt, in Markdown
}

// entry is an argument or inner block of a page, or the page itself.
type entry struct {
	on    *page
	path  string // relative to the page: "tls.ca_file"; empty for the page itself
	field config.Field
	page  bool // it has its own page
}

func (e entry) name() string { return strings.TrimSuffix(e.on.name+"."+e.path, ".") }

// pages returns all pages, in the order of the blocks in a configuration.
func pages() []*page {
	var all []*page
	addPages(&all, config.Language(handlers.Options()), "")
	return all
}

func addPages(all *[]*page, inside config.Schema, where string) {
	for _, f := range inside.Fields {
		text, err := texts.ReadFile("blocks/" + f.Name + ".txt")
		if f.Type != config.Block || err != nil {
			continue
		}
		i := slices.IndexFunc(*all, func(p *page) bool { return p.name == f.Name })
		if i >= 0 {
			(*all)[i].where = append((*all)[i].where, where)
			continue
		}
		p := &page{name: f.Name, where: []string{where}, field: f, text: string(text)}
		*all = append(*all, p)
		addPages(all, *f.Block, f.Name)
	}
}

// summary returns the first sentence of the page's text, without the final period.
func (p *page) summary() string {
	text := strings.Join(strings.Fields(p.text), " ")
	first, _, _ := strings.Cut(text, ". ")
	return first
}

// header returns the first line of the block: `probe "KIND" "NAME" { … }`.
func (p *page) header() string {
	h := p.name
	for _, label := range p.field.Labels {
		h += fmt.Sprintf(" %q", strings.ToUpper(label))
	}
	return h + " { … }"
}

// entries returns the arguments and inner blocks, each block before its content.
func (p *page) entries() []entry { return p.entriesOf(*p.field.Block, "") }

func (p *page) entriesOf(s config.Schema, path string) (all []entry) {
	for _, f := range s.Fields {
		_, err := texts.ReadFile("blocks/" + f.Name + ".txt")
		e := entry{on: p, path: path + f.Name, field: f, page: f.Type == config.Block && err == nil}
		all = append(all, e)
		if f.Block != nil && !e.page {
			all = append(all, p.entriesOf(*f.Block, e.path+".")...)
		}
	}
	return all
}

// facts returns the type, the default and the limits of an argument in one line.
func (e entry) facts() string {
	f := e.field
	parts := []string{string(f.Type)}
	if len(f.OneOf) > 0 {
		parts[0] = "one of " + strings.Join(distinct(f.OneOf), ", ")
	}
	switch {
	case f.Required:
		parts = append(parts, "required")
	case f.Default != nil:
		parts = append(parts, fmt.Sprintf("default: %v", f.Default))
	case f.Unset != "":
		parts = append(parts, "default: "+f.Unset)
	}
	switch {
	case f.Min != "" && f.Max != "":
		parts = append(parts, f.Min+" to "+f.Max)
	case f.Min != "":
		parts = append(parts, "at least "+f.Min)
	case f.Max != "":
		parts = append(parts, "at most "+f.Max)
	}
	if f.Sensitive {
		parts = append(parts, "never shown")
	}
	return strings.Join(parts, "; ")
}

// distinct removes words that differ from an earlier one only in case.
func distinct(words []string) (out []string) {
	for _, w := range words {
		if !slices.ContainsFunc(out, func(o string) bool { return strings.EqualFold(o, w) }) {
			out = append(out, w)
		}
	}
	return out
}

// sentence returns a description with a capital letter and a final period.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// find returns the entry with a name such as "http.tls.ca_file". The blocks around a block with its own page are optional:
// "target.probe.http" also works. The blocks around an argument can be omitted if only one block has that argument.
func find(all []*page, name string) (entry, error) {
	var known []entry
	for _, p := range all {
		inside := slices.DeleteFunc(p.entries(), func(e entry) bool { return e.page })
		known = append(append(known, entry{on: p}), inside...)
	}
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, ".") {
		if i := slices.IndexFunc(known, func(e entry) bool { return e.name() == rest }); i >= 0 {
			return known[i], nil
		}
	}
	var match entry
	var matches, names, last []string
	for _, e := range known {
		names = append(names, e.name())
		last = append(last, e.name()[strings.LastIndexByte(e.name(), '.')+1:])
		if strings.HasSuffix(e.name(), "."+name) {
			match, matches = e, append(matches, e.name())
		}
	}
	switch {
	case len(matches) == 1:
		return match, nil
	case len(matches) > 1:
		return entry{}, fmt.Errorf("%q is in several blocks: write %s", name, strings.Join(matches, ", "))
	}
	if near := suggest.Nearest(name, append(names, last...)); near != "" {
		return entry{}, fmt.Errorf("there is no block or argument %q; did you mean %q?", name, near)
	}
	return entry{}, fmt.Errorf("there is no block or argument %q; sonde docs lists the blocks", name)
}
