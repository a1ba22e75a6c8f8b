//go:build linux

package gray

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sonde-probe/sonde/tests/faulttest"
)

// hosts maps names with several addresses, of targets and twins.
const hosts = `127.0.0.1 localhost
127.1.5.1 two1.test
127.1.5.11 two1.test
127.1.5.2 two2.test
127.1.5.12 two2.test
127.1.6.1 both1.test
fd00::6:1 both1.test
127.1.6.2 both2.test
fd00::6:2 both2.test
`

// nameServers are the addresses of the name servers. The first one becomes silent.
var nameServers = [...]string{"127.1.10.11", "127.1.10.12"}

// useNames replaces the hosts file and the name servers of this machine until the test ends.
func useNames(t *testing.T) (silence func()) {
	faulttest.Replace(t, "/etc/hosts", hosts)
	faulttest.Replace(t, "/etc/resolv.conf", "nameserver "+strings.Join(nameServers[:], "\nnameserver ")+"\n")
	var silent atomic.Bool
	for i, ip := range nameServers {
		conn, err := net.ListenPacket("udp", ip+":53")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		go faulttest.ServeNames(conn, func(name string) (netip.Addr, bool) {
			var n byte
			if _, err := fmt.Sscanf(name, "names%d.test", &n); err != nil {
				return netip.Addr{}, true
			}
			return netip.AddrFrom4([4]byte{127, 1, 10, n}), i > 0 || !silent.Load()
		})
	}
	return func() { silent.Store(true) }
}

// plain serves HTTP on port 80, always healthy.
func plain(t *testing.T, ip string) { serveHTTP(t, listen(t, ip, 80), ok) }

// twoAddresses serves HTTP on two addresses. After the fault, packets to the second one are dropped.
func twoAddresses(t *testing.T, ip string) (fail func()) {
	second := ip[:len(ip)-1] + "1" + ip[len(ip)-1:]
	plain(t, ip)
	plain(t, second)
	return func() { drop(t, "ip daddr "+second) }
}

// bothFamilies serves HTTP on an IPv4 and an IPv6 address. After the fault, packets to the second one are dropped.
func bothFamilies(t *testing.T, ip string) (fail func()) {
	second := "fd00::6:" + ip[len(ip)-1:]
	if out, err := exec.Command("ip", "-6", "addr", "add", second+"/128", "dev", "lo", "nodad").CombinedOutput(); err != nil {
		t.Fatalf("ip addr add %s: %v: %s", second, err, out)
	}
	plain(t, ip)
	plain(t, second)
	return func() { drop(t, "ip6 daddr "+second) }
}

// dropping returns a function that serves HTTP. After the fault, packets to the server that match are dropped.
func dropping(match string) func(t *testing.T, ip string) (fail func()) {
	return func(t *testing.T, ip string) func() {
		plain(t, ip)
		return func() { drop(t, "ip daddr "+ip+" "+match) }
	}
}

// drop drops incoming packets that match, until the test ends.
func drop(t *testing.T, match string) {
	faulttest.Filter(t, "chain c { type filter hook input priority 0; "+match+" drop; }")
}
