package files

import (
	"bytes"
	"iter"
	"strings"
)

// Fields yields the fields of each line that has some, of a text such as hosts(5) or
// resolv.conf(5), where # begins a comment.
func Fields(text []byte) iter.Seq[[]string] {
	return func(yield func(fields []string) bool) {
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			if fields := strings.Fields(string(line)); len(fields) > 0 && !yield(fields) {
				return
			}
		}
	}
}
