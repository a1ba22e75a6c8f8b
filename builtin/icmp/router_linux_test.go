package icmpprobe

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// namespace starts a process with its own network, until the test ends, and returns its ID.
func namespace(t *testing.T) (pid string) {
	t.Helper()
	needRoot(t)
	c := exec.Command("sleep", "infinity")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Skip("needs a network namespace: ", err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return strconv.Itoa(c.Process.Pid)
}

// within runs a shell command in the network of a process.
func within(t *testing.T, pid, line string) {
	t.Helper()
	if out, err := exec.Command("nsenter", "-t", pid, "-n", "sh", "-ec", line).CombinedOutput(); err != nil {
		t.Skipf("%s: %v: %s", line, err, out)
	}
}

// behindARouter creates a host at 198.18.2.2 and fd00:2::2 that is reached through a Linux router, and returns the ID of the
// process with the router's network.
func behindARouter(t *testing.T) (router string) {
	t.Helper()
	tier.Needs(t, "ip", "nsenter")
	router, host := namespace(t), namespace(t)
	ip(t, "link add router0 type veth peer name near netns "+router)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "router0").Run() })
	within(t, router, "ip link add far type veth peer name eth0 netns "+host)
	addresses := func(device string, network, number int) string {
		return fmt.Sprintf("ip addr add 198.18.%[2]d.%[3]d/24 dev %[1]s; ip addr add fd00:%[2]d::%[3]d/64 dev %[1]s nodad; ip link set %[1]s up", device, network, number)
	}
	for _, line := range strings.Split(addresses("router0", 1, 1), "; ") {
		ip(t, strings.TrimPrefix(line, "ip "))
	}
	within(t, router, addresses("near", 1, 2)+"; "+addresses("far", 2, 1)+"; echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")
	within(t, host, addresses("eth0", 2, 2)+"; ip route add default via 198.18.2.1; ip -6 route add default via fd00:2::1")
	ip(t, "route add 198.18.2.0/24 via 198.18.1.2")
	ip(t, "-6 route add fd00:2::/64 via fd00:1::2")
	return router
}

// A router reports that the TTL of a request is exceeded, and its own address. With a TTL one higher, the host replies.
func TestARouterSaysThatTheTTLIsExceeded(t *testing.T) {
	router := behindARouter(t)
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		for address, from := range map[string]string{"198.18.2.2": "198.18.1.2", "fd00:2::2": "fd00:1::2"} {
			reaches := newHandler(t, Config{TTL: 2})
			reaches.onlyRaw = onlyRaw
			testsync.Until(t, "the way to "+address, func() bool { return attempt(t, reaches, address).Outcome == probe.Success })

			within(t, router, "echo 0 >/proc/sys/net/ipv4/icmp_ratelimit; echo 0 >/proc/sys/net/ipv6/icmp/ratelimit")
			h := newHandler(t, Config{TTL: 1})
			h.onlyRaw = onlyRaw
			want(t, attempt(t, h, address), probe.Failure, probe.ReasonICMPTTLExceeded, from+" says: the TTL of the request is exceeded")
		}
	})
}

// A router without a route to the host reports that.
func TestARouterSaysThatAHostIsUnreachable(t *testing.T) {
	router := behindARouter(t)
	within(t, router, "ip route add unreachable 198.18.2.7/32; ip -6 route add unreachable fd00:2::7/128; echo 0 >/proc/sys/net/ipv4/icmp_ratelimit; echo 0 >/proc/sys/net/ipv6/icmp/ratelimit")
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		for address, from := range map[string]string{"198.18.2.7": "198.18.1.2", "fd00:2::7": "fd00:1::2"} {
			h := newHandler(t, Config{})
			h.onlyRaw = onlyRaw
			testsync.Until(t, "the router", func() bool { return attempt(t, h, from).Outcome == probe.Success })
			want(t, attempt(t, h, address), probe.Failure, probe.ReasonICMPUnreachable, from+" says: ")
		}
	})
}
