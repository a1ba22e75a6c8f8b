package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Exec is a command to run inside a container.
type Exec struct {
	Container string // its ID
	Command   []string
	Env       []string // NAME=value, in addition to those of the container
	Dir       string   // default: that of the container
	User      string   // default: that of the container
	Stdout    io.Writer
	Stderr    io.Writer
}

// ExecEnd is the outcome of a command.
type ExecEnd struct {
	Code       int
	NotStarted bool          // it could not be run; the output has the reason
	TimedOut   bool          // it was running when ctx was done, and was killed
	Delay      time.Duration // with TimedOut: the time that the runtime took to start it
	Left       *LeftExec     // set if it may still be running: KillExec tries to kill it again
}

// LeftExec is a command that may still be running inside a container after its timeout.
type LeftExec struct {
	id        string
	container string
	asked     time.Time // when the runtime was asked to run it
	isRunning bool      // it was running at the attempt to kill it
	began     time.Time // when its process was started; zero if unknown
	isForeign bool      // its process was not found, and its exit was awaited

	Err error // why it could not be killed
}

// Limits of a command.
const (
	killTimeout = time.Second            // for the runtime to return the process ID, and to report the exit
	endPoll     = 5 * time.Millisecond   // first pause between two checks whether a command has exited
	maxEndPoll  = 100 * time.Millisecond // longest pause
)

// execState is the response of inspect for a command.
type execState struct {
	Running  bool
	ExitCode *int
	Pid      int
}

// Run runs the command, and returns when it has exited. When ctx is done, Run kills the process with its descendants,
// and returns at most a second later. On an error, the outcome of the command is unknown.
func (c *Client) Run(ctx context.Context, x Exec) (ExecEnd, error) {
	var made struct {
		ID string `json:"Id"`
	}
	create := request{method: http.MethodPost, path: "/containers/" + url.PathEscape(x.Container) + "/exec", body: map[string]any{
		"AttachStdout": true, "AttachStderr": true, "Cmd": x.Command, "Env": x.Env, "WorkingDir": x.Dir, "User": x.User,
	}}
	if err := c.call(ctx, create, &made); err != nil {
		return ExecEnd{}, err
	}
	left := &LeftExec{id: made.ID, container: x.Container, asked: time.Now()}
	stdout, stderr := &beginning{to: x.Stdout}, &beginning{to: x.Stderr}
	isStarted, err := c.attach(ctx, made.ID, stdout, stderr)
	var state execState
	if err == nil {
		state, err = c.awaitExec(ctx, made.ID)
	}
	switch {
	case err != nil && ctx.Err() != nil && isStarted:
		return c.timeOut(left)
	case err != nil:
		return ExecEnd{Left: c.KillExec(left)}, err
	}
	end := ExecEnd{Code: *state.ExitCode}
	end.NotStarted = state.Pid == 0 && (end.Code == 126 || end.Code == 127) && (isRuntimeError(stdout.text) || isRuntimeError(stderr.text))
	return end, nil
}

// timeOut kills a command at its timeout. It returns an ErrTimeout if the runtime was late: it had not started the
// command, or had not reported its exit.
func (c *Client) timeOut(left *LeftExec) (ExecEnd, error) {
	end := ExecEnd{Left: c.KillExec(left)}
	switch {
	case left.isRunning:
		end.TimedOut = true
		if !left.began.IsZero() {
			end.Delay = max(left.began.Sub(left.asked), 0)
		}
		return end, nil
	case end.Left != nil:
		return end, &Error{Kind: ErrTimeout, Text: "the command was not started: " + left.Err.Error(), Err: left.Err}
	}
	return end, &Error{Kind: ErrTimeout, Text: "the end of the command was not reported"}
}

// attach starts a command, and copies its output until the output ends. It reports whether the runtime has started the
// command.
func (c *Client) attach(ctx context.Context, id string, stdout, stderr io.Writer) (isStarted bool, err error) {
	r := request{
		method: http.MethodPost, path: "/exec/" + url.PathEscape(id) + "/start", body: map[string]bool{"Detach": false, "Tty": false},
		headers: map[string]string{"Connection": "Upgrade", "Upgrade": "tcp"},
	}
	res, err := c.sendVersioned(ctx, &c.execs, r)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	defer context.AfterFunc(ctx, func() { _ = res.Body.Close() })()
	if err := demultiplex(res.Body, stdout, stderr); err != nil {
		return true, c.failed(ctx, r.op(), err)
	}
	return true, nil
}

// awaitExec returns the state of a command once it has exited. The runtime may report the exit later than the end of
// the output.
func (c *Client) awaitExec(ctx context.Context, id string) (s execState, err error) {
	for pause := endPoll; ; pause = min(2*pause, maxEndPoll) {
		if s, err = c.inspectExec(ctx, id); err != nil || !s.Running && s.ExitCode != nil {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func (c *Client) inspectExec(ctx context.Context, id string) (s execState, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: "/exec/" + url.PathEscape(id) + "/json"}, &s)
	return s, err
}

// KillExec kills a command and its descendants. It returns nil once the command has exited, otherwise left with its Err
// set.
func (c *Client) KillExec(left *LeftExec) *LeftExec {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	left.Err = c.killExec(ctx, left)
	if left.Err == nil {
		return nil
	}
	return left
}

// errNoProcess is the error of killing a command that has no process yet.
var errNoProcess = errors.New("the command has no process yet")

func (c *Client) killExec(ctx context.Context, left *LeftExec) error {
	left.isRunning = false
	s, err := c.inspectExec(ctx, left.id)
	switch {
	case isNotFound(err), err == nil && !s.Running && s.ExitCode != nil: // exited, with its container or by itself
		return nil
	case err != nil:
		return err
	case s.Pid == 0:
		return errNoProcess
	}
	p, err := openProcess(s.Pid, left.container, left.asked)
	if errors.Is(err, errExited) {
		if !left.isForeign { // the runtime may not have noticed the exit yet
			if _, unnoticed := c.awaitExec(ctx, left.id); unnoticed == nil {
				return nil
			}
			left.isForeign = true
		}
		err = errForeign
	}
	left.isRunning = true
	if err != nil {
		return fmt.Errorf("process %d: %w", s.Pid, err)
	}
	defer p.Close()
	left.began, _ = p.started()
	if again, err := c.inspectExec(ctx, left.id); err != nil || again.Pid != s.Pid || !again.Running {
		return err // nil means that it has exited in the meantime
	}
	if err := p.killTree(); err != nil {
		return fmt.Errorf("process %d: %w", s.Pid, err)
	}
	_, _ = c.awaitExec(ctx, left.id) // on an error, the runtime has not noticed the exit yet
	return nil
}

// isRuntimeError reports whether the output of a command is an error of runc or crun, as reported by Docker and Podman,
// which could not run the command.
func isRuntimeError(output string) bool {
	return strings.HasPrefix(output, "OCI runtime exec failed") || strings.HasPrefix(output, "Error: ") && strings.Contains(output, "OCI ")
}

// beginning is a writer that keeps the first bytes.
type beginning struct {
	to   io.Writer
	text string
}

func (b *beginning) Write(p []byte) (int, error) {
	b.text += string(p[:min(len(p), max(0, maxMessage-len(b.text)))])
	return b.to.Write(p)
}
