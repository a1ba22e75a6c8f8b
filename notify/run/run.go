// Package run runs a command for each notice.
package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures the command.
type Config struct {
	Command     []string      `hcl:"command" doc:"program and arguments, without a shell. What is told is in its environment: SONDE_SUMMARY, SONDE_KIND, SONDE_NAME, SONDE_STATUS (firing or resolved), SONDE_STATE, SONDE_SEVERITY, SONDE_REASON, SONDE_DETAIL, SONDE_PROBE, SONDE_STARTS_AT, SONDE_ENDS_AT, SONDE_LINK, SONDE_TEST, and SONDE_NOTICE with all of it and the labels as JSON. Its standard input is the JSON that a webhook without body sends"`
	User        string        `hcl:"user,optional" doc:"user to run it as, by name or number, optionally with :group" default:"the engine's"`
	Timeout     time.Duration `hcl:"timeout,optional,nonzero" doc:"time after which the command is killed with its descendants; it has failed then" default:"30s" min:"1s" max:"10m"`
	Coalesce    bool          `hcl:"coalesce,optional" doc:"whether to tell how a target or a group is by then, once, and not each transition, when several have happened while the command was running or failing" default:"false"`
	ResendEvery time.Duration `hcl:"resend_every,optional,nonzero" doc:"how often the command is run again while the trouble lasts" default:"never" min:"10s" max:"168h"`
}

// defaultTimeout is the default of Config.Timeout.
const defaultTimeout = 30 * time.Second

// exitRejected is the exit status with which a command rejects a notice: EX_DATAERR of sysexits.h.
const exitRejected = 65

const (
	maxOutput = 4 << 10 // bytes of the end of the command's output that are kept
	maxText   = 200     // bytes of it that an error includes
)

// Check returns the errors of an invalid configuration: an error with *probe.FieldErrors, or nil.
func (c Config) Check() error {
	if err := limits.Check(c, "").Err(); err != nil {
		return err
	}
	return c.plan(nil).Check()
}

// plan returns the command with an environment. Variables in its words are not expanded: responses of targets must not
// become arguments, which a shell might execute.
func (c Config) plan(env map[string]string) command.Command {
	words := make([]string, len(c.Command))
	for i, word := range c.Command {
		words[i] = command.Literal(word)
	}
	return command.Command{Words: words, Env: env, User: c.User}
}

// Fill sets the parts of a notifier that depend on the output. The configuration must have passed Check.
func (c Config) Fill(spec *notify.Spec) {
	spec.Resend, spec.Timeout, spec.Batch, spec.Coalesce = c.ResendEvery, cmp.Or(c.Timeout, defaultTimeout), 1, c.Coalesce
	spec.Receivers = []notify.Receiver{{Name: filepath.Base(c.Command[0]), New: func(redact func(string) string) (notify.Sender, error) {
		return &sender{config: c, redact: redact, running: make(chan struct{}, 1)}, nil
	}}}
}

// sender runs the command, one execution at a time.
type sender struct {
	config Config
	redact func(text string) string

	running chan struct{}   // capacity 1: holds an element while the command runs
	stuck   <-chan struct{} // closed when a killed command has exited; nil without one; guarded by the element in running
}

// Send implements notify.Sender.
func (s *sender) Send(ctx context.Context, notices []notify.Notice) error {
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-ctx.Done():
		return errors.New("the command still runs for another notice")
	}
	for i := range notices {
		if s.stuck != nil {
			select {
			case <-s.stuck:
				s.stuck = nil
			case <-ctx.Done():
				return errors.New("the killed command has not exited: it runs as another user, or hangs in the kernel")
			}
		}
		if err := s.run(ctx, &notices[i]); err != nil {
			return err
		}
	}
	return nil
}

// run runs the command for one notice. The caller must hold the element in running.
func (s *sender) run(ctx context.Context, n *notify.Notice) error {
	plan, err := s.config.plan(environment(n)).Plan()
	if err != nil {
		return err
	}
	plan.Stdin = n.Body()
	output, began := &command.Output{Max: maxOutput, Last: true}, time.Now()
	end, err := plan.Run(ctx, output, output)
	s.stuck = end.Stuck
	text := command.LastLines(probe.CleanText(s.redact(output.String()), 3*maxOutput), maxText) // a byte may become three
	switch {
	case err != nil:
		return err
	case end.Killed:
		return fmt.Errorf("killed after its timeout%s: %s", end.Starved(time.Since(began)), text)
	case end.Status.ExitStatus() == exitRejected:
		return errors.Join(notify.ErrRejected, fmt.Errorf("%v: %s", end, text))
	case end.Status != 0:
		return fmt.Errorf("%v: %s", end, text)
	}
	return nil
}

// environment returns the environment of a command: the Texts of a notice, and the notice as JSON.
func environment(n *notify.Notice) map[string]string {
	text, _ := json.Marshal(n) // cannot fail
	env := map[string]string{"SONDE_NOTICE": string(text)}
	for name, value := range n.Texts() {
		env["SONDE_"+strings.ToUpper(strings.Replace(name, "At", "_At", 1))] = strings.ReplaceAll(value, "\x00", "\ufffd")
	}
	return env
}
