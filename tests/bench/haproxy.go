//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// haproxy returns the side of HAProxy's tcp or http health checks. It has one thread, which is cheapest for HAProxy: a check never
// moves between threads.
func (b *bench) haproxy(kind string) side {
	return side{"haproxy", func(ctx context.Context) (*prober, error) {
		program, err := exec.LookPath("haproxy")
		if err != nil {
			return nil, errors.New("haproxy is not on PATH")
		}
		dir, err := os.MkdirTemp(b.dir, "haproxy-")
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(file, []byte(b.haproxyConfig(kind, dir)), 0o600); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, program, "-db", "-q", "-f", file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		p := &prober{
			pid:  cmd.Process.Pid,
			well: func() (string, error) { return "", serversUp(filepath.Join(dir, "admin"), b.probes()) },
			end: func() {
				cmd.Process.Kill()
				cmd.Wait()
				os.RemoveAll(dir)
			},
		}
		if err := p.settle(ctx); err != nil {
			p.end()
			return nil, fmt.Errorf("%w: %.500s", err, said.Bytes())
		}
		return p, nil
	}}
}

// settle waits until all attempts of a prober succeed, for at most ten seconds.
func (p *prober) settle(ctx context.Context) error {
	const maxWait = 10 * time.Second
	for end := time.Now().Add(maxWait); ; {
		_, err := p.well()
		if err == nil || time.Now().After(end) {
			return err
		}
		if err := pass(ctx, maxWait/1000); err != nil {
			return err
		}
	}
}

// haproxyConfig returns a configuration with a server for each probe of Sonde's side, at the same address, and an unused frontend,
// without which HAProxy does not start. HAProxy itself spreads the first checks over the interval.
func (b *bench) haproxyConfig(kind, dir string) string {
	var c strings.Builder
	fmt.Fprintf(&c, "global\n  nbthread 1\n  stats socket %s\n", filepath.Join(dir, "admin"))
	fmt.Fprint(&c, "defaults\n  mode http\n  timeout connect 1s\n  timeout client 1s\n  timeout server 1s\n  timeout check 1s\n")
	fmt.Fprintf(&c, "frontend unused\n  bind unix@%s\n", filepath.Join(dir, "unused"))
	fmt.Fprint(&c, "backend shop\n")
	if kind == "http" {
		fmt.Fprint(&c, "  option httpchk GET /\n")
	}
	for i := range b.probes() {
		fmt.Fprintf(&c, "  server s%d %s:%d check inter %dms rise 1 fall 3\n", i, address(i), b.target, b.period.Milliseconds())
	}
	return c.String()
}

// serversUp returns an error unless 99 % of n servers are up in HAProxy.
func serversUp(socket string, n int) error {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "show stat shop 4 -1\n"); err != nil { // 4: servers
		return err
	}
	out, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if up := bytes.Count(out, []byte(",UP,")); up < n*99/100 {
		return fmt.Errorf("only %d of %d servers are up", up, n)
	}
	return nil
}
