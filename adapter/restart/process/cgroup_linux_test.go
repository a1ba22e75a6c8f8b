package process

import (
	"os"
	"testing"
)

func TestParentIsParsedForAnyProcessName(t *testing.T) {
	for stat, want := range map[string]int{
		"12 (sh) S 34 12 12 0":          34,
		"12 (a) R 99 (b) S 34 12 12":    34,
		"12 (new\nline) S 34 12 12 0":   34,
		"12 (sh)":                       0,
		"":                              0,
		"12 (sh) S not-a-number 12 12 ": 0,
	} {
		if got := parent([]byte(stat)); got != want {
			t.Errorf("parent(%q) = %d, want %d", stat, got, want)
		}
	}
}

func TestBothWaysFindTheSameChildren(t *testing.T) {
	l := begin(t, sh(`echo ready; sleep 60`))
	l.await(t, "ready")
	guard := parentOf(l.pid(t))
	for name, found := range map[string][]int{"children": children(), "by parent": childrenByParent()} {
		if len(found) != 1 || found[0] != guard {
			t.Errorf("%s: %v, want %d", name, found, guard)
		}
	}
	l.cancel()
	l.exit(t)
	if parentOf(os.Getpid()) != os.Getppid() {
		t.Error("parentOf is wrong about this process")
	}
}
