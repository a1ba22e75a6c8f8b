// Package document writes configurations, for commands that generate them, and lays them out. What it
// writes is in the canonical style, with indents of two spaces and aligned equals signs and comments, and is read back as the same
// values.
//
// It is a separate package so that programs that only read configurations do not link
// the code that writes them.
//
//	document.go files, blocks, arguments and comments
//	value.go    expressions for Go values
package document

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/sonde-probe/sonde/config"
)

// Document is a configuration file that is being written.
type Document struct {
	Body
	file *hclwrite.File
}

// Body is the content of a file or a block, which grows at its end.
type Body struct {
	body *hclwrite.Body
}

// New returns an empty document.
func New() *Document {
	f := hclwrite.NewEmptyFile()
	return &Document{Body: Body{f.Body()}, file: f}
}

// Bytes returns the text of the document.
func (d *Document) Bytes() []byte { return hclwrite.Format(d.file.Bytes()) }

// Format lays s out in the canonical style, which changes only white space. If s has
// syntax errors, it returns the text unchanged, with the errors. If s is in the
// JSON syntax, it returns the text unchanged.
func Format(s config.Source) ([]byte, config.Diagnostics) {
	if diags := config.Syntax(s); diags.HasErrors() || s.JSON() {
		return s.Bytes, diags
	}
	return hclwrite.Format(s.Bytes), nil
}

// Block adds a block and returns its body.
func (b *Body) Block(kind string, labels ...string) *Body {
	return &Body{b.body.AppendNewBlock(kind, labels).Body()}
}

// Argument is a name with a value, which is a string, bool, int, float64, []string,
// map[string]string or map[string]any.
type Argument struct {
	Name  string
	Value any
}

// BlockOf adds a block of arguments without those that are an empty string, list or map. It is
// written in one line if it has only one. It returns the body of a block that is not.
func (b *Body) BlockOf(kind string, arguments ...Argument) *Body {
	arguments = slices.DeleteFunc(arguments, Argument.isEmpty)
	if len(arguments) == 1 {
		if value := expression(arguments[0].Value); !strings.Contains(string(value.Bytes()), "\n") {
			line := hclwrite.Tokens{identifier(kind), token(hclsyntax.TokenOBrace, "{"), identifier(arguments[0].Name), token(hclsyntax.TokenEqual, "=")}
			b.body.AppendUnstructuredTokens(append(append(line, value...), token(hclsyntax.TokenCBrace, "}"), newline()))
			return nil
		}
	}
	body := b.Block(kind)
	body.SetAll(arguments...)
	return body
}

// isEmpty reports whether the value is an empty string, list or map.
func (a Argument) isEmpty() bool {
	switch v := reflect.ValueOf(a.Value); v.Kind() {
	case reflect.String, reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return false
}

// SetAll adds arguments without those that are an empty string, list or map.
func (b *Body) SetAll(arguments ...Argument) {
	for _, a := range arguments {
		if !a.isEmpty() {
			b.Set(a.Name, a.Value)
		}
	}
}

// Set adds an argument. For the types of value see Argument.
func (b *Body) Set(name string, value any) {
	b.body.SetAttributeRaw(name, expression(value))
}

// SetWithComment adds an argument with a comment at the end of its line.
func (b *Body) SetWithComment(name string, value any, comment string) {
	b.body.SetAttributeRaw(name, append(expression(value), token(hclsyntax.TokenComment, "# "+printable(comment))))
}

// Newline adds an empty line.
func (b *Body) Newline() { b.body.AppendNewline() }

// Separate adds an empty line, unless the body is empty.
func (b *Body) Separate() {
	if len(b.body.BuildTokens(nil)) > 0 {
		b.Newline()
	}
}

// commentWidth is the length of a line of a comment in bytes, without its indent.
const commentWidth = 96

// Comment adds a comment, with line breaks between words.
func (b *Body) Comment(format string, a ...any) {
	line := "#"
	for word := range strings.FieldsFuncSeq(fmt.Sprintf(format, a...), unicode.IsSpace) {
		word = printable(word)
		if len(line)+len(word) >= commentWidth && line != "#" {
			b.comment(line)
			line = "#"
		}
		line += " " + word
	}
	b.comment(line)
}

// Append adds the content of another document.
func (b *Body) Append(d *Document) { b.body.AppendUnstructuredTokens(d.file.BuildTokens(nil)) }

// CommentOut adds the text of another document as a comment.
func (b *Body) CommentOut(d *Document) {
	for line := range strings.Lines(string(d.Bytes())) {
		b.comment("# " + strings.TrimRight(line, "\n"))
	}
}

func (b *Body) comment(line string) {
	b.body.AppendUnstructuredTokens(hclwrite.Tokens{token(hclsyntax.TokenComment, line+"\n")})
}

// printable replaces characters that a comment cannot hold by U+FFFD.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func token(kind hclsyntax.TokenType, text string) *hclwrite.Token {
	return &hclwrite.Token{Type: kind, Bytes: []byte(text)}
}

func identifier(name string) *hclwrite.Token { return token(hclsyntax.TokenIdent, name) }
func newline() *hclwrite.Token               { return token(hclsyntax.TokenNewline, "\n") }
