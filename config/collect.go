package config

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// collector gathers diagnostics. The same mistake found for many elements of a
// for_each becomes one.
type collector struct {
	list     []Diagnostic
	seen     map[mistake]int // index in list
	beyond   int             // mistakes that were not kept
	texts    map[string][]byte
	secrets  map[hcl.Range]bool // parts of the texts that are never shown
	unparsed map[string][]span  // the parts of files that could not be parsed
}

// span is a part of a file, in bytes.
type span struct{ from, to int }

type mistake struct {
	file       string
	start, end int
	summary    string
}

func newCollector() *collector {
	return &collector{seen: make(map[mistake]int), texts: make(map[string][]byte), secrets: make(map[hcl.Range]bool), unparsed: make(map[string][]span)}
}

// Bounds on what is gathered of a text that is wrong from end to end.
const (
	maxGathered = 10_000 // diagnostics
	maxMessage  = 1_000  // bytes of one text in a diagnostic
)

func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return probe.CleanText(s, maxMessage) + "…"
}

// report is one mistake on its way into a collector.
type report struct {
	severity Severity
	at       hcl.Range
	body     *tree.Body // the block it is in; may be nil
	summary  string
	hint     string
	notes    []Note

	reference bool // it may be due to a part of a file that could not be read
}

// add takes a mistake in, unless what follows from a syntax error may be the
// reason for it.
func (c *collector) add(r report) {
	if c.followsSyntaxError(r) {
		return
	}
	key := mistake{r.at.Filename, r.at.Start.Byte, r.at.End.Byte, r.summary}
	if i, ok := c.seen[key]; ok {
		c.list[i].elements++
		return
	}
	if len(c.list) >= maxGathered {
		c.beyond++
		return
	}
	c.seen[key] = len(c.list)
	d := Diagnostic{Severity: r.severity, Summary: clip(r.summary), Hint: clip(r.hint), Range: rangeOf(r.at), Notes: r.notes, elements: 1}
	if r.body != nil {
		d.Where, d.With = clip(r.body.Path()), clip(r.body.Iteration())
	}
	c.list = append(c.list, d)
}

func (c *collector) followsSyntaxError(r report) bool {
	return r.reference && len(c.unparsed) > 0 ||
		slices.ContainsFunc(c.unparsed[r.at.Filename], func(s span) bool { return s.from <= r.at.Start.Byte && r.at.Start.Byte < s.to })
}

func (c *collector) note(text string, at hcl.Range) Note { return Note{Text: text, Range: rangeOf(at)} }

// problems takes in what a body's shape does not allow.
func (c *collector) problems(b *tree.Body, problems []tree.Problem) {
	for _, p := range problems {
		c.add(report{at: p.Range, body: b, summary: p.Summary, hint: p.Hint})
	}
}

// diagnostics returns everything that was gathered, ready to be shown.
func (c *collector) diagnostics() Diagnostics {
	out := Diagnostics(c.list).sorted(c.beyond)
	for i := range out {
		d := &out[i]
		d.source = c.line(d.Range)
		for j := range d.Notes {
			d.Notes[j].source = c.line(d.Notes[j].Range)
		}
		if d.With != "" && d.elements > 1 {
			d.With += fmt.Sprintf(" and %d more", d.elements-1)
		}
	}
	return out
}

func (c *collector) line(r Range) line {
	text, ok := c.texts[r.File]
	if !ok || r.Start.Line == 0 {
		return line{}
	}
	return lineOf(text, r, c.secrets)
}

// secret says that a part of a text is never shown.
func (c *collector) secret(r hcl.Range) { c.secrets[r] = true }

func (c *collector) hasErrors() bool { return Diagnostics(c.list).HasErrors() }
