//go:build linux

package faults

import (
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// haproxy is HAProxy with health checks of the prober's http, tcp and name targets, by the same rule.
type haproxy struct {
	pid    int
	socket string
	exited chan struct{}
}

// startHAProxy starts HAProxy and waits until all its servers are up. It returns nil if HAProxy is not installed.
func (p *prober) startHAProxy(t *testing.T) *haproxy {
	program, err := exec.LookPath("haproxy")
	if err != nil {
		t.Log("HAProxy is not installed")
		return nil
	}
	dir := t.TempDir()
	h := &haproxy{socket: filepath.Join(dir, "admin"), exited: make(chan struct{})}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(p.haproxyConfig(dir, h.socket)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "-db", "-f", file)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	c.Stdout, c.Stderr = said, said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	h.pid = c.Process.Pid
	go func() { _ = c.Wait(); close(h.exited) }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-h.exited
	})
	testsync.Until(t, "the servers of HAProxy", func() bool {
		select {
		case <-h.exited:
			text, _ := os.ReadFile(said.Name())
			t.Fatalf("HAProxy has exited: %s", text)
		default:
		}
		servers, err := h.servers()
		return err == nil && !slices.ContainsFunc(servers, func(s haproxyServer) bool { return s.status != "UP" || s.checks == "INI" })
	})
	return h
}

func (p *prober) haproxyConfig(dir, socket string) string {
	var c strings.Builder
	fmt.Fprintf(&c, "global\n  nbthread 1\n  stats socket %s\n", socket)
	fmt.Fprintf(&c, "resolvers dns\n")
	for _, n := range p.nameServers {
		fmt.Fprintf(&c, "  nameserver n%d %v:%d\n", n, addressOf(n), dnsPort)
	}
	fmt.Fprintf(&c, "defaults\n  mode tcp\n  timeout connect %[1]dms\n  timeout check %[1]dms\n  timeout client 1s\n  timeout server 1s\n", timeout.Milliseconds())
	fmt.Fprintf(&c, "frontend unused\n  bind unix@%s\n", filepath.Join(dir, "unused")) // HAProxy does not start without a frontend
	for _, backend := range []struct{ handler, check, server string }{
		{"http", "option httpchk GET /", ""},
		{"tcp", "option tcp-check\n  tcp-check expect string ok", ""},
		{"name", "option httpchk GET /", " resolvers dns init-addr last,libc,none"},
	} {
		fmt.Fprintf(&c, "backend %s\n  %s\n", backend.handler, backend.check)
		for _, tg := range p.targets {
			if tg.handler != backend.handler {
				continue
			}
			address, port := addressOf(tg.number).String(), httpPort
			if tg.handler == "tcp" {
				port = linePort
			}
			if tg.handler == "name" {
				address = fmt.Sprintf("h%d.test", tg.number)
			}
			fmt.Fprintf(&c, "  server %s %s:%d check inter %dms rise 1 fall 1%s\n", haproxyName(tg), address, port, p.period.Milliseconds(), backend.server)
		}
	}
	return c.String()
}

// haproxyName is the name of a target as a server of HAProxy.
func haproxyName(tg target) string { return strings.ReplaceAll(tg.name, "/", "-") }

// haproxyServer is the status of a server in HAProxy.
type haproxyServer struct {
	name   string
	status string // "UP"
	checks string // the result of the latest check: "L7OK"
	downs  int    // how many times it has become down
}

func (h *haproxy) servers() (all []haproxyServer, err error) {
	conn, err := net.DialTimeout("unix", h.socket, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("show stat -1 4 -1\n")); err != nil { // 4: servers
		return nil, err
	}
	rows, err := csv.NewReader(conn).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("statistics of HAProxy: %d rows, %w", len(rows), err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	name, status, checks, downs := column("svname"), column("status"), column("check_status"), column("chkdown")
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[downs])
		if err != nil {
			return nil, err
		}
		all = append(all, haproxyServer{row[name], row[status], strings.TrimPrefix(row[checks], "* "), n})
	}
	return all, nil
}

// haproxyChanges returns how many times HAProxy has considered healthy targets failing.
func (p *prober) haproxyChanges(t *testing.T) string {
	t.Helper()
	if p.haproxy == nil {
		return "-"
	}
	select {
	case <-p.haproxy.exited:
		return "exited"
	default:
	}
	servers, err := p.haproxy.servers()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range servers {
		i := slices.IndexFunc(p.targets, func(tg target) bool { return haproxyName(tg) == s.name })
		if p.targets[i].isHealthy() {
			n += s.downs
		}
	}
	return strconv.Itoa(n)
}
