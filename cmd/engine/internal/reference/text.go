package reference

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/config"
)

// overview returns the list of all blocks.
func overview(all []*page, width int) string {
	longest := 0
	for _, p := range all {
		longest = max(longest, len(p.name))
	}
	var s strings.Builder
	for _, p := range all {
		s.WriteString(wrap(p.summary(), width, fmt.Sprintf("%-*s  ", longest, p.name), strings.Repeat(" ", longest+2)))
	}
	s.WriteString("\nsonde docs BLOCK, sonde docs BLOCK.ARGUMENT and sonde docs functions show more.\n")
	return s.String()
}

// terminal returns a page, or one argument, as text.
func terminal(of entry, width int) string {
	p := of.on
	if of.path != "" {
		text := argument(p.name+".", of, width)
		for _, inner := range p.entries() {
			if strings.HasPrefix(inner.path, of.path+".") {
				text += "\n" + argument(p.name+".", inner, width)
			}
		}
		return text
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s\n", p.header())
	if len(p.where) > 0 {
		fmt.Fprintf(&s, "in %s blocks\n", strings.Join(p.where, ", "))
	}
	s.WriteString("\n" + plain(p.text, width))
	for _, e := range p.entries() {
		s.WriteString("\n" + argument("", e, width))
	}
	return s.String()
}

func argument(prefix string, e entry, width int) string {
	if e.page {
		return wrap("block; see sonde docs "+e.field.Name, width, e.path+": ", "    ")
	}
	name := prefix + e.path
	if e.field.Type == config.Block {
		name += " { … }"
	}
	return wrap(e.facts(), width, name+": ", "    ") + wrap(sentence(e.field.Doc), width, "    ", "    ")
}

// plain returns Markdown with its paragraphs wrapped, and the rest as it is.
func plain(markdown string, width int) string {
	var s, paragraph strings.Builder
	end := func() {
		if paragraph.Len() > 0 {
			s.WriteString(wrap(paragraph.String(), width, "", ""))
			paragraph.Reset()
		}
	}
	fenced := false
	for line := range strings.Lines(markdown) {
		switch {
		case strings.HasPrefix(line, "```"):
			end()
			fenced = !fenced
		case fenced && strings.TrimSpace(line) != "":
			s.WriteString("    " + line)
		case fenced, strings.HasPrefix(line, "|"), strings.HasPrefix(line, "#"):
			s.WriteString(line)
		case strings.TrimSpace(line) == "":
			end()
			s.WriteString("\n")
		default:
			paragraph.WriteString(line)
		}
	}
	end()
	return s.String()
}

// wrap returns a text in lines of at most width characters, unless a word is longer. The
// first line begins with first, the others with rest.
func wrap(text string, width int, first, rest string) string {
	var s strings.Builder
	line, empty := first, true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			s.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return s.String() + strings.TrimRight(line, " ") + "\n"
}
