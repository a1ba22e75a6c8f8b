package compiler

import (
	"errors"
	"math"
	"strings"
	"testing"
)

const (
	mib   = 1 << 20
	group = "/sys/fs/cgroup/a/memory.max"
)

func TestAChildHasAtMostHalfOfTheMemoryThatIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		left, want int64
		group      string
	}{
		"no limit":   {math.MaxInt64, 256 * mib, ""},
		"enough":     {512 * mib, 256 * mib, ""},
		"not enough": {200 * mib, 100 * mib, group},
	} {
		got, err := Limits{Memory: 256 * mib}.within(test.left, group)
		if err != nil || got.Memory != test.want || got.group != test.group {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestWithoutMemoryACompilationIsRefused(t *testing.T) {
	_, err := Limits{Memory: 256 * mib}.within(40*mib, group)
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), "40MiB of memory is left below the limit "+group+", want at least 64MiB: raise the limit") {
		t.Errorf("got %v", err)
	}
}
