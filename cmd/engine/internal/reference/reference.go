// Package reference is sonde docs: it describes each block and argument of the
// configuration, from the schemas by which package config decodes them.
//
//	reference.go  the pages, and how they are found by name
//	markdown.go   the pages of docs/configuration
//	text.go       pages for a terminal
//	command.go    sonde docs
//
// What a block is for, with an example, is in blocks; what an argument means is in the tag
// of its field.
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

// page describes one block, with the blocks inside that have no page of their own.
type page struct {
	name  string
	where []string // the blocks that it can stand in, as headers; empty for a file
	field config.Field
	text  string // of blocks/NAME.txt, in Markdown
}

// entry is an argument, or a block inside, of a page.
type entry struct {
	path  string // below the page: "tls.ca_file"
	field config.Field
	page  bool // it has a page of its own
}

// pages returns all pages, in the order in which the blocks stand in a configuration.
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
		p := &page{name: f.Name, field: f, text: string(text)}
		if where != "" {
			p.where = []string{where}
		}
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

// header returns how the block begins: `probe "KIND" "NAME" { … }`.
func (p *page) header() string {
	h := p.name
	for _, label := range p.field.Labels {
		h += fmt.Sprintf(" %q", strings.ToUpper(label))
	}
	return h + " { … }"
}

// entries returns the arguments and blocks inside, each block before what it contains.
func (p *page) entries() []entry { return entriesOf(*p.field.Block, "") }

func entriesOf(s config.Schema, path string) (all []entry) {
	for _, f := range s.Fields {
		_, err := texts.ReadFile("blocks/" + f.Name + ".txt")
		e := entry{path: path + f.Name, field: f, page: f.Type == config.Block && err == nil}
		all = append(all, e)
		if f.Block != nil && !e.page {
			all = append(all, entriesOf(*f.Block, e.path+".")...)
		}
	}
	return all
}

// facts returns type, default and limits of an argument in one line.
func (e entry) facts() string {
	f := e.field
	parts := []string{f.Type.String()}
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

// distinct returns words without those that differ from an earlier one in case only.
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

// found is what a name stands for: a page, or one of its entries.
type found struct {
	page  *page
	entry *entry // nil for the page itself
}

func (f found) name() string {
	if f.entry == nil {
		return f.page.name
	}
	return f.page.name + "." + f.entry.path
}

// find returns what a name such as "http.tls.ca_file" stands for. Blocks around the one that
// has a page can be left out, or be written: "target.probe.http". So can the blocks around an
// argument that only one block has.
func find(all []*page, name string) (found, error) {
	var known []found
	for _, p := range all {
		known = append(known, found{page: p})
		for _, e := range p.entries() {
			if !e.page {
				known = append(known, found{p, &e})
			}
		}
	}
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, ".") {
		if i := slices.IndexFunc(known, func(f found) bool { return f.name() == rest }); i >= 0 {
			return known[i], nil
		}
	}
	var matches []found
	var names, last []string
	for _, f := range known {
		names = append(names, f.name())
		last = append(last, f.name()[strings.LastIndexByte(f.name(), '.')+1:])
		if strings.HasSuffix(f.name(), "."+name) {
			matches = append(matches, f)
		}
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		var in []string
		for _, f := range matches {
			in = append(in, f.name())
		}
		return found{}, fmt.Errorf("%q is in several blocks: write %s", name, strings.Join(in, ", "))
	}
	if near := suggest.Nearest(name, append(names, last...)); near != "" {
		return found{}, fmt.Errorf("there is no block or argument %q; did you mean %q?", name, near)
	}
	return found{}, fmt.Errorf("there is no block or argument %q; sonde docs lists the blocks", name)
}
