//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is a process of a measurement. It prints a JSON value when it is ready, and one for each line of its standard input. It
// exits at the end of its standard input, so that it never outlives the program.
type child struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	answer *json.Decoder
}

// exitTimeout is how long a child may take to exit.
const exitTimeout = 10 * time.Second

// startRole starts this program in a role, and reads its first value into ready.
func (b *bench) startRole(ctx context.Context, ready any, part ...string) (*child, error) {
	return start(ctx, part[0], exec.CommandContext(ctx, b.self, part...), ready)
}

func start(ctx context.Context, name string, cmd *exec.Cmd, ready any) (*child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = exitTimeout
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, in: in, answer: json.NewDecoder(out)}
	if err := c.read(ready); err != nil {
		c.end()
		return nil, err
	}
	return c, ctx.Err()
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// ask sends a line and reads the next value.
func (c *child) ask(question string, answer any) error {
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return c.read(answer)
}

func (c *child) read(answer any) error {
	if err := c.answer.Decode(answer); err != nil {
		return fmt.Errorf("%s: no answer: %w", c.name, err)
	}
	return nil
}

// end closes the standard input, and kills the process if it does not exit.
func (c *child) end() {
	c.in.Close()
	late := time.AfterFunc(exitTimeout, func() { c.cmd.Process.Signal(syscall.SIGKILL) })
	defer late.Stop()
	c.cmd.Wait() // the exit status does not matter
}

// answer runs the child's side: it prints ready, and then a value for each line of in.
func answer(in io.Reader, out io.Writer, ready any, say func(question string) (any, error)) error {
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(ready); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		v, err := say(lines.Text())
		if err != nil {
			return err
		}
		if err := encoder.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
