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

// child is a process that the program has started. It prints a JSON value when
// it is ready and one more for each line it reads, and ends when its standard
// input does: so it never outlives the program, however that ends.
type child struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	answer *json.Decoder
}

// patience is how long a child may take to end by itself.
const patience = 10 * time.Second

// play starts a process of this program that plays a part, and reads its first
// value into ready.
func (b *bench) play(ctx context.Context, ready any, part ...string) (*child, error) {
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
	cmd.WaitDelay = patience
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

// ask asks for another value.
func (c *child) ask(question string, answer any) error {
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return c.read(answer)
}

func (c *child) read(answer any) error {
	if err := c.answer.Decode(answer); err != nil {
		return fmt.Errorf("%s gave no answer: %w", c.name, err)
	}
	return nil
}

// end ends the process, by force if it does not end by itself.
func (c *child) end() {
	c.in.Close()
	late := time.AfterFunc(patience, func() { c.cmd.Process.Signal(syscall.SIGKILL) })
	defer late.Stop()
	c.cmd.Wait() // how it ends is of no interest: what it said counts
}

// answer is a child's side of a conversation: it says that it is ready, and then
// one thing for each line it is asked, until there are no more.
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
