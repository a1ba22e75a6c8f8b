package compiler

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
)

const (
	mib   = 1 << 20
	group = "/sys/fs/cgroup/a/memory.max"
)

// admissionOf returns an admission where that many bytes are left.
func admissionOf(left int64) *admission {
	return &admission{left: func() (int64, string) { return left, group }, ended: make(chan struct{})}
}

func TestTheChildrenShareHalfOfWhatIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		left   int64
		asked  []int64 // of compilations at the same time
		want   []int64 // what those get that are admitted; 0: it waits
		shared []bool
	}{
		"no limit":                       {math.MaxInt64, []int64{512 * mib, 512 * mib, 512 * mib}, []int64{512 * mib, 512 * mib, 0}, []bool{false, false, false}},
		"enough for two":                 {1024 * mib, []int64{256 * mib, 256 * mib}, []int64{256 * mib, 256 * mib}, []bool{false, false}},
		"enough for one":                 {1000 * mib, []int64{256 * mib, 256 * mib}, []int64{256 * mib, 0}, []bool{false, false}},
		"not enough":                     {200 * mib, []int64{256 * mib, 256 * mib}, []int64{100 * mib, 0}, []bool{true, false}},
		"a small one beside a large one": {600 * mib, []int64{256 * mib, 44 * mib}, []int64{256 * mib, 44 * mib}, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admissionOf(test.left)
				for i, asked := range test.asked {
					ctx, cancel := context.WithCancel(t.Context())
					var got Limits
					var err error
					done := make(chan struct{})
					go func() {
						defer close(done)
						got, err = a.admit(ctx, Limits{Memory: asked})
					}()
					synctest.Wait()
					cancel()
					<-done
					switch {
					case test.want[i] == 0:
						if !errors.Is(err, context.Canceled) {
							t.Errorf("compilation %d did not wait: %+v, %v", i, got, err)
						}
					case err != nil || got.Memory != test.want[i] || (got.group == group) != test.shared[i]:
						t.Errorf("compilation %d got %+v, %v", i, got, err)
					}
				}
			})
		})
	}
}

func TestACompilationWaitsForTheMemoryOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(200 * mib)
		first, err := a.admit(t.Context(), Limits{Memory: 256 * mib})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan Limits)
		go func() {
			second, err := a.admit(t.Context(), Limits{Memory: 256 * mib})
			if err != nil {
				t.Error(err)
			}
			done <- second
		}()
		synctest.Wait()
		a.end(first.Memory)
		if second := <-done; second.Memory != 100*mib {
			t.Errorf("got %+v", second)
		}
	})
}

func TestWithoutMemoryACompilationIsRefused(t *testing.T) {
	_, err := admissionOf(40*mib).admit(t.Context(), Limits{Memory: 256 * mib})
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), "40MiB of memory are left below the limit "+group+", at least 64MiB are needed: raise it") {
		t.Errorf("got %v", err)
	}
}
