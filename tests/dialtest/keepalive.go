package dialtest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// WaitForKeepAlive waits until the system sends keepalive packets over a connection of this network to a port, the next one
// after about so many seconds. It skips the test where the system does not say.
func WaitForKeepAlive(t testing.TB, port uint16, seconds int64) {
	t.Helper()
	testsync.Until(t, "keepalive packets", func() bool {
		left := keepAliveIdle(t, port)
		return seconds*9/10 < left && left <= seconds+1
	})
}

// keepAliveIdle returns for how many seconds the system of an established connection of this network to a port will yet wait,
// before it sends a keepalive packet: 0 if it sends none.
func keepAliveIdle(t testing.TB, port uint16) int64 {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line) // Documentation/networking/proc_net_tcp.rst
		if len(fields) < 6 || fields[3] != "01" || !strings.HasSuffix(fields[2], ":"+strings.ToUpper(strconv.FormatInt(0x10000+int64(port), 16)[1:])) {
			continue
		}
		kind, when, _ := strings.Cut(fields[5], ":")
		ticks, err := strconv.ParseInt(when, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if kind == "02" {
			return ticks / 100 // USER_HZ
		}
	}
	return 0
}
