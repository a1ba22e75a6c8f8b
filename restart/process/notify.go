package process

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// The variables of sd_notify(3) and sd_watchdog_enabled(3).
const (
	socketVariable   = "NOTIFY_SOCKET"
	watchdogVariable = "WATCHDOG_USEC"
)

// canNotify is true on Linux only: other systems do not identify the sender of a datagram.
const canNotify = runtime.GOOS == "linux"

// reasonWatchdog means that the process has not reported in time that it works. It appears only in the log.
const reasonWatchdog probe.Reason = "process.watchdog"

// defaultReadyTimeout is the default of Config.ReadyTimeout: DefaultTimeoutStartSec of systemd-system.conf(5).
const defaultReadyTimeout = 90 * time.Second

// checkNotify validates the fields about notifications and adds errors to wrong.
func (c Config) checkNotify(wrong *probe.FieldErrors) {
	for field, isSet := range map[string]bool{"notify": c.Notify, "watchdog": c.Watchdog > 0} {
		switch {
		case !isSet:
		case !canNotify:
			wrong.Add(field, "needs Linux")
		case c.Adopt:
			wrong.Add(field, "must not be set with adopt: the socket of the process ends with the engine; remove one of them")
		case c.Env[socketVariable] != "":
			wrong.Add(field, "must not be set when env has %s: the process would notify another socket; remove one of them", socketVariable)
		}
	}
}

func (c Config) readyTimeout() time.Duration { return cmp.Or(c.ReadyTimeout, defaultReadyTimeout) }

// notice is an event that follows from the notifications of a process by sd_notify(3), or from their absence.
type notice uint8

const (
	isReady           notice = iota // READY=1
	isNotReady                      // no READY=1 within ready_timeout
	watchdogExpired                 // no WATCHDOG=1 within the watchdog interval
	watchdogTriggered               // WATCHDOG=trigger
	watchdogFed                     // WATCHDOG=1 after watchdogExpired or watchdogTriggered
)

// vigil derives notices from the messages of a process. Its methods are called by one goroutine.
//
// Silence counts against the process only if the engine was listening. A deadline that is noticed late starts again,
// since the process may have been waiting for the engine to read; and after the deadline the socket must be found
// empty.
type vigil struct {
	watchdog time.Duration // 0 for none
	within   time.Duration // time until READY=1 or the next WATCHDOG=1 is due
	until    time.Time     // the deadline; zero if nothing is due
	overdue  bool          // the deadline has passed, and the socket is being read once more
	last     time.Time     // when that reading ends, regardless of the number of messages
	ready    bool          // READY=1 was received, or is not expected
	expired  bool          // the latest notice is watchdogExpired or watchdogTriggered
}

const (
	// lateAfter is the maximum delay with which a deadline may be noticed.
	lateAfter = 250 * time.Millisecond
	// overduePause is the time that the socket must be empty after a deadline.
	overduePause = 100 * time.Millisecond
	// maxOverdue is the maximum time after a deadline in which messages that were already waiting are read: the kernel
	// queues at most 512 (net.unix.max_dgram_qlen is 10 or 512), and one is read per messagePause.
	maxOverdue = 8 * time.Second
)

// newVigil returns the vigil for a process that was started at the given time.
func newVigil(c Config, now time.Time) *vigil {
	v := &vigil{watchdog: c.Watchdog, ready: !c.Notify}
	if v.expect(c.Watchdog, now); !v.ready {
		v.expect(c.readyTimeout(), now)
	}
	return v
}

// expect sets the deadline of the next message; within 0 means none.
func (v *vigil) expect(within time.Duration, now time.Time) {
	v.within, v.until, v.overdue = within, time.Time{}, false
	if within > 0 {
		v.until = now.Add(within)
	}
}

// silent is called when no message arrived until the deadline.
func (v *vigil) silent(now time.Time) (notices []notice) {
	switch {
	case now.Sub(v.until) > lateAfter:
		v.expect(v.within, now)
	case !v.overdue:
		v.overdue, v.until, v.last = true, now.Add(overduePause), now.Add(maxOverdue)
	case !v.ready:
		v.expect(0, now)
		return []notice{isNotReady}
	default:
		return v.expire(watchdogExpired, now)
	}
	return nil
}

func (v *vigil) expire(how notice, now time.Time) []notice {
	v.expect(0, now)
	v.expired = true
	return []notice{how}
}

// read is called after each message from any sender. It extends an overdue deadline, since another message may be
// waiting.
func (v *vigil) read(now time.Time) {
	if v.overdue && now.Before(v.last) {
		v.until = now.Add(overduePause)
	}
}

// take interprets a line of a message, and returns the resulting notices.
func (v *vigil) take(line string, now time.Time) (notices []notice) {
	switch {
	case line == "READY=1" && !v.ready:
		v.ready = true
		v.expect(v.watchdog, now)
		return []notice{isReady}
	case v.watchdog == 0 || !v.ready:
	case line == "WATCHDOG=trigger" && !v.expired:
		return v.expire(watchdogTriggered, now)
	case line == "WATCHDOG=1":
		v.expect(v.watchdog, now)
		if v.expired {
			v.expired = false
			return []notice{watchdogFed}
		}
	}
	return nil
}

// socketPath returns the path of the socket; "" for a nil notifier.
func (n *notifier) socketPath() string {
	if n == nil {
		return ""
	}
	return n.path
}

// received returns the channel of notices; nil for a nil notifier.
func (n *notifier) received() <-chan notice {
	if n == nil {
		return nil
	}
	return n.notices
}

// maxStatus is the maximum size of the kept text of STATUS=, in bytes.
const maxStatus = 256

// statusOf returns the text of a line STATUS=….
func statusOf(line string) (text string, ok bool) {
	if text, ok = strings.CutPrefix(line, "STATUS="); ok {
		text = probe.OneLine(text, maxStatus)
	}
	return text, ok
}

// listen opens the notification socket of an instance, and adds the variables that name it to its command. A process
// with neither Notify nor Watchdog is started without a socket if none can be opened. A process with Adopt never gets
// one.
func (d *Driver) listen(run *command.Command, suffix string) (*notifier, error) {
	isNeeded := d.config.Notify || d.config.Watchdog > 0
	if !canNotify || d.config.Adopt || run.Env[socketVariable] != "" && !isNeeded {
		return nil, nil
	}
	n, err := listenNotify(suffix)
	if err != nil && isNeeded {
		return nil, err
	}
	if err != nil {
		d.config.Logger.Warn("process has no socket for notifications", "error", err)
		return nil, nil
	}
	env := map[string]string{}
	maps.Copy(env, run.Env)
	env[socketVariable] = n.path
	if d.config.Watchdog > 0 {
		env[watchdogVariable] = strconv.FormatInt(d.config.Watchdog.Microseconds(), 10)
	}
	run.Env = env
	return n, nil
}

// attend starts to read the notifications of a running instance.
func (i *instance) attend(id string) {
	i.output.of.status.Store(nil)
	if i.notifier == nil {
		return
	}
	if i.driver.config.Notify {
		i.starting = id
		i.driver.setNotice(restart.Notice{Reason: probe.ReasonStarting, Detail: "waiting for READY=1 of the process"})
	}
	i.notifier.run(i.guardPid, newVigil(i.driver.config, time.Now()), func(text string) { i.output.of.status.Store(&text) }, i.log)
}

// note acts on a notice.
func (i *instance) note(what notice, began func(restart.Begun)) {
	switch what {
	case isReady:
		if i.asked { // it is already terminating
			return
		}
		i.driver.setNotice(restart.Notice{}) // withdrawn first, so that it does not count against the running instance
		began(restart.Begun{ID: i.starting})
	case watchdogFed:
		i.driver.setNotice(restart.Notice{})
	case watchdogExpired:
		i.driver.setNotice(restart.Notice{Reason: reasonWatchdog, Detail: "no WATCHDOG=1 for " + probe.FormatDuration(i.driver.config.Watchdog)})
	case watchdogTriggered:
		i.driver.setNotice(restart.Notice{Reason: reasonWatchdog, Detail: "the process has said WATCHDOG=trigger"})
	case isNotReady:
		if i.asked {
			return
		}
		i.notReady = fmt.Errorf("no READY=1 within ready_timeout (%s)", probe.FormatDuration(i.driver.config.readyTimeout()))
		i.requestEnd(i.stop().GracePeriod)
	}
}

// SetNotice implements restart.Notifying.
func (d *Driver) SetNotice(set func(restart.Notice)) { d.setNotice = set }
