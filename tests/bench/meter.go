//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// cpu returns the user and system time of a process with all its threads, including ended ones. /proc/PID/stat has the same data,
// but in steps of 10 ms.
func cpu(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of linux/posix-timers.h
	clock := int32(^pid<<3 | scheduler)
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return 0, fmt.Errorf("cpu time of process %d: %w", pid, errno)
	}
	return time.Duration(t.Nano()), nil
}

// ownCPU returns the CPU time of this process and of its children that have exited and were reaped.
func ownCPU() (time.Duration, error) {
	var all time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0, fmt.Errorf("getrusage: %w", err)
		}
		all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all, nil
}

// opened returns the number of TCP connections opened so far in this network namespace.
func opened() (uint64, error) {
	const file = "/proc/net/snmp"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Tcp:" {
			continue
		}
		if at := slices.Index(names, "ActiveOpens"); at > 0 && at < len(fields) {
			return strconv.ParseUint(fields[at], 10, 64)
		}
		names = fields
	}
	return 0, fmt.Errorf("%s has no ActiveOpens", file)
}

// resident and peak return the current and the maximum resident memory of a process, in
// bytes.
func resident(pid int) (float64, error) { return memory(pid, "status", "VmRSS:") }
func peak(pid int) (float64, error)     { return memory(pid, "status", "VmHWM:") }

// proportional returns the resident memory of a process, in bytes. A page that is mapped several times, such as a page of a
// plugin's image, counts once.
func proportional(pid int) (float64, error) { return memory(pid, "smaps_rollup", "Pss:") }

func memory(pid int, name, field string) (float64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 3 && words[0] == field {
			n, err := strconv.ParseFloat(words[1], 64)
			return n * 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file.Name(), field)
}
