package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/logfile"
	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// guardConn is the engine's end of a connection to a guard.
type guardConn struct {
	socket   *net.UnixConn // closing it makes the guard kill the command, unless it outlives the engine
	guardPid int           // process ID
	orders   *json.Encoder
	reports  <-chan guard.Report // closed when the guard has exited
	outputs  [2]*logfile.Source  // of the command: standard output and error
	stderr   *os.File            // standard error of a guard that this program started; nil once the command is running
	copying  sync.WaitGroup
}

// unreaped holds the process IDs of guards that this program has started and not waited for. It is global because
// process IDs are.
var unreaped sync.Map

// startGuard starts a guard, and orders it to start a command.
func startGuard(target string, start guard.Start, streams [2]stream) (_ *guardConn, err error) {
	socket, guardSocket, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer guardSocket.Close()
	c := &guardConn{socket: socket}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	var writeEnds, readEnds [2]uintptr
	for n := range c.outputs {
		output, command, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer command.Close()
		c.outputs[n], writeEnds[n] = &logfile.Source{File: output}, command.Fd()
		if readEnds[n], err = guard.Descriptor(output); err != nil {
			return nil, err
		}
	}
	stderr, guardStderr, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer guardStderr.Close()
	c.stderr = stderr
	stderrEnd, err := guard.Descriptor(guardStderr) // non-blocking: a guard must not wait until it is read
	if err != nil {
		return nil, err
	}
	c.guardPid, err = syscall.ForkExec(reexec.Executable, []string{guard.Name, target}, &syscall.ProcAttr{
		Dir: "/",
		Env: guardEnv,
		Files: []uintptr{
			null.Fd(), null.Fd(), stderrEnd,
			guardSocket.Fd(), readEnds[0], readEnds[1], writeEnds[0], writeEnds[1],
		},
		Sys: &syscall.SysProcAttr{Setsid: true}, // signals of a terminal do not reach it
	})
	if err != nil {
		return nil, os.NewSyscallError("fork/exec", err)
	}
	unreaped.Store(c.guardPid, nil)
	c.run(streams, socket)
	if err = c.send(guard.Order{Start: &start}); err != nil && !hasEnded(err) {
		go c.reap()
		return nil, err
	}
	return c, nil
}

// guardEnv is the environment of a guard. A guard needs at most one processor, although it has about ten threads, most
// of which sleep (see guard.Tasks). Garbage collection is off because the first one would take more memory than a guard
// allocates in most of its life.
var guardEnv = reexec.Env("GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=8MiB")

// socketPair returns two connected sockets. The second one is blocking.
func socketPair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock() // not every system can open them close-on-exec
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "guard"), os.NewFile(uintptr(fds[1]), "engine")
	defer ours.Close()
	conn, err := net.FileConn(ours) // a duplicate
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// run starts to read the reports and the outputs, until the guard has exited or close is called.
func (c *guardConn) run(streams [2]stream, reports io.Reader) {
	c.orders, c.reports = json.NewEncoder(c.socket), readReports(reports)
	for n, output := range c.outputs {
		c.copying.Go(func() { output.Copy(streams[n]) })
	}
}

// readReports returns a guard's reports as they arrive. The channel is large enough for all of them, at most two, so
// that the goroutine ends with the guard.
func readReports(from io.Reader) <-chan guard.Report {
	reports := make(chan guard.Report, 2)
	go func() {
		defer close(reports)
		for d := json.NewDecoder(from); ; {
			var r guard.Report
			if d.Decode(&r) != nil {
				return
			}
			reports <- r
		}
	}()
	return reports
}

// resume continues a guard that was stopped (SIGSTOP). It has no effect on a running guard.
func (c *guardConn) resume() {
	if c.guardPid > 0 { // it is 0 for a guard in another PID namespace
		_ = syscall.Kill(c.guardPid, syscall.SIGCONT)
	}
}

// send sends an order. If a guard does not read it within orderTimeout, the guard cannot start the command, or is being
// debugged.
func (c *guardConn) send(o guard.Order) error {
	_ = c.socket.SetWriteDeadline(time.Now().Add(orderTimeout))
	return c.orders.Encode(o)
}

// hasEnded reports whether an error of send means that the guard has exited, which also closes its reports.
func hasEnded(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// wait waits for the rest of the outputs, which another process may hold open, and for the guard to exit. It returns
// how the guard exited.
func (c *guardConn) wait() string {
	c.finishOutputs(drain)
	return c.reap()
}

// kill kills a guard that has sent its last report, if this program started it. The guard has nothing left to do, but
// may have been stopped (SIGSTOP) before it could exit.
func (c *guardConn) kill() {
	if _, child := unreaped.Load(c.guardPid); child {
		_ = syscall.Kill(c.guardPid, syscall.SIGKILL)
	}
}

// reap waits for the guard to exit if this program started it, and returns how it exited.
func (c *guardConn) reap() string {
	if _, child := unreaped.LoadAndDelete(c.guardPid); !child {
		return "it is gone"
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.guardPid, &status, 0, nil)
	for err == syscall.EINTR {
		_, err = syscall.Wait4(c.guardPid, &status, 0, nil)
	}
	if status.Signaled() {
		return "signal: " + status.Signal().String()
	}
	return "exit status " + strconv.Itoa(status.ExitStatus())
}

// maxComplaint is the maximum size of the text that is read from a guard's standard error, in bytes.
const maxComplaint = 256

// complaint returns the first line that an exited guard wrote to its standard error, such as that the Go runtime could
// not start a thread.
func (c *guardConn) complaint() string {
	if c.stderr == nil {
		return ""
	}
	_ = c.stderr.SetReadDeadline(time.Now().Add(drain))
	text, _ := io.ReadAll(io.LimitReader(c.stderr, maxComplaint))
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	return string(line)
}

// closeStderr closes the standard error of a guard that has started the command.
func (c *guardConn) closeStderr() {
	if c.stderr != nil {
		_ = c.stderr.Close()
		c.stderr = nil
	}
}

// finishOutputs stops reading the outputs when they end, or after the given time at the latest.
func (c *guardConn) finishOutputs(within time.Duration) {
	for _, output := range c.outputs {
		if output != nil {
			output.Stop(within)
		}
	}
	c.copying.Wait()
}

// close disconnects from the guard. Unread output of the command is left to the next engine.
func (c *guardConn) close() {
	c.finishOutputs(0)
	for _, output := range c.outputs {
		if output != nil {
			_ = output.Close()
		}
	}
	c.closeStderr()
	_ = c.socket.Close()
}
