package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"time"
)

// States that are sent to a service manager: see sd_notify(3).
const (
	isReady     = "READY=1"
	isReloading = "RELOADING=1"
	isStopping  = "STOPPING=1"
	isAlive     = "WATCHDOG=1"
)

// notifyTimeout limits how long a notification waits for a service manager that does not read.
const notifyTimeout = 100 * time.Millisecond

// aliveReports is the number of alive reports within the service manager's limit. With several reports, one that is missing
// because of a late loop does not end the engine.
const aliveReports = 4

// serviceManager notifies systemd, or another service manager with the same protocol, of the engine's state. The zero value
// notifies nobody. The connection is opened once, since descriptors may run short later. It is safe for concurrent use.
type serviceManager struct {
	conn  net.Conn      // nil for none
	limit time.Duration // time without isAlive after which it ends the engine; 0 for none
}

// openServiceManager connects to the service manager named in the environment. Child processes of the engine do not inherit
// these variables.
func openServiceManager() (m serviceManager, err error) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return m, nil
	}
	if m.conn, err = net.Dial("unixgram", name); err != nil {
		if e, ok := errors.AsType[*net.OpError](err); ok {
			err = e.Err
		}
		return serviceManager{}, fmt.Errorf("the socket of NOTIFY_SOCKET: %w", err)
	}
	m.limit = watchdogLimit(os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"))
	return m, nil
}

// watchdogLimit returns the watchdog limit of this process, or 0 for none, as defined by sd_watchdog_enabled(3): usec is in
// microseconds, and pid is the process that it applies to, or empty for any process.
func watchdogLimit(usec, pid string) time.Duration {
	n, err := strconv.ParseInt(usec, 10, 64)
	isOther := pid != "" && pid != strconv.Itoa(os.Getpid())
	if err != nil || isOther || n < 0 || n > math.MaxInt64/int64(time.Microsecond) {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

// notify sends a state to the service manager. A state that it does not accept in time is lost, and probing continues.
func (m *serviceManager) notify(state string) {
	if m.conn == nil {
		return
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err == nil {
		_, _ = m.conn.Write([]byte(state))
	}
}

// reportAlive regularly reports to a service manager with a limit that the engine is alive, until ctx is done. It skips the
// report while alive returns an error.
func (m *serviceManager) reportAlive(ctx context.Context, alive func() error) {
	if m.limit == 0 {
		return
	}
	ticks := time.NewTicker(m.limit / aliveReports)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if alive() == nil {
				m.notify(isAlive)
			}
		}
	}
}
