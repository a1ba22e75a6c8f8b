//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// configured measures the time from the start of the command, with a large configuration, to the first attempt at the target.
func (b *bench) configured(ctx context.Context) ([]line, error) {
	sonde, err := b.build(ctx, b.root, "./cmd/engine")
	if err != nil {
		return nil, err
	}
	edge := int(math.Sqrt(float64(b.files)))
	began := line{What: fmt.Sprintf("%d targets from config.hcl: start to first attempt", edge*edge), Unit: "s", Goal: 1}
	most := line{What: "of these: peak memory until then", Unit: "MB", Goal: 100}
	for range b.rounds {
		s, err := b.firstAttempt(ctx, sonde, edge)
		if err != nil {
			return nil, err
		}
		began.Rounds = append(began.Rounds, s.after.Seconds())
		most.Rounds = append(most.Rounds, s.peak/1e6)
	}
	began.Measured, most.Measured = median(began.Rounds), median(most.Rounds)
	return []line{began, most}, nil
}

// largeConfig returns a configuration of edge×edge targets at one address, with one probe each.
func largeConfig(edge, port int) []byte {
	return fmt.Appendf(nil, `
locals {
  names = { for p in setproduct(range(%d), range(%d)) : "web-${p[0]}-${p[1]}" => "127.0.0.1" }
}

target "shop" {
  for_each = local.names
  address  = each.value
  ports    = { db = %d }

  probe "readiness" {
    tcp { port = "db" }
  }
}
`, edge, edge, port)
}

// sighting is the state of a process at its first attempt.
type sighting struct {
	after time.Duration
	peak  float64 // memory in bytes
}

// firstAttempt starts the command and waits for its first connection.
func (b *bench) firstAttempt(ctx context.Context, sonde string, edge int) (s sighting, err error) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { server.Close() })()
	file := filepath.Join(b.dir, "large.hcl")
	if err := os.WriteFile(file, largeConfig(edge, server.Addr().(*net.TCPAddr).Port), 0o600); err != nil {
		return s, err
	}
	said := &head{}
	cmd := exec.CommandContext(ctx, sonde, "run", "--listen", "", file)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return s, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if s.after, err = taken(server, start); err != nil {
		return s, fmt.Errorf("%w: %s", err, said.text)
	}
	s.peak, err = peak(cmd.Process.Pid)
	return s, err
}

// taken returns the time from start to the first connection.
func taken(server net.Listener, start time.Time) (time.Duration, error) {
	server.(*net.TCPListener).SetDeadline(start.Add(time.Minute))
	conn, err := server.Accept()
	if err != nil {
		return 0, err
	}
	return time.Since(start), conn.Close()
}

// head keeps the start of a process's output.
type head struct{ text []byte }

func (h *head) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), 500-len(h.text))]...)
	return len(b), nil
}

var _ io.Writer = (*head)(nil)
