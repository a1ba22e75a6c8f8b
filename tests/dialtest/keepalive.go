package dialtest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// WaitForKeepAlive waits until a connection of this network namespace to a port has a keepalive timer of about that many seconds.
// It skips the test if the system does not report it.
func WaitForKeepAlive(t testing.TB, port uint16, seconds int64) {
	t.Helper()
	testsync.Until(t, "keepalive packets", func() bool {
		left := keepAliveIdle(t, port)
		return seconds*9/10 < left && left <= seconds+1
	})
}

// keepAliveIdle returns after how many seconds the system sends the next keepalive packet over an established connection of this
// network namespace to a port; 0 if it sends none.
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
