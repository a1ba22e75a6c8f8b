//go:build linux

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fault is something that happens to the prober, and never to a target.
type fault struct {
	name   string
	inject func(t *testing.T, p *prober) (heal func())
	lasts  time.Duration
	blind  bool     // the prober can see no target meanwhile: real failures are injected afterwards
	hides  []string // the handlers whose targets cannot be seen meanwhile
	unread bool     // the log is not read, from the start
}

// faults are all of them.
func faults() []fault {
	return []fault{
		{name: "stopped", inject: stop, lasts: 5 * time.Second, blind: true},
		{name: "starved of CPU time", inject: starve, lasts: 10 * time.Second},
		{name: "descriptors", inject: limitDescriptors, lasts: 10 * time.Second, blind: true},
		{name: "ports", inject: limitPorts, lasts: 10 * time.Second},
		{name: "threads", inject: limitThreads, lasts: 10 * time.Second, hides: []string{"exec"}},
		{name: "memory", inject: limitMemory, lasts: 5 * time.Second, blind: true},
		{name: "clock one hour ahead", inject: moveClock(time.Hour), lasts: 10 * time.Second},
		{name: "clock one hour behind", inject: moveClock(-time.Hour), lasts: 10 * time.Second},
		{name: "dead name server", inject: drop("udp dport 53"), lasts: 10 * time.Second, hides: []string{"name"}},
		{name: "link down", inject: linkDown, lasts: 10 * time.Second, blind: true},
		{name: "packets dropped", inject: drop("ip protocol { tcp, udp }"), lasts: 10 * time.Second, blind: true},
		{name: "log not read", inject: blockLog, lasts: 10 * time.Second, unread: true},
		{name: "log closed", inject: closeLog, lasts: 10 * time.Second},
	}
}

// stop stops the process, as a frozen virtual machine does.
func stop(t *testing.T, p *prober) func() {
	send(t, p, unix.SIGSTOP)
	return func() { send(t, p, unix.SIGCONT) }
}

func send(t *testing.T, p *prober, s unix.Signal) {
	if err := p.process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// group puts the prober into a control group (version 1) of its own, with one file set.
// The file is written back to another value to heal it.
func group(t *testing.T, p *prober, controller, file, value, healed string) (heal func()) {
	dir := filepath.Join("/sys/fs/cgroup", controller, "sonde-faults-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("needs the control group controller ", controller, ": ", err)
	}
	t.Cleanup(func() { // after the prober has ended
		_ = os.Remove(dir)
	})
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.procs", strconv.Itoa(p.process.Pid))
	write(file, value)
	return func() {
		write(file, healed)
		if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.procs"), []byte(strconv.Itoa(p.process.Pid)), 0); err != nil {
			t.Error(err)
		}
	}
}

// starve leaves the prober 5 % of a processor.
func starve(t *testing.T, p *prober) func() {
	return group(t, p, "cpu", "cpu.cfs_quota_us", "5000", "-1") // of a period of 100 ms
}

// limitThreads allows the prober no further thread or process.
func limitThreads(t *testing.T, p *prober) func() {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return group(t, p, "pids", "pids.max", strconv.Itoa(len(tasks)), "max")
}

// limitMemory stops the prober at its next allocation.
func limitMemory(t *testing.T, p *prober) func() {
	dir := "/sys/fs/cgroup/memory"
	if _, err := os.Stat(filepath.Join(dir, "memory.oom_control")); err != nil {
		t.Skip("needs the control group controller memory of version 1: ", err)
	}
	heal := group(t, p, "memory", "memory.oom_control", "1", "1") // stop instead of kill
	file := filepath.Join(dir, "sonde-faults-"+strconv.Itoa(os.Getpid()), "memory.limit_in_bytes")
	if err := os.WriteFile(file, []byte("1048576"), 0); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(file, []byte("-1"), 0); err != nil {
			t.Error(err)
		}
		heal()
	}
}

// limitDescriptors leaves the prober hardly any descriptors beside those that it has.
func limitDescriptors(t *testing.T, p *prober) func() {
	var before unix.Rlimit
	if err := unix.Prlimit(p.process.Pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 24, Max: before.Max}
	if err := unix.Prlimit(p.process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(p.process.Pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
			t.Error(err)
		}
	}
}

// limitPorts leaves the namespace 16 ports for outgoing connections.
func limitPorts(t *testing.T, _ *prober) func() {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(file, []byte("40000 40015"), 0); err != nil {
		t.Skip("cannot set the range of ports: ", err)
	}
	return func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			t.Error(err)
		}
	}
}

// clockVariable is the environment variable that permits to set the clock, which is
// that of the whole machine.
const clockVariable = "SONDE_FAULTS_CLOCK"

// moveClock sets the machine's clock.
func moveClock(by time.Duration) func(*testing.T, *prober) func() {
	move := func(t *testing.T, by time.Duration) {
		ts := unix.NsecToTimespec(time.Now().Round(0).Add(by).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
			t.Skip("cannot set the clock: ", err)
		}
	}
	return func(t *testing.T, _ *prober) func() {
		if os.Getenv(clockVariable) == "" {
			t.Skip("sets the clock of the machine; set " + clockVariable + "=1 to permit it")
		}
		move(t, by)
		return func() { move(t, -by) }
	}
}

// drop drops packets of the prober on their way, so that it gets no error.
func drop(match string) func(*testing.T, *prober) func() {
	return func(t *testing.T, p *prober) func() {
		p.nft(t, "table ip sonde { chain input { type filter hook input priority 0; iifname eth0 "+match+" drop; }; }")
		return func() { p.nft(t, "delete table ip sonde") }
	}
}

// linkDown takes the interface to the targets down.
func linkDown(t *testing.T, _ *prober) func() {
	command(t, "ip", "link", "set", device, "down")
	return func() {
		command(t, "ip", "link", "set", device, "up")
		route(t)
	}
}

// blockLog fills the pipe of the log, which is not read.
func blockLog(t *testing.T, p *prober) func() {
	fill, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", p.process.Pid), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	if err := fill.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for line := []byte(strings.Repeat(" ", 99) + "\n"); ; {
		if _, err := fill.Write(line); err != nil {
			break
		}
	}
	return func() { go p.readLog() }
}

// closeLog closes the reading end of the log's pipe.
func closeLog(t *testing.T, p *prober) func() {
	p.log.Close()
	return func() {}
}
