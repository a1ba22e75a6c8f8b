package kubeimport

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// hclText is a text of HCL that is being written. Package format lays it out.
type hclText struct{ strings.Builder }

func (t *hclText) line(format string, a ...any) {
	fmt.Fprintf(t, format, a...)
	t.WriteByte('\n')
}

// open begins a block.
func (t *hclText) open(kind string, labels ...string) {
	for _, label := range labels {
		kind += " " + quote(label)
	}
	t.line("%s {", kind)
}

func (t *hclText) close() { t.line("}") }

// set gives an argument a value, which is an expression.
func (t *hclText) set(name, value string) { t.line("%s = %s", name, value) }

// argument is one argument of a block. Without a value its name is a whole block,
// in one line.
type argument struct{ name, value string }

// block writes a block of arguments: in one line when it has one.
func (t *hclText) block(kind string, arguments []argument) {
	if len(arguments) == 1 && !strings.Contains(arguments[0].value, "\n") {
		t.line("%s { %s = %s }", kind, arguments[0].name, arguments[0].value)
		return
	}
	t.open(kind)
	for _, a := range arguments {
		if a.value == "" {
			t.line("%s", a.name)
			continue
		}
		t.set(a.name, a.value)
	}
	t.close()
}

// commentWidth is how long a line of a comment may be, in bytes.
const commentWidth = 96

// comment writes a text as a comment, and breaks it between words.
func (t *hclText) comment(format string, a ...any) {
	line := "#"
	for word := range strings.FieldsFuncSeq(fmt.Sprintf(format, a...), unicode.IsSpace) {
		word = printable(word)
		if len(line)+len(word) >= commentWidth && line != "#" {
			t.line("%s", line)
			line = "#"
		}
		line += " " + word
	}
	t.line("%s", line)
}

// printable writes what a comment cannot hold as U+FFFD.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// quote returns a text as a quoted template that stands for just this text.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, r := range s {
		opens := strings.HasPrefix(s[i+len(string(r)):], "{")
		switch {
		case (r == '$' || r == '%') && opens && strings.HasSuffix(s[:i], string(r)):
			fmt.Fprintf(&b, `\u%04x`, r) // after its like, doubling does not help
		case (r == '$' || r == '%') && opens:
			b.WriteString(string(r) + string(r))
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r > 0xffff && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// listWidth is how long a list may be in one line, in bytes.
const listWidth = 80

// list returns texts as a list, in one line when it is short. A script at its end
// is written as it is.
func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = quote(s)
		if i+1 == len(texts) && isScript(s) {
			quoted[i] = "<<EOT\n" + escape(s) + "EOT"
		}
	}
	line := "[" + strings.Join(quoted, ", ") + "]"
	if len(line) <= listWidth && !strings.Contains(line, "\n") {
		return line
	}
	return "[\n" + strings.Join(quoted, ",\n") + comma(quoted) + "\n]"
}

// comma returns what stands behind the last element of a list. Nothing can stand
// behind a script.
func comma(elements []string) string {
	if n := len(elements); n > 0 && strings.HasPrefix(elements[n-1], "<<") {
		return ""
	}
	return ","
}

// isScript reports whether a text can stand between <<EOT and EOT.
func isScript(s string) bool {
	odd := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	return strings.Count(s, "\n") > 1 && strings.HasSuffix(s, "\n") && !strings.ContainsFunc(s, odd) &&
		!slices.ContainsFunc(strings.Split(s, "\n"), func(line string) bool { return strings.TrimSpace(line) == "EOT" }) &&
		!strings.Contains(s, "$${") && !strings.Contains(s, "%%{")
}

// escape keeps a text from being taken for a template.
func escape(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(s)
}

// object returns a map, whose values are expressions, in one line when it is short.
func object(values map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, key(name)+" = "+values[name])
	}
	line := "{ " + strings.Join(pairs, ", ") + " }"
	if len(line) <= listWidth && !strings.Contains(line, "\n") {
		return line
	}
	return "{\n" + strings.Join(pairs, "\n") + "\n}"
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// key returns a name as it stands in an object.
func key(name string) string {
	if identifier.MatchString(name) && !slices.Contains([]string{"true", "false", "null", "for"}, name) {
		return name
	}
	return quote(name)
}

// seconds returns a duration of whole seconds as text.
func seconds(d time.Duration) string { return quote(fmt.Sprintf("%ds", d/time.Second)) }
