package probe

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Selector selects targets by their names and labels. The zero Selector selects all targets. A Selector is immutable, so
// goroutines may share it.
type Selector struct {
	names  map[string]bool // without wildcards
	globs  []string
	labels []LabelMatch
}

// Bounds on a Selector.
const (
	maxSelectorNames  = 10_000
	maxSelectorGlobs  = 1_000
	maxSelectorLabels = MaxLabels
)

// LabelMatch is a condition on a label of a target. A missing label is treated as an empty one.
type LabelMatch struct {
	Name  string
	Value string
	Not   bool // the value must differ from Value
}

// NewSelector returns a Selector of the targets whose names match one of names and whose labels match all of labels. If names or
// labels is empty, it imposes no condition.
//
// In a name, * matches any text, even none, and ? matches one character: shop/* matches all names that begin with "shop/", and
// web[*] matches all elements of a for_each. All other characters match themselves. Labels have the form "team=shop" or
// "team!=shop": see ParseLabelMatch. An error is a FieldError for "names" or "labels".
func NewSelector(names, labels []string) (s Selector, err error) {
	for _, name := range names {
		switch {
		case name == "":
			return s, FieldErrorf("names", "has an empty name")
		case IsGlob(name):
			s.globs = append(s.globs, name)
		default:
			if s.names == nil {
				s.names = make(map[string]bool, len(names))
			}
			s.names[name] = true
		}
	}
	switch {
	case len(s.names) > maxSelectorNames:
		return s, FieldErrorf("names", "has %d names; at most %d are allowed", len(s.names), maxSelectorNames)
	case len(s.globs) > maxSelectorGlobs:
		return s, FieldErrorf("names", "has %d names with * or ?; at most %d are allowed", len(s.globs), maxSelectorGlobs)
	case len(labels) > maxSelectorLabels:
		return s, FieldErrorf("labels", "has %d conditions; at most %d are allowed", len(labels), maxSelectorLabels)
	}
	for _, text := range labels {
		m, err := ParseLabelMatch(text)
		if err != nil {
			return s, err
		}
		s.labels = append(s.labels, m)
	}
	return s, nil
}

// ParseLabelMatch parses "name=value" or "name!=value". The value extends to the end of text. An error is a FieldError for
// "labels".
func ParseLabelMatch(text string) (m LabelMatch, err error) {
	name, value, ok := strings.Cut(text, "=")
	if strings.HasSuffix(name, "!") {
		m.Not, name = true, strings.TrimSuffix(name, "!")
	}
	m.Name, m.Value = name, value
	wrong := func(hint string) error {
		return &FieldError{Field: "labels", Problem: fmt.Sprintf("has the condition %.80q, which is not name=value or name!=value", text), Hint: hint}
	}
	tight := strings.Replace(strings.Join(strings.Fields(text), ""), "==", "=", 1)
	switch {
	case strings.HasPrefix(value, "~") || strings.Contains(name, "!~"):
		return m, wrong("regular expressions are not supported: exclude values with !=, or select by name with * and ?")
	case strings.HasPrefix(value, "="):
		return m, wrong(fmt.Sprintf("write %q", tight))
	case ok && tight != text && isLabelName(strings.TrimSpace(name)):
		return m, wrong(fmt.Sprintf("write %q", tight))
	case !ok && isLabelName(text):
		return m, wrong(fmt.Sprintf("write %q for the targets that have the label", text+"!="))
	case !ok:
		return m, wrong(`write "team=shop" or "team!=shop"`)
	}
	if err := CheckLabel(name, value); err != nil {
		return m, err
	}
	return m, nil
}

// Matches reports whether the Selector selects a target with the given name and labels.
func (s *Selector) Matches(name string, labels map[string]string) bool {
	for _, m := range s.labels {
		if (labels[m.Name] == m.Value) == m.Not {
			return false
		}
	}
	if len(s.names) == 0 && len(s.globs) == 0 || s.names[name] {
		return true
	}
	return slices.ContainsFunc(s.globs, func(glob string) bool { return MatchesGlob(glob, name) })
}

// Names returns the names without wildcards, in no particular order. The caller must not modify the map.
func (s *Selector) Names() map[string]bool { return s.names }

// HasLabels reports whether the Selector has conditions on labels.
func (s *Selector) HasLabels() bool { return len(s.labels) > 0 }

// SelectsAll reports whether the Selector selects all targets.
func (s *Selector) SelectsAll() bool {
	return len(s.names) == 0 && len(s.globs) == 0 && len(s.labels) == 0
}

// IsGlob reports whether a name contains a wildcard, * or ?.
func IsGlob(name string) bool { return strings.ContainsAny(name, "*?") }

// MatchesGlob reports whether a name matches a glob: * matches any text, even none, ? matches one character, and all other
// characters match themselves. It differs from path.Match in that brackets, as in web["a"], are literal and * matches slashes.
func MatchesGlob(glob, name string) bool {
	star, from := -1, 0 // for the last *: its index in glob, and the start of the unmatched rest of name
	g, n := 0, 0
	for n < len(name) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, from = g, n
			g++
		case g < len(glob) && glob[g] == '?':
			g++
			n += runeLen(name[n:])
		case g < len(glob) && glob[g] == name[n]:
			g++
			n++
		case star >= 0: // let the * match one more character
			from += runeLen(name[from:])
			g, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(glob[g:], "*") == ""
}

func runeLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}
