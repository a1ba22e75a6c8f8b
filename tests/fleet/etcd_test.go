package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sonde-probe/sonde/tests/etcdtest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// node is a process of etcd. It listens on all addresses of this machine, so that each engine can have its own address for it, by
// which it can be cut off.
type node struct {
	port int // for clients; the next port is for other nodes
	dir  string
	args []string
	log  string

	process *exec.Cmd
}

// startEtcd starts an etcd cluster on consecutive ports beginning at port, and waits until it responds.
func startEtcd(t *testing.T, nodes, port int) []*node {
	t.Helper()
	dir := t.TempDir()
	all := make([]*node, nodes)
	var peers []string
	for i := range all {
		n := &node{port: port + 2*i, dir: filepath.Join(dir, fmt.Sprint("n", i)), log: filepath.Join(dir, fmt.Sprint("n", i, ".log"))}
		all[i] = n
		peers = append(peers, fmt.Sprintf("n%d=http://127.0.0.1:%d", i, n.port+1))
	}
	for i, n := range all {
		client, peer := fmt.Sprintf("http://0.0.0.0:%d", n.port), fmt.Sprintf("http://127.0.0.1:%d", n.port+1)
		n.args = []string{
			"--name", fmt.Sprint("n", i), "--data-dir", n.dir, "--log-level", "warn",
			"--listen-client-urls", client, "--advertise-client-urls", n.url(), "--quota-backend-bytes", "4000000000",
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(peers, ","),
		}
		n.start(t)
		t.Cleanup(func() { n.end(syscall.SIGKILL) })
	}
	client := connect(t, all)
	until(t, "etcd answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := client.Get(ctx, "x")
		return err == nil
	})
	return all
}

func (n *node) url() string { return fmt.Sprintf("http://127.0.0.1:%d", n.port) }

// start starts the node, or restarts it with its data.
func (n *node) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(n.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.process = etcdtest.Command(n.args...)
	n.process.Stdout, n.process.Stderr = log, log
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
}

func (n *node) end(s os.Signal) {
	_ = n.process.Process.Signal(s) // it may have exited
	_ = n.process.Wait()            // it may have exited
}

// connect returns a client of the test, which is closed when the test ends.
func connect(t *testing.T, nodes []*node) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, n := range nodes {
		endpoints = append(endpoints, n.url())
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// patience is how long a test waits for expected events.
const patience = 5 * time.Minute

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testsync.UntilWithin(t, patience, what, holds)
}

// leader returns the current leader.
func leader(t *testing.T, nodes []*node) (found *node) {
	t.Helper()
	client := connect(t, nodes)
	until(t, "etcd has a leader", func() bool {
		for _, n := range nodes {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			s, err := client.Status(ctx, n.url())
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				found = n
			}
		}
		return found != nil
	})
	return found
}
