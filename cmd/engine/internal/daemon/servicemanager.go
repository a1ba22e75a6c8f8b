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

// What a service manager is told, in the words of sd_notify(3).
const (
	isReady     = "READY=1"
	isReloading = "RELOADING=1"
	isStopping  = "STOPPING=1"
	isAlive     = "WATCHDOG=1"
)

// notifyTimeout bounds how long a service manager that does not read is waited for.
const notifyTimeout = 100 * time.Millisecond

// aliveReports is how often the engine reports within the service manager's limit that it is alive: a
// report that is missing because the loop was late once must not end the engine.
const aliveReports = 4

// serviceManager tells systemd, or another service manager with its protocol, what the engine
// does. The zero value has none, and tells nothing. The connection is opened once, since
// descriptors may be short later; any goroutine may use it.
type serviceManager struct {
	conn  net.Conn      // nil for none
	limit time.Duration // after how long without isAlive it ends the engine; 0 for never
}

// openServiceManager connects to the service manager that the environment names. What the engine starts does
// not inherit these variables.
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

// watchdogLimit returns the limit of sd_watchdog_enabled(3) for a process, or 0 if there is none: in
// microseconds, for the process with an ID, or for each one if the ID is empty.
func watchdogLimit(usec, pid string) time.Duration {
	n, err := strconv.ParseInt(usec, 10, 64)
	isOther := pid != "" && pid != strconv.Itoa(os.Getpid())
	if err != nil || isOther || n < 0 || n > math.MaxInt64/int64(time.Microsecond) {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

// notify tells the service manager a state. What it does not take in time is lost: probing
// goes on without it.
func (m *serviceManager) notify(state string) {
	if m.conn == nil {
		return
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err == nil {
		_, _ = m.conn.Write([]byte(state))
	}
}

// reportAlive reports to a service manager with a limit that the engine is alive, until ctx is done. It
// reports nothing while alive returns an error.
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
