// Package redact replaces known sensitive values in texts, such as the output of a command that
// prints its password.
package redact

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Limits of a Redactor.
const (
	MinValue  = 6         // bytes of a value; a shorter one would be found in many innocent texts
	MaxValues = 10_000    // any more are not replaced
	MaxText   = 256 << 10 // bytes of all values together, likewise
)

// Mark stands for a value that was replaced.
const Mark = "(sensitive)"

// Redactor replaces known values. The zero Redactor knows none. It is safe for concurrent use by
// multiple goroutines.
type Redactor struct {
	addMu sync.Mutex // one Add at a time
	known atomic.Pointer[known]
}

type known struct {
	values   map[string]bool
	size     int
	replacer *strings.Replacer
}

// Add adds values, and reports whether there was room for all of them. White space around a
// value, and values shorter than MinValue, are ignored. The lines of a value with several are
// values, too.
func (r *Redactor) Add(values []string) bool {
	r.addMu.Lock()
	defer r.addMu.Unlock()
	now, before := &known{values: map[string]bool{}}, r.known.Load()
	if before != nil {
		for v := range before.values {
			now.add(v)
		}
	}
	all := true
	for _, v := range values {
		all = now.add(v) && all
		for line := range strings.Lines(v) {
			all = now.add(line) && all
		}
	}
	if before != nil && len(now.values) == len(before.values) || len(now.values) == 0 {
		return all
	}
	sorted := make([]string, 0, len(now.values))
	for v := range now.values {
		sorted = append(sorted, v)
	}
	slices.SortFunc(sorted, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }) // the longest wins
	pairs := make([]string, 0, 2*len(sorted))
	for _, v := range sorted {
		pairs = append(pairs, v, Mark)
	}
	now.replacer = strings.NewReplacer(pairs...)
	r.known.Store(now)
	return all
}

// add adds a value, and reports whether there was room for it.
func (k *known) add(v string) bool {
	v = strings.TrimSpace(v)
	if len(v) < MinValue || k.values[v] {
		return true
	}
	if len(k.values) == MaxValues || k.size+len(v) > MaxText {
		return false
	}
	k.values[v] = true
	k.size += len(v)
	return true
}

// Text returns a text with Mark in place of each known value. Its cost grows with the length of
// the text, and hardly with the number of values.
func (r *Redactor) Text(s string) string {
	if k := r.known.Load(); k != nil && len(s) >= MinValue {
		return k.replacer.Replace(s)
	}
	return s
}
