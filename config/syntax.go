package config

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// maxExponent bounds the digits in the exponent of a number.
const maxExponent = 4

var conflictMarker = regexp.MustCompile(`^(<<<<<<<|=======|>>>>>>>)`)

// bareShare is the line of an argument with a percentage without quotes: min_ready = 50%.
var bareShare = regexp.MustCompile(`^\s*([a-z][a-z_0-9]*)\s*=\s*([0-9][0-9.]*%)\s*$`)

// argumentWithoutSign is the line of an argument without its equals sign: period "10s". Blocks that need a label look alike.
var argumentWithoutSign = regexp.MustCompile(`^\s*([a-z][a-z_0-9]*)\s+("[^"{}]*"|[0-9][\w.]*|true|false)\s*$`)

// openedBelow is the rest of a file after a block's header, whose brace is on the next line.
var openedBelow = regexp.MustCompile(`^\s*\{`)

var redefined = regexp.MustCompile(`^The argument "([^"]*)" was already set at`)

// Syntax returns the syntax errors of one source. It does not look at its meaning.
func Syntax(s Source) Diagnostics {
	c := newCollector()
	s.parse(nil, c)
	return c.diagnostics()
}

// parse parses a source whose expressions have a context, and reports whether there are no syntax errors. Of a text with
// syntax errors it returns what can be parsed, so that more errors are reported at once.
func (s Source) parse(ctx *hcl.EvalContext, c *collector) (body tree.Body, whole bool) {
	if s.JSON() {
		s.Bytes = bytes.TrimPrefix(s.Bytes, []byte("\ufeff"))
	}
	c.texts.byName[s.Name] = s.Bytes
	var inJSON hcl.Expression
	native, diags := &hclsyntax.Body{}, hcl.Diagnostics(nil)
	problem, ok := s.checkBounds()
	switch {
	case ok && s.JSON():
		c.texts.maskCallsInJSON(s)
		inJSON, diags = json.ParseExpression(s.Bytes, s.Name)
	case ok:
		var file *hcl.File
		file, diags = hclsyntax.ParseConfig(s.Bytes, s.Name, hcl.InitialPos)
		native = file.Body.(*hclsyntax.Body)
	}
	if !ok || diags.HasErrors() {
		if foreign, is := s.foreignFormat(); is {
			problem, ok = foreign, false
		}
	}
	if !ok {
		c.problems(nil, []tree.Problem{problem})
		c.unparsed[s.Name] = []span{{0, math.MaxInt}}
		return tree.Body{}, false
	}
	s.reportSyntax(diags, native.Blocks, c)
	switch {
	case !s.JSON():
		if bytes.Contains(s.Bytes, []byte("sensitive")) {
			c.texts.maskCalls(native)
		}
		convertNumbers(native)
		return tree.Native(native, ctx), !diags.HasErrors()
	case diags.HasErrors():
		return tree.Body{}, false
	}
	body, problems := tree.JSON(inJSON, ctx)
	c.problems(&body, problems)
	return body, true
}

// reportSyntax reports a parser's errors about the source: of each line the first, since the
// others are its consequences.
func (s Source) reportSyntax(diags hcl.Diagnostics, blocks hclsyntax.Blocks, c *collector) {
	var unparsed []span
	lines := make(map[int]bool)
	for _, d := range inOrder(diags) {
		at := *d.Subject
		if lines[at.Start.Line] {
			continue
		}
		lines[at.Start.Line] = true
		if m := redefined.FindStringSubmatch(d.Detail); m != nil {
			c.add(report{at: at, summary: fmt.Sprintf("argument %q is set twice", m[1]), hint: "keep one of the two"})
			continue
		}
		if d.Summary == "Invalid string literal" && strings.HasPrefix(d.Detail, "Template sequences") {
			c.add(report{
				at: at, summary: "a label cannot contain ${…}",
				hint: "write a fixed name: with for_each, a target has one element for each key, such as web[\"a\"]",
			})
			unparsed = append(unparsed, outermost(blocks, at.Start))
			continue
		}
		if d.Summary == "Invalid multi-line string" {
			c.add(unclosed(d, s.Bytes))
			unparsed = append(unparsed, span{outermost(blocks, at.Start).from, math.MaxInt})
			break // from here on HCL confuses text and strings
		}
		r := rewordSyntax(d, s.Bytes)
		if r.at.Filename == "" {
			r.at = at
		}
		c.add(r)
		unparsed = append(unparsed, outermost(blocks, at.Start))
	}
	if unparsed != nil {
		c.unparsed[s.Name] = unparsed
	}
}

// rewordSyntax returns the report for one of the parser's errors: for frequent ones with
// what to write instead.
func rewordSyntax(d *hcl.Diagnostic, text []byte) report {
	r := report{summary: lower(d.Summary), hint: lower(strings.TrimSuffix(d.Detail, "."))}
	from, to := rangeOf(*d.Subject).Start.Byte, rangeOf(*d.Subject).End.Byte
	if from > to || to > len(text) {
		return r
	}
	toNewline := func(at int) string { line, _, _ := bytes.Cut(text[at:], []byte("\n")); return string(line) }
	word, rest, after := string(text[from:to]), toNewline(from), strings.TrimLeft(toNewline(to), " \t")
	lineStart := bytes.LastIndexByte(text[:from], '\n') + 1
	line := toNewline(lineStart)
	switch d.Summary {
	case "Invalid number literal":
		r.summary, r.hint = fmt.Sprintf("%.40s is not a number", word), fmt.Sprintf("a text needs quotes: %.40q", word)
	case "Missing newline after argument":
		r.summary, r.hint = "an argument ends at the end of its line", `write one argument in each line; a text needs quotes: period = "5s"`
	case "Unterminated template string":
		r.summary = "the file ends inside a text"
		r.hint = "the file was cut off, or a closing quote or the last line of a heredoc is missing"
	case "Invalid escape sequence":
		r.hint = `write each backslash twice: "C:\\srv"`
	case "Invalid start of value":
		if strings.HasPrefix(rest, "//") {
			r.summary, r.hint = "JSON has no comments", `write a comment as a property: "//": "…"`
		}
	case "Invalid expression":
		if strings.HasPrefix(rest, "/") {
			r.hint = `a text needs quotes: path = "/healthz"`
		} else if m := bareShare.FindStringSubmatch(line); m != nil {
			r.summary, r.hint = "a percentage needs quotes", fmt.Sprintf("write %s = %q", m[1], m[2])
		}
	case "Invalid block definition":
		if m := argumentWithoutSign.FindStringSubmatch(line); m != nil && !openedBelow.Match(text[from:]) {
			r = withoutSign(m, d.Subject, lineStart)
		} else if word == "=" {
			header := strings.TrimSpace(line[:from-lineStart])
			r.summary, r.hint = "a block has no equals sign", fmt.Sprintf("write %s { … }", header)
		}
	case "Argument or block definition required":
		switch {
		case word == "}", word == ")", word == "]":
			r.summary, r.hint = fmt.Sprintf("this %s closes nothing", word), "remove it, or add what it is to close above"
		case conflictMarker.MatchString(line):
			r.summary, r.hint = "the file has conflict markers of a merge", "resolve the conflict, and remove the lines with <<<<<<<, ======= and >>>>>>>"
		case argumentWithoutSign.MatchString(line):
			r = withoutSign(argumentWithoutSign.FindStringSubmatch(line), d.Subject, lineStart)
		case strings.HasPrefix(after, ":"):
			r.hint = fmt.Sprintf("write %s = …, with an equals sign", word)
		case strings.HasPrefix(after, "'"), strings.HasPrefix(after, "“"), strings.HasPrefix(after, "”"):
			r.hint = fmt.Sprintf(`labels need straight double quotes: %s "…" { … }`, word)
		case strings.HasPrefix(after, "\u00a0"):
			r.summary, r.hint = fmt.Sprintf("a no-break space (U+00A0) follows %s", word), "replace it by a space: copied text may have such characters"
		}
	}
	return r
}

// withoutSign returns the report of an argument without its equals sign, in a line that starts at a byte.
func withoutSign(m []string, of *hcl.Range, lineStart int) report {
	indent := len(m[0]) - len(strings.TrimLeft(m[0], " \t"))
	at := hcl.Range{Filename: of.Filename, Start: hcl.Pos{Line: of.Start.Line, Column: indent + 1, Byte: lineStart + indent}}
	at.End = hcl.Pos{Line: at.Start.Line, Column: at.Start.Column + len(m[1]), Byte: at.Start.Byte + len(m[1])}
	return report{at: at, summary: fmt.Sprintf("argument %q has no equals sign", m[1]), hint: fmt.Sprintf("write %s = %s", m[1], m[2])}
}

// inOrder returns the errors that have a position, sorted by it.
func inOrder(diags hcl.Diagnostics) hcl.Diagnostics {
	placed := slices.DeleteFunc(slices.Clone(diags), func(d *hcl.Diagnostic) bool {
		return d.Subject == nil || d.Severity != hcl.DiagError
	})
	slices.SortStableFunc(placed, func(a, b *hcl.Diagnostic) int { return cmp.Compare(a.Subject.Start.Byte, b.Subject.Start.Byte) })
	return placed
}

// unclosed returns the report of a string without a closing quote: at its opening
// quote.
func unclosed(d *hcl.Diagnostic, text []byte) report {
	at := *d.Subject
	source := lineOf(text, rangeOf(at), nil)
	before := source.text[:min(len(source.text), max(0, at.Start.Byte-source.start))]
	if i := strings.LastIndexByte(before, '"'); i >= 0 {
		at.End = at.Start
		at.Start.Column -= utf8.RuneCountInString(before[i:])
		at.Start.Byte = source.start + i
	}
	return report{at: at, summary: "the string has no closing quote", hint: `end it with a " on the same line, or use a heredoc, <<END, for several lines`}
}

// outermost returns the extent of the top-level block that contains a position, or the
// text from there to the next block.
func outermost(blocks hclsyntax.Blocks, of hcl.Pos) span {
	at, line, next := of.Byte, of.Line, math.MaxInt
	for _, b := range blocks {
		r := b.Range()
		if r.Start.Byte <= at && at <= r.End.Byte {
			return span{r.Start.Byte, r.End.Byte}
		}
		if r.Start.Line == line { // an error in the header, where the block ends for the parser
			at = r.Start.Byte
			continue
		}
		if r.Start.Byte > at {
			next = min(next, r.Start.Byte)
		}
	}
	return span{at, next}
}

// checkBounds checks the bounds within which HCL's parsers are safe.
func (s Source) checkBounds() (tree.Problem, bool) {
	if len(s.Bytes) > MaxSourceBytes {
		return tree.Problem{Range: hcl.Range{Filename: s.Name}, Summary: fmt.Sprintf("the file is longer than %d bytes", MaxSourceBytes), Hint: "split it into several files"}, false
	}
	if s.JSON() {
		return s.checkNesting()
	}
	tokens, _ := hclsyntax.LexConfig(s.Bytes, s.Name, hcl.InitialPos)
	depth, chain := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen,
			hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenCQuote:
			depth = max(0, depth-1)
		case hclsyntax.TokenNewline, hclsyntax.TokenComma:
			chain = 0
		case hclsyntax.TokenNumberLit:
			_, exponent, ok := strings.Cut(strings.ToLower(string(t.Bytes)), "e")
			if ok && len(strings.TrimLeft(exponent, "+-0")) >= maxExponent {
				return tree.Problem{Range: t.Range, Summary: "the number is too large", Hint: fmt.Sprintf("its exponent must have fewer than %d digits", maxExponent)}, false
			}
		case hclsyntax.TokenIdent, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit:
		default:
			chain++
		}
		if depth > maxNesting {
			return tree.Problem{Range: t.Range, Summary: fmt.Sprintf("brackets are nested more than %d deep", maxNesting)}, false
		}
		if chain > maxChain {
			return tree.Problem{Range: t.Range, Summary: fmt.Sprintf("one argument has more than %d operators in a row", maxChain)}, false
		}
	}
	return tree.Problem{}, true
}

// checkNesting counts brackets outside strings.
func (s Source) checkNesting() (tree.Problem, bool) {
	depth, line, start, quoted := 0, 1, 0, false
	for i := 0; i < len(s.Bytes); i++ {
		switch c := s.Bytes[i]; {
		case c == '\n':
			line, start = line+1, i+1
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			depth++
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
		if depth > maxNesting {
			at := hcl.Pos{Line: line, Column: i - start + 1, Byte: i}
			return tree.Problem{
				Range:   hcl.Range{Filename: s.Name, Start: at, End: at},
				Summary: fmt.Sprintf("brackets are nested more than %d deep", maxNesting),
			}, false
		}
	}
	return tree.Problem{}, true
}
