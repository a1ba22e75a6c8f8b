package main

import (
	"testing"
	"time"
)

func TestTheMachinesPressureIsPrinted(t *testing.T) {
	before := pressure{"cpu": time.Second, "io": 2 * time.Second, "memory": 0}
	after := pressure{"cpu": 11 * time.Second, "io": 3 * time.Second, "memory": 0}
	const want = "at least one process waited for a processor 50% of the time, for a disk 5%, for memory 0%\n"
	if got := after.since(before, 20*time.Second); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (pressure{}).since(pressure{}, time.Second); got != "" {
		t.Errorf("a kernel that does not say it: %q", got)
	}
}
