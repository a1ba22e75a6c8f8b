package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/suggest"
)

// hint says what to write instead of an argument or a block that the schema does
// not have. Meant is false for a list of what the schema has, because nothing is similar.
func (s BodySchema) hint(name string, argument bool) (text string, meant bool) {
	arguments, blocks := slices.Clone(s.Arguments), []string(nil)
	for _, b := range s.Blocks {
		if b.Object {
			arguments = append(arguments, b.Type)
		} else {
			blocks = append(blocks, b.Type)
		}
	}
	if h := suggest.FromTool(name, slices.Concat(arguments, blocks)); h != "" {
		return h, true
	}
	first, second := known("arguments", arguments), known("blocks", blocks)
	near := cmp.Or(suggest.Nearest(name, arguments), suggest.Nearest(name, blocks))
	if !argument {
		first, second = second, first
		near = cmp.Or(suggest.Nearest(name, blocks), near)
	}
	if near != "" {
		return fmt.Sprintf("did you mean %q?", near), true
	}
	if owners := s.owners(name); owners != nil {
		return "write it inside " + strings.Join(owners, " or "), true
	}
	if !argument && s.Unknown != nil {
		return s.Unknown(name), false
	}
	return strings.TrimSpace(first + "\n" + second), false
}

// known lists names of one sort: "arguments here: path, port".
func known(sort string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return sort + " here: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// owners returns the blocks of the schema that have an argument or a block of this
// name inside: "http { … }".
func (s BodySchema) owners(name string) []string {
	var out []string
	for _, b := range s.Blocks {
		if slices.Contains(b.Inside, name) {
			header := b.Type
			if len(b.Labels) > b.Optional {
				header = cmp.Or(b.Example, b.Type)
			}
			out = append(out, header+" { … }")
		}
	}
	return out
}
