//go:build linux

package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// fault is a fault of the prober, never of a target.
type fault struct {
	name   string
	inject func(t *testing.T, p *prober) (heal func())
	lasts  time.Duration
	times  int                               // in make long; default 1
	period time.Duration                     // of all probes, in make long; default usualPeriod
	felt   func(before, after reading) error // checks that the prober was affected by the fault; nil if nothing shows it

	liveness int           // number of targets, where all healthy ones have an http liveness probe; 0: as usual
	delay    time.Duration // of the responses of all targets
	blind    bool          // the prober can publish nothing before it is healed
	hides    []string      // handlers whose targets are invisible meanwhile
	hangs    bool          // targets that hang are detected meanwhile as well
	unread   bool          // the log is not read, from the start
	diskFull bool          // from the start
	alone    bool          // HAProxy is not affected

	twoNameServers bool
}

// faults returns all faults.
func faults() []fault {
	const some = 10 * time.Second
	return []fault{
		{name: "stopped", inject: each(stop), lasts: 5 * time.Second, times: 10, felt: stalled, delay: 200 * time.Millisecond, blind: true},
		{name: "stopped with http liveness", inject: each(stop), lasts: 5 * time.Second, times: 10, period: time.Second, felt: stalled, liveness: 1000 + firstHealthy, delay: 200 * time.Millisecond, blind: true},
		{name: "starved", inject: starve, lasts: some, period: some + some/2, felt: stalled, delay: 50 * time.Millisecond, hangs: true},
		{name: "descriptors", inject: each(limitDescriptors), lasts: some, felt: unknown, blind: true},
		{name: "ports", inject: takePorts, lasts: some, felt: unknown, blind: true},
		{name: "threads", inject: limitThreads, lasts: some, felt: unknown, hides: []string{"exec"}, alone: true},
		{name: "memory", inject: each(confine(faulttest.NoMemory())), lasts: 5 * time.Second, felt: stalled, delay: 200 * time.Millisecond, blind: true},
		{name: "clock an hour ahead", inject: moveClock(time.Hour), lasts: 3 * usualPeriod},
		{name: "clock an hour behind", inject: moveClock(-time.Hour), lasts: 3 * usualPeriod},
		{name: "dead name server", inject: drop("udp dport 53"), lasts: some, felt: unknown, hides: []string{"name"}},
		{name: "dead first name server", inject: dropFirstNameServer, lasts: some, twoNameServers: true},
		{name: "link down", inject: linkDown, lasts: some, felt: unknown, blind: true},
		{name: "packets dropped", inject: drop("ip protocol { tcp, udp }"), lasts: some, felt: unknown, blind: true},
		{name: "disk full", inject: exitOnFullDisk, lasts: some, felt: noRoom, diskFull: true, alone: true},
		{name: "log not read", inject: blockLog, lasts: some, unread: true, alone: true},
		{name: "log closed", inject: closeLog, lasts: some, alone: true},
	}
}

// stalled returns an error unless the prober has noticed that it was stopped or short of processor time.
func stalled(before, after reading) error {
	if after.health.Stalls == before.health.Stalls {
		return fmt.Errorf("the engine has noticed no stall: %+v", after.health)
	}
	return nil
}

// unknown returns an error unless there were attempts that could not be made.
func unknown(before, after reading) error {
	for name, is := range after.targets {
		if is.unknown > before.targets[name].unknown {
			return nil
		}
	}
	return fmt.Errorf("no attempt was unknown")
}

// noRoom returns an error unless neither the state nor the log could be written.
func noRoom(_, after reading) error {
	if after.stateErrors == 0 || after.logDropped == 0 {
		return fmt.Errorf("the state file was not written %v times, and %v log records were dropped", after.stateErrors, after.logDropped)
	}
	return nil
}

// each injects a fault into Sonde, and into HAProxy if it runs.
func each(inject func(t *testing.T, pid int) (heal func())) func(*testing.T, *prober) func() {
	return func(t *testing.T, p *prober) func() {
		heal := inject(t, p.process.Pid)
		if p.haproxy == nil {
			return heal
		}
		healOther := inject(t, p.haproxy.pid)
		return func() {
			heal()
			healOther()
		}
	}
}

func stop(t *testing.T, pid int) func() { return faulttest.Stop(t, pid) }

func confine(l faulttest.Limit) func(*testing.T, int) func() {
	return func(t *testing.T, pid int) func() { return faulttest.Confine(t, pid, l) }
}

// starve limits a process to less processor time than it uses: the few targets of the short form need some 3 % of a processor.
func starve(t *testing.T, p *prober) func() {
	return each(confine(faulttest.Processor(tier.Pick(2, 2, 5))))(t, p)
}

// limitDescriptors leaves a process hardly any descriptors beyond those that it has.
func limitDescriptors(t *testing.T, pid int) func() { return faulttest.DescriptorsOf(t, pid, 24) }

// limitThreads prevents the prober from starting another thread or process.
func limitThreads(t *testing.T, p *prober) func() {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return faulttest.Confine(t, p.process.Pid, faulttest.Processes(len(tasks)))
}

// takePorts leaves the namespace no ports for outgoing connections.
func takePorts(t *testing.T, _ *prober) func() {
	const file = "/proc/sys/net/ipv4/ip_local_reserved_ports"
	if err := os.WriteFile(file, []byte("1-65535"), 0); err != nil {
		t.Skip("cannot reserve the ports: ", err)
	}
	return func() {
		if err := os.WriteFile(file, []byte("\n"), 0); err != nil {
			t.Error(err)
		}
	}
}

// clockVariable is the environment variable that permits setting the clock of the whole machine.
const clockVariable = "SONDE_FAULTS_CLOCK"

func moveClock(by time.Duration) func(*testing.T, *prober) func() {
	return func(t *testing.T, _ *prober) func() {
		if os.Getenv(clockVariable) == "" {
			t.Skip("sets the clock of the machine; set " + clockVariable + "=1 to permit it")
		}
		return faulttest.MoveClock(t, by)
	}
}

// drop drops packets of the prober in transit, so that it gets no error.
func drop(match string) func(*testing.T, *prober) func() {
	return func(t *testing.T, p *prober) func() {
		return faulttest.FilterOf(t, p.server, "chain input { type filter hook input priority 0; iifname eth0 "+match+" drop; }")
	}
}

// dropFirstNameServer drops the queries to the name server that is queried first, and checks that there were some.
func dropFirstNameServer(t *testing.T, p *prober) func() {
	first := addressOf(otherNameServer).String()
	remove := drop("ip daddr "+first+" udp dport 53 counter")(t, p)
	return func() {
		rules, err := exec.Command("nsenter", "-t", strconv.Itoa(p.server), "-n", "nft", "list", "ruleset").Output()
		if err != nil || !bytes.Contains(rules, []byte("ip daddr "+first)) || bytes.Contains(rules, []byte("counter packets 0 ")) {
			t.Errorf("the first name server was not asked: %v\n%s", err, rules)
		}
		remove()
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

// exitOnFullDisk kills the process of the adopted target while the disk is full, and waits until it is started again.
func exitOnFullDisk(t *testing.T, p *prober) func() {
	tg := p.adoptedTarget()
	p.killAdopted(t)
	p.waitFor(t, "another instance", func(_ target, s state) bool { return s.restarts == 1 && s.verdict == probe.Passing }, tg)
	return func() {
		if err := os.Remove(p.filler()); err != nil {
			t.Error(err)
		}
	}
}

// blockLog fills the pipe of the log, which nobody reads.
func blockLog(t *testing.T, p *prober) func() {
	fill, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", p.process.Pid), os.O_WRONLY|syscall.O_NONBLOCK, 0)
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
