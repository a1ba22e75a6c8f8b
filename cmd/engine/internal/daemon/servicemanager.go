package daemon

import (
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

// serviceManager tells systemd, or another service manager with its protocol, what the engine
// does. The zero value has none, and tells nothing. The connection is opened once, since
// descriptors may be short later; any goroutine may use it.
type serviceManager struct {
	conn    net.Conn // nil for none
	watches bool     // it ends an engine that does not say isAlive
}

// openServiceManager connects to the service manager that the environment names. The variables
// stay: an engine that its own watchdog starts again needs them.
func openServiceManager() (m serviceManager, err error) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return m, nil
	}
	if m.conn, err = net.Dial("unixgram", name); err != nil {
		return serviceManager{}, err
	}
	usec, _ := strconv.Atoi(os.Getenv("WATCHDOG_USEC"))
	pid, isSet := os.LookupEnv("WATCHDOG_PID")
	m.watches = usec > 0 && (!isSet || pid == strconv.Itoa(os.Getpid()))
	return m, nil
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
