package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// collector collects diagnostics. Equal ones of several elements of a for_each become
// one, and so do equal ones in many places.
type collector struct {
	list     []Diagnostic
	seen     map[diagnosticKey]int // index in list
	reports  int                   // number of calls of add
	dropped  int                   // number of diagnostics beyond maxCollected
	texts    *sourceTexts
	unparsed map[string][]span // the parts of files that could not be parsed
	places   map[string]string // the block that an argument or block belongs in, by its name
}

func newCollector() *collector {
	return &collector{seen: make(map[diagnosticKey]int), texts: newSourceTexts(), unparsed: make(map[string][]span)}
}

// span is a part of a file, in bytes.
type span struct{ from, to int }

// diagnosticKey is what equal diagnostics have in common.
type diagnosticKey struct {
	file       string
	start, end int
	summary    string
}

// Bounds of a collector.
const (
	maxCollected = 10_000 // diagnostics
	maxMessage   = 1_000  // bytes of one text in a diagnostic
)

func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return probe.CleanText(s, maxMessage) + "…"
}

// report is an error or a warning for a collector.
type report struct {
	isWarning bool // the configuration can be used, but is probably not what was meant
	at        hcl.Range
	body      *tree.Body // the enclosing block; may be nil
	summary   string
	hint      string
	notes     []Note
	with      string // what has it, if that is not the element of body: a probe that takes an argument from a defaults block

	reference bool // it may be the consequence of a syntax error elsewhere
}

// add adds a report, unless it may be the consequence of a syntax error.
func (c *collector) add(r report) {
	c.reports++
	inUnparsed := func(s span) bool { return s.from <= r.at.Start.Byte && r.at.Start.Byte < s.to }
	if r.reference && len(c.unparsed) > 0 || slices.ContainsFunc(c.unparsed[r.at.Filename], inUnparsed) {
		return
	}
	key := diagnosticKey{r.at.Filename, r.at.Start.Byte, r.at.End.Byte, r.summary}
	if i, ok := c.seen[key]; ok {
		c.list[i].elements++
		return
	}
	if len(c.list) >= maxCollected {
		c.dropped++
		return
	}
	c.seen[key] = len(c.list)
	d := Diagnostic{IsWarning: r.isWarning, Summary: clip(r.summary), Hint: clip(r.hint), Range: rangeOf(r.at), Notes: r.notes, elements: 1}
	if r.body != nil {
		d.Where, d.With = clip(r.body.Path()), clip(r.body.Iteration())
	}
	if d.of = "elements"; r.with != "" {
		d.With, d.of = clip(r.with), "probes"
	}
	c.list = append(c.list, d)
}

// addTwice adds the report of a second one where only one is allowed. First is where the
// first one is.
func (c *collector) addTwice(r report, first hcl.Range) {
	r.hint = cmp.Or(r.hint, "keep one of them")
	r.notes = []Note{noteAt(first, "the first is here")}
	c.add(r)
}

func noteAt(at hcl.Range, text string) Note { return Note{Text: text, Range: rangeOf(at)} }

// hasErrors reports whether there is an error so far.
func (c *collector) hasErrors() bool { return Diagnostics(c.list).HasErrors() }

// read returns what a body contains of a schema, and reports the rest. Whole is false if there is an error.
func (c *collector) read(b *tree.Body, s tree.BodySchema) (content tree.Content, whole bool) {
	content, problems := b.Read(s)
	return content, c.problems(b, problems)
}

// problems adds what a body contains against its schema, and reports whether there is no error.
func (c *collector) problems(b *tree.Body, problems []tree.Problem) (ok bool) {
	ok = true
	for _, p := range problems {
		if place := c.places[p.Unknown]; place != "" {
			p.Hint = "write it inside " + place
		}
		c.add(report{isWarning: p.IsWarning, at: p.Range, body: b, summary: p.Summary, hint: p.Hint})
		ok = ok && p.IsWarning
	}
	return ok
}

// diagnostics returns the diagnostics with their source lines, sorted.
func (c *collector) diagnostics() Diagnostics {
	out := Diagnostics(c.list).sorted(c.dropped)
	for i := range out {
		d := &out[i]
		d.source = c.texts.line(d.Range)
		for j := range d.Notes {
			d.Notes[j].source = c.texts.line(d.Notes[j].Range)
		}
		if d.With != "" && d.elements > 1 {
			d.With += fmt.Sprintf(" (the first of %d %s with this %s)", d.elements, d.of, d.word())
		}
	}
	return out
}
