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

// canNotify: only Linux says who has sent a datagram.
const canNotify = runtime.GOOS == "linux"

// reasonWatchdog: the process has not said in time that it works. It is only in the log.
const reasonWatchdog probe.Reason = "process.watchdog"

// defaultReadyTimeout is the default of Config.ReadyTimeout: DefaultTimeoutStartSec of systemd-system.conf(5).
const defaultReadyTimeout = 90 * time.Second

// checkNotify adds what is wrong with the fields about notifications.
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

// notice is what a process has said by sd_notify(3), or has not said in time.
type notice uint8

const (
	isReady           notice = iota // READY=1
	isNotReady                      // no READY=1 within the time for it
	watchdogExpired                 // no WATCHDOG=1 within the time for it
	watchdogTriggered               // WATCHDOG=trigger
	watchdogFed                     // WATCHDOG=1 after one of these
)

// vigil decides which notices follow from the messages of a process. Its methods are called by one goroutine.
//
// Silence counts against the process only if the engine was listening: a deadline that is seen late starts again, since
// the process may have waited until the engine reads; and after the deadline the socket must be found empty.
type vigil struct {
	watchdog time.Duration // 0 for none
	within   time.Duration // until READY=1 or the next WATCHDOG=1 is due
	until    time.Time     // zero when nothing is due
	overdue  bool          // the time is over, and the socket is read once more
	last     time.Time     // when that ends, however many messages come
	ready    bool          // or there is no wait for READY=1
	expired  bool          // the latest notice is watchdogExpired or watchdogTriggered
}

const (
	// lateAfter is how late a deadline may be seen.
	lateAfter = 250 * time.Millisecond
	// overduePause is how long the socket must be empty after a deadline.
	overduePause = 100 * time.Millisecond
	// maxOverdue is how long after a deadline messages may be read that were waiting then: the kernel has 512 at most
	// (net.unix.max_dgram_qlen is 10 or 512), and one is read in each messagePause.
	maxOverdue = 8 * time.Second
)

// newVigil returns the vigil over a process that was started at a time.
func newVigil(c Config, now time.Time) *vigil {
	v := &vigil{watchdog: c.Watchdog, ready: !c.Notify}
	if v.expect(c.Watchdog, now); !v.ready {
		v.expect(c.readyTimeout(), now)
	}
	return v
}

// expect sets when the next message is due; 0 for never.
func (v *vigil) expect(within time.Duration, now time.Time) {
	v.within, v.until, v.overdue = within, time.Time{}, false
	if within > 0 {
		v.until = now.Add(within)
	}
}

// silent is called when nothing was read until the deadline.
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

// read is called when a message was read, whoever has sent it: another one may wait.
func (v *vigil) read(now time.Time) {
	if v.overdue && now.Before(v.last) {
		v.until = now.Add(overduePause)
	}
}

// take takes a line of a message, and returns what follows from it.
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

// socketPath returns the path of the socket; "" for the nil notifier.
func (n *notifier) socketPath() string {
	if n == nil {
		return ""
	}
	return n.path
}

// received returns the notices. The nil notifier has none.
func (n *notifier) received() <-chan notice {
	if n == nil {
		return nil
	}
	return n.notices
}

// maxStatus bounds the text of STATUS= that is kept, in bytes.
const maxStatus = 256

// statusOf returns the text of a line STATUS=….
func statusOf(line string) (text string, ok bool) {
	if text, ok = strings.CutPrefix(line, "STATUS="); ok {
		text = probe.OneLine(text, maxStatus)
	}
	return text, ok
}

// listen opens the socket of an instance, and adds the variables that name it to its command. A process without Notify
// and Watchdog is started without a socket if there can be none, and so is one that an engine may take over.
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

// attend begins to read the notifications of an instance that runs.
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
		if i.asked { // it says so while it ends
			return
		}
		i.driver.setNotice(restart.Notice{}) // before it may count as one about a running instance
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
