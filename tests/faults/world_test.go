//go:build linux

package faults

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// device is the interface that leads from the prober to the targets.
const device = "sonde0"

// world is a server in its own network namespace, and the link to it.
type world struct {
	server int // its process
	in     io.WriteCloser
	out    *bufio.Scanner
}

// newWorld starts the server.
func newWorld(t *testing.T) *world {
	tier.Needs(t, "ip", "nft", "nsenter")
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), roleVariable+"=1")
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w := &world{server: c.Process.Pid, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		_ = c.Wait()
		_ = exec.Command("ip", "link", "del", device).Run()
	})
	w.await(t, "ready")
	pid := strconv.Itoa(w.server)
	command(t, "ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", pid)
	command(t, "ip", "addr", "add", "10.78.0.1/30", "dev", device)
	command(t, "ip", "link", "set", device, "up")
	for _, args := range []string{
		"link set lo up", "addr add 10.78.0.2/30 dev eth0", "link set eth0 up", "route add local " + network.String() + " dev lo",
	} {
		command(t, "nsenter", append([]string{"-t", pid, "-n", "ip"}, strings.Fields(args)...)...)
	}
	route(t)
	for _, n := range [...]int{nameServer, otherNameServer} {
		w.tell(t, "names "+addressOf(n).String())
	}
	return w
}

// useNameServers sets the name servers of the prober, by the numbers of their addresses, until the test ends.
func useNameServers(t *testing.T, numbers ...int) {
	var conf strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&conf, "nameserver %v\n", addressOf(n))
	}
	faulttest.Replace(t, "/etc/resolv.conf", conf.String())
}

// route sets the route to the targets, which is lost when the link goes down.
func route(t *testing.T) {
	command(t, "ip", "route", "replace", network.String(), "via", "10.78.0.2")
}

// command runs a command that must succeed.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// await reads the next line of the server.
func (w *world) await(t *testing.T, want string) {
	t.Helper()
	if !w.out.Scan() || w.out.Text() != want {
		t.Fatalf("the server says %q, want %q: %v", w.out.Text(), want, w.out.Err())
	}
}

// tell sends a command to the server.
func (w *world) tell(t *testing.T, command string) {
	t.Helper()
	if _, err := fmt.Fprintln(w.in, command); err != nil {
		t.Fatal(err)
	}
	w.await(t, "done")
}
