package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// process decodes the blocks process, restart and back_off of a target.
func (l *loader) process(target *tree.Block, blocks []*tree.Block, t *Target) {
	first := make(map[string]*tree.Block)
	for _, b := range blocks {
		if b.Type == "probe" {
			continue
		}
		if f, twice := first[b.Type]; twice {
			l.add(report{
				at: b.Header, body: &target.Body, summary: fmt.Sprintf("there are two %s blocks", b.Type), hint: "keep one of them",
				notes: []Note{l.note("the first is here", f.Header)},
			})
			continue
		}
		first[b.Type] = b
	}
	if b := first["process"]; b != nil {
		t.Process = new(Process)
		l.command(l.record(b, l.shapes.process), t.Process)
	}
	if b := first["restart"]; b != nil {
		t.Restart = &Restart{Timeout: DefaultRestartTimeout}
		r := l.record(b, l.shapes.restart)
		l.command(r, t.Restart)
		l.positive(r, "timeout", int64(t.Restart.Timeout))
	}
	if b := first["back_off"]; b != nil {
		l.backOff(b, t)
	}
	if first["process"] != nil && first["restart"] != nil {
		l.add(report{
			at: first["restart"].Header, body: &target.Body, summary: "a target has either process or restart, not both",
			hint:  "with process the engine restarts it by itself",
			notes: []Note{l.note("process is here", first["process"].Header)},
		})
	}
}

// command decodes a block with a command.
func (l *loader) command(r *record, to any) {
	l.fill(r, to)
	command, given := r.values["command"].([]string)
	switch {
	case given && len(command) == 0:
		l.refuse(r, "command", "must not be empty")
	case given && command[0] == "":
		l.refuse(r, "command", "must begin with the name of a program")
	case slices.ContainsFunc(command, func(s string) bool { return strings.ContainsRune(s, 0) }):
		l.refuse(r, "command", "must not hold a zero byte")
	}
	env, _ := r.values["env"].(map[string]string)
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			l.refuse(r, "env", "has a name or value that no environment can hold")
			break
		}
	}
}

func (l *loader) backOff(b *tree.Block, t *Target) {
	r := l.record(b, l.shapes.backOff)
	l.fill(r, &t.BackOff)
	l.positive(r, "initial", int64(t.BackOff.Initial))
	l.positive(r, "max", int64(t.BackOff.Max))
	l.positive(r, "reset", int64(t.BackOff.Reset))
	if r.ok && t.BackOff.Initial > t.BackOff.Max {
		l.add(report{
			at: b.Header, body: &b.Body, summary: fmt.Sprintf("initial (%v) is longer than max (%v)", t.BackOff.Initial, t.BackOff.Max),
			hint: "give both, with initial the shorter one",
		})
	}
}

func (l *loader) positive(r *record, name string, d int64) {
	if _, given := r.values[name]; given && (d <= 0 || d > int64(probe.MaxDuration)) {
		l.refuse(r, name, fmt.Sprintf("must be more than 0 and at most %v", probe.MaxDuration))
	}
}

func hasBlock(blocks []*tree.Block, types ...string) bool {
	return slices.ContainsFunc(blocks, func(b *tree.Block) bool { return slices.Contains(types, b.Type) })
}
