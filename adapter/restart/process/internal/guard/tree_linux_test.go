package guard

import (
	"os/exec"
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
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for name, found := range map[string][]int{"children": children(), "by parent": childrenByParent()} {
		if len(found) != 1 || found[0] != child.Process.Pid {
			t.Errorf("%s: %v, want %d", name, found, child.Process.Pid)
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
}
