package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// Difference is a difference between two sides.
type Difference struct {
	Script    *Script
	Container string
	Kind      probe.Kind // 0: the container's flags
	Step      int        // the first step in which they differ
	Field     string     // notes, text, flags, timing
	Kubelet   string
	Sonde     string
	ByTime    bool // the machine was late, which may be the cause
}

// String returns the difference in one line.
func (d Difference) String() string {
	subject := d.Container
	if d.Kind != 0 {
		subject += "/" + d.Kind.String()
	}
	return fmt.Sprintf("%s: %s of %s, step %d:\n  kubelet: %s\n  sonde:   %s", d.Script.Name, d.Field, subject, d.Step, d.Kubelet, d.Sonde)
}

// compare returns the first difference of each probe between two plays of a script, except those that a row of Wanted covers. Texts
// are compared if both sides have one.
func compare(a, b *play) []Difference {
	var all []Difference
	for _, at := range a.probeKeys() {
		x, y := a.counted(at), b.counted(at)
		if d, ok := firstDifference(x, y, a.lines[at].check.Via == ViaTCP); ok {
			d.Script, d.Container, d.Kind = a.script, at.container, at.kind
			all = append(all, d)
		}
	}
	return append(all, compareFlags(a, b)...)
}

// firstDifference compares notes. If the kernel answers, the step of a verdict does not matter.
func firstDifference(x, y []note, anyStep bool) (Difference, bool) {
	for i := range max(len(x), len(y)) {
		m, n := at(x, i), at(y, i)
		if m.what != n.what || m.step != n.step && !anyStep {
			return Difference{Step: min(m.step, n.step), Field: "notes", Kubelet: notesText(x, i), Sonde: notesText(y, i)}, true
		}
		if m.text != n.text && m.text != untold && n.text != untold {
			return Difference{Step: m.step, Field: "text of " + m.what, Kubelet: m.text, Sonde: n.text}, true
		}
	}
	return Difference{}, false
}

// untold is the text of a note on a side without texts.
const untold = "?"

// past stands for the note after the last one.
var past = note{step: 1 << 30, what: "nothing more"}

func at(notes []note, i int) note {
	if i < len(notes) {
		return notes[i]
	}
	return past
}

// notesText returns the notes up to the i-th as text.
func notesText(notes []note, i int) string {
	var b strings.Builder
	step := -1
	for _, n := range notes[:min(i+1, len(notes))] {
		if n.step != step {
			step = n.step
			fmt.Fprintf(&b, "[%d] ", step)
		}
		b.WriteString(n.what + "; ")
	}
	if i >= len(notes) {
		b.WriteString(past.what)
	}
	return b.String()
}

// counted returns the notes of a probe that are compared. Of several verdicts published in one pass of a worker, only the last one
// is compared (K60). If the kernel answers, the number of attempts is not compared.
func (p *play) counted(at probeKey) []note {
	l := p.lines[at]
	var counted []note
	for _, n := range l.notes {
		kernels := l.check.Via == ViaTCP && strings.HasPrefix(n.what, "answer")
		if kernels || covered(observation{p.script, p.script.container(at.container), at.kind, n.step, n.what}) {
			continue
		}
		if last := len(counted) - 1; last >= 0 && oneLook(p.script, at.kind, counted[last], n) {
			counted[last] = n
			continue
		}
		counted = append(counted, n)
	}
	return counted
}

// oneLook reports whether two notes are from a single pass of a worker: the initial verdict of a new instance, and the verdict for
// an instance that is not running or whose pod is being deleted.
func oneLook(s *Script, k probe.Kind, a, b note) bool {
	if a.step != b.step || a.step < 0 || !strings.HasPrefix(a.what, "publish") || !strings.HasPrefix(b.what, "publish") {
		return false
	}
	switch s.Steps[a.step].Do {
	case Wait, Exit, Stall, Succeed, Add, Sync:
		return true
	}
	return s.Deleting && k != probe.Readiness
}

func compareFlags(a, b *play) []Difference {
	x, y := a.uncovered(), b.uncovered()
	for i := range max(len(x), len(y)) {
		m, n := sumAt(x, i), sumAt(y, i)
		if m != n {
			return []Difference{{Script: a.script, Container: m.container, Step: m.step, Field: "flags", Kubelet: m.text, Sonde: n.text}}
		}
	}
	return nil
}

func sumAt(flags []sum, i int) sum {
	if i < len(flags) {
		return flags[i]
	}
	return sum{past.step, "", past.what}
}

// uncovered returns the flags that no row covers.
func (p *play) uncovered() []sum {
	return slices.DeleteFunc(slices.Clone(p.flags), func(f sum) bool {
		c := p.script.container(f.container)
		return c != nil && covered(observation{p.script, c, 0, f.step, f.text})
	})
}
