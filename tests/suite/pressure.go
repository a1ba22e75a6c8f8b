package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// pressure is how long, in total, processes have waited for each resource: see proc_pressure(5). It is empty if the kernel does not
// say so.
type pressure map[string]time.Duration

func readPressure() pressure {
	all := pressure{}
	for _, resource := range []string{"cpu", "io", "memory"} {
		text, _ := os.ReadFile("/proc/pressure/" + resource) // only on Linux, if its kernel is built with it
		_, total, _ := strings.Cut(string(text), "total=")
		var microseconds int64
		if _, err := fmt.Sscan(total, &microseconds); err == nil {
			all[resource] = time.Duration(microseconds) * time.Microsecond
		}
	}
	return all
}

// since returns the share of the time in which at least one process waited for each resource: a loaded machine explains timeouts.
func (p pressure) since(before pressure, took time.Duration) string {
	if len(before) == 0 || len(p) == 0 || took <= 0 {
		return ""
	}
	share := func(resource string) float64 { return 100 * float64(p[resource]-before[resource]) / float64(took) }
	return fmt.Sprintf("at least one process waited for a processor %.0f%% of the time, for a disk %.0f%%, for memory %.0f%%\n", share("cpu"), share("io"), share("memory"))
}
