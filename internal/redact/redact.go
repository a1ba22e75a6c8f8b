// Package redact replaces known sensitive values in texts, such as the output of a command that prints its password.
//
// The daemon has one Redactor, which daemon.addSecrets fills. Log lines, results of attempts (engine.Config.Redact), the
// output of restart commands, notices, failures of gateways and errors of reloads pass through it. Package config masks
// its own diagnostics (sourcetexts.go) and settings (shown.go).
package redact

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// Limits of a Redactor.
const (
	minValue  = 6         // bytes of a value; a shorter one would be found in many harmless texts
	MaxValues = 10_000    // further values are not replaced
	MaxText   = 256 << 10 // total bytes of all values; further values are not replaced
)

// Mark replaces a value.
const Mark = "(sensitive)"

// Redactor replaces known values. The zero Redactor has none. It is safe for concurrent use.
type Redactor struct {
	known atomic.Pointer[known]
}

type known struct {
	values   map[string]bool
	size     int
	replacer *strings.Replacer
}

// Add adds values, and reports whether all were within the limits. It trims white space around a value, and ignores
// values shorter than minValue. It also adds each line of a value with several lines.
func (r *Redactor) Add(values []string) bool {
	for {
		before := r.known.Load()
		now, all := before.with(values)
		if now == before || len(now.values) == 0 || r.known.CompareAndSwap(before, now) {
			return all
		}
	}
}

// with returns k with additional values, and whether all were within the limits. k may be nil.
func (k *known) with(values []string) (now *known, all bool) {
	now, all = &known{values: map[string]bool{}}, true
	if k != nil {
		now.values, now.size = maps.Clone(k.values), k.size
	}
	for _, v := range values {
		all = now.add(v) && all
		for line := range strings.Lines(v) {
			all = now.add(line) && all
		}
	}
	if k != nil && len(now.values) == len(k.values) {
		return k, all
	}
	longestFirst := func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }
	pairs := make([]string, 0, 2*len(now.values))
	for _, v := range slices.SortedFunc(maps.Keys(now.values), longestFirst) {
		pairs = append(pairs, v, Mark)
	}
	now.replacer = strings.NewReplacer(pairs...)
	return now, all
}

// add adds a value, and reports whether it was within the limits.
func (k *known) add(v string) bool {
	v = strings.TrimSpace(v)
	if len(v) < minValue || k.values[v] {
		return true
	}
	if len(k.values) == MaxValues || k.size+len(v) > MaxText {
		return false
	}
	k.values[v] = true
	k.size += len(v)
	return true
}

// Text returns a text with Mark in place of each known value. Its cost is proportional to the length of the text, and
// almost independent of the number of values.
func (r *Redactor) Text(s string) string {
	if k := r.known.Load(); k != nil && len(s) >= minValue {
		return k.replacer.Replace(s)
	}
	return s
}
