package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	remote "k8s.io/cri-client/pkg"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeprobe "k8s.io/kubernetes/pkg/probe"
	kubeexec "k8s.io/kubernetes/pkg/probe/exec"
	"k8s.io/utils/exec"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/probe"
)

// execCase is an exec probe. Its command may refer to variables of Env.
type execCase struct {
	name    string
	command []string
	env     map[string]string
	wanted  string
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func execCases() []execCase {
	cases := []execCase{
		{name: "true", command: []string{"true"}},
		{name: "false", command: []string{"false"}},
		{name: "exit 0 with output", command: shell("echo fine")},
		{name: "exit 1 with output", command: shell("echo bad; exit 1")},
		{name: "exit 2", command: shell("exit 2")},
		{name: "exit 126", command: shell("exit 126")},
		{name: "exit 127", command: shell("exit 127")},
		{name: "exit 255", command: shell("exit 255")},
		{name: "standard error after standard output", command: shell("echo err >&2; echo out; exit 1")},
		{name: "standard error alone", command: shell("echo err >&2; exit 3")},
		{name: "long output", command: shell("head -c 20000 /dev/zero | tr '\\0' x; exit 1"), wanted: "K78"},
		{name: "long output of a success", command: shell("head -c 20000 /dev/zero | tr '\\0' x")},
		{name: "output of ten kilobytes", command: shell("head -c 10240 /dev/zero | tr '\\0' x")},
		{name: "no such program", command: []string{"/no/such/program"}},
		{name: "no such program by name", command: []string{"no-such-program-anywhere"}},
		{name: "a directory", command: []string{"/"}},
		{name: "a late command", command: shell("sleep 30")},
		{name: "a late command with output", command: shell("echo soon; sleep 30")},
		{name: "ended by a signal", command: shell("kill -9 $$$$")},
		{name: "standard input", command: shell("cat; echo end")},
	}
	for word, value := range map[string]string{
		"$(NAME)": "", "$$(NAME)": "", "$(NONE)": "", "$NAME": "", "${NAME}": "", "a$(NAME)b$(NAME)c": "", "$$$(NAME)": "", "$(NAME": "",
		"$()": "", "$": "", "$$": "", "x$": "", "$(INNER)": "$(NAME)", "$(EMPTY)": "", "$(NA ME)": "", "$((NAME))": "", "$(name)": "",
	} {
		env := map[string]string{"NAME": "value", "INNER": value, "EMPTY": ""}
		cases = append(cases, execCase{name: "the word " + word, command: []string{"/bin/echo", word}, env: env})
	}
	return cases
}

const execTimeout = time.Second

// container runs commands like a container runtime: it returns standard output followed by standard error, and kills the command at
// the timeout (K77, K79).
type container struct {
	command []string
	output  io.Writer
}

func (c *container) Start() error {
	ctx, cancel := context.WithTimeout(context.Background(), execTimeout)
	defer cancel()
	command := osexec.CommandContext(ctx, c.command[0], c.command[1:]...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr, command.WaitDelay = &stdout, &stderr, time.Second
	err := command.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %q timed out after %v", remote.ErrCommandTimedOut, strings.Join(c.command, " "), execTimeout)
	}
	_, _ = c.output.Write(append(stdout.Bytes(), stderr.Bytes()...))
	var exit *osexec.ExitError
	if errors.As(err, &exit) {
		return exec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

func (c *container) Wait() error                        { return nil }
func (c *container) Run() error                         { return nil }
func (c *container) Stop()                              {}
func (c *container) CombinedOutput() ([]byte, error)    { return nil, nil }
func (c *container) Output() ([]byte, error)            { return nil, nil }
func (c *container) SetDir(string)                      {}
func (c *container) SetStdin(io.Reader)                 {}
func (c *container) SetStdout(w io.Writer)              { c.output = w }
func (c *container) SetStderr(w io.Writer)              { c.output = w }
func (c *container) SetEnv([]string)                    {}
func (c *container) StdoutPipe() (io.ReadCloser, error) { return nil, os.ErrInvalid }
func (c *container) StderrPipe() (io.ReadCloser, error) { return nil, os.ErrInvalid }

func (c execCase) kubelet() found {
	var env []v1.EnvVar
	for name, value := range c.env {
		env = append(env, v1.EnvVar{Name: name, Value: value})
	}
	command := kubecontainer.ExpandContainerCommandOnlyStatic(c.command, env)
	result, output, err := tried(func() (kubeprobe.Result, string, error) {
		return kubeexec.New().Probe(&container{command: command})
	})
	f := kubeletFound(result, output, err, nil)
	if result == kubeprobe.Success {
		f.why = output
	}
	f.why = strings.TrimRight(f.why, " \n")
	return f
}

func (c execCase) sonde(t *testing.T, by way) found {
	h, err := execprobe.New(execprobe.Config{Command: c.command})
	if err != nil {
		return found{refused, err.Error(), nil}
	}
	result := by.attempt(t, probe.Probe{
		Handler: h, Rule: probe.Rule{Timeout: execTimeout}, Target: probe.Target{Name: "web", Env: c.env},
	})
	f := found{result.Outcome.String(), meant(result), nil}
	if result.Outcome == probe.Success {
		f.why = result.Detail
	}
	return f
}

// agrees compares the results of both sides.
func (c execCase) agrees(t *testing.T) {
	kubelet := c.kubelet()
	for _, by := range ways() {
		agree(t, by.name, c.wanted, kubelet, c.sonde(t, by))
	}
}
