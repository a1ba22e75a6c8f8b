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
	Dir       string   // of the container by default
	User      string   // of the container by default
	Stdout    io.Writer
	Stderr    io.Writer
}

// ExecEnd is how a command has ended.
type ExecEnd struct {
	Code       int
	NotStarted bool          // it could not be run; the output says why
	TimedOut   bool          // it ran when ctx was done, and was killed
	Delay      time.Duration // with TimedOut, how long the runtime took to start it
	Left       *LeftExec     // why it may run on; nil if it does not. KillExec tries again
}

// LeftExec is a command that goes on inside a container after its timeout.
type LeftExec struct {
	id        string
	container string
	asked     time.Time // when the runtime was asked to run it
	isRunning bool      // it ran when it was to be killed
	began     time.Time // when its process was started; zero if that is not known

	Err error // why it could not be killed
}

// Limits of a command.
const (
	killTimeout = time.Second            // for the runtime to say which process it is, and that it has ended
	endPoll     = 5 * time.Millisecond   // the first pause between two questions whether a command has ended
	maxEndPoll  = 100 * time.Millisecond // the longest one
)

// execState is the answer of inspect of a command.
type execState struct {
	Running  bool
	ExitCode *int
	Pid      int
}

// Run runs the command, and returns when it has ended. When ctx is done its process is killed, with its descendants, and Run
// returns at most a second later. An error says that it is not known how the command has ended, or would.
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

// timeOut ends a command at its timeout. It is an ErrTimeout if the runtime was late: the command was not started, or had ended.
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
		return end, &Error{Kind: ErrTimeout, Text: "it has not started the command: " + left.Err.Error(), Err: left.Err}
	}
	return end, &Error{Kind: ErrTimeout, Text: "it has not reported in time that the command has ended"}
}

// attach starts a command, and copies its output until that ends. It reports whether the runtime has started it.
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

// awaitExec returns the state of a command when it has ended: the runtime may know that a while after its output has.
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

// KillExec kills a command and its descendants, and returns nil when it has ended.
func (c *Client) KillExec(left *LeftExec) *LeftExec {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	left.Err = c.killExec(ctx, left)
	if left.Err == nil {
		return nil
	}
	return left
}

// errNoProcess is why a command cannot be killed that has no process yet.
var errNoProcess = errors.New("there is no process of it")

func (c *Client) killExec(ctx context.Context, left *LeftExec) error {
	left.isRunning = false
	s, err := c.inspectExec(ctx, left.id)
	switch {
	case isNotFound(err), err == nil && !s.Running && s.ExitCode != nil: // with its container, or by itself
		return nil
	case err != nil:
		return err
	case s.Pid == 0:
		return errNoProcess
	}
	p, err := openProcess(s.Pid, left.container, left.asked)
	if errors.Is(err, errExited) { // which the runtime has not noticed
		if _, unnoticed := c.awaitExec(ctx, left.id); unnoticed == nil {
			return nil
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
		return err // nil: it has ended meanwhile
	}
	if err := p.killTree(); err != nil {
		return fmt.Errorf("process %d: %w", s.Pid, err)
	}
	_, _ = c.awaitExec(ctx, left.id) // or else the runtime has not noticed yet
	return nil
}

// isRuntimeError reports whether the output of a command is that of the runtime, which could not run it: that of runc and crun as
// Docker and Podman report it.
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
