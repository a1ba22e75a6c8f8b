package command

import "strings"

// Expand replaces $(NAME) in a word as Kubernetes does (K76): a name in env is replaced by its value, a reference to an unknown
// name stays, and $$ becomes a single $, so that $$(NAME) becomes the text $(NAME). Values are not expanded again. No shell is
// involved.
func Expand(s string, env map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		text, used := reference(after, env)
		b.WriteString(text)
		s = after[used:]
	}
}

// reference returns the text for a $ that is followed by s, and the number of bytes of s that belong to the reference.
func reference(s string, env map[string]string) (text string, used int) {
	if strings.HasPrefix(s, "$") {
		return "$", 1
	}
	if !strings.HasPrefix(s, "(") {
		return "$", 0
	}
	name, _, closed := strings.Cut(s[1:], ")")
	if !closed {
		return "$", 0
	}
	used = len("(") + len(name) + len(")")
	if value, known := env[name]; known {
		return value, used
	}
	return "$" + s[:used], used
}

// Escape returns a word that Expand turns into s; known reports whether a name is in the environment of Expand. References to other
// names need no escaping.
func Escape(s string, known func(name string) bool) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		s = after
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"), closed && strings.HasPrefix(after, "(") && known(name):
			b.WriteByte('$')
		case closed && strings.HasPrefix(after, "("):
			b.WriteString("(" + name + ")") // Expand leaves the whole reference as it is
			s = rest
		}
	}
}

// Literal returns a word that Expand turns into a text.
func Literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// Quote returns a word in single quotes, for a shell.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
