package etcd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/etcd"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/etcdtest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// node is an etcd process.
type node struct {
	name, client, peer string
	process            *exec.Cmd
	log                bytes.Buffer
}

// cluster starts etcd with a number of nodes, and waits until it responds. args are additional arguments of each node.
func cluster(t *testing.T, scheme string, nodes int, args ...string) []*node {
	t.Helper()
	tier.Needs(t, "etcd")
	all := make([]*node, nodes)
	var peers []string
	for i := range all {
		all[i] = &node{name: fmt.Sprint("n", i), client: scheme + "://" + gatewaytest.FreeAddress(t), peer: "http://" + gatewaytest.FreeAddress(t)}
		peers = append(peers, all[i].name+"="+all[i].peer)
	}
	for _, n := range all {
		n.process = etcdtest.Command(append([]string{
			"--name", n.name, "--data-dir", filepath.Join(t.TempDir(), n.name), "--log-level", "warn",
			"--listen-client-urls", n.client, "--advertise-client-urls", n.client,
			"--listen-peer-urls", n.peer, "--initial-advertise-peer-urls", n.peer, "--initial-cluster", strings.Join(peers, ","),
		}, args...)...)
		n.process.Stdout, n.process.Stderr = &n.log, &n.log
		if err := n.process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = n.process.Process.Signal(syscall.SIGCONT)
			_ = n.process.Process.Kill()
			_ = n.process.Wait() // it was killed
			if t.Failed() {
				t.Logf("%s: %s", n.name, n.log.Bytes()[max(0, n.log.Len()-2000):])
			}
		})
	}
	return all
}

func endpoints(nodes []*node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.client)
	}
	return all
}

// patience bounds how long a test waits for a condition.
const patience = 5 * time.Minute

// open opens a backend, and waits until it responds.
func open(t *testing.T, c etcd.Config) *etcd.Backend {
	t.Helper()
	b, err := etcd.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	until(t, "etcd answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, _, err := b.Range(ctx, "")
		return err == nil
	})
	return b
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testsync.UntilWithin(t, patience, what, holds)
}

// ttl is longer than a loaded machine may stall. Tests wait for leases with shortTTL to expire.
const (
	ttl      = 30 * time.Second
	shortTTL = 4 * time.Second
)

func TestEtcdConforms(t *testing.T) {
	nodes, tests := cluster(t, "http", 3), 0
	coordtest.Run(t, coordtest.Config{TTL: shortTTL, New: func(t *testing.T) coord.Backend {
		tests++
		return open(t, etcd.Config{Endpoints: endpoints(nodes), Prefix: fmt.Sprintf("/fleet-%d/", tests)})
	}})
}

// run runs a coordinator, and waits until it owns all shards.
func run(t *testing.T, b coord.Backend) *coord.Coordinator {
	t.Helper()
	co, err := coord.New(coord.Config{Name: "a", Backend: b, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { co.Run(ctx) })
	running.Go(func() { coordtest.MarkLoaded(ctx, co) })
	t.Cleanup(func() { stop(); running.Wait() })
	until(t, "it owns all shards", func() bool { owned, _ := co.Owned(); return len(owned) == shard.Count && co.Acts().MayBegin("web") })
	return co
}

// leader returns the leading node.
func leader(t *testing.T, nodes []*node) (found *node) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints(nodes)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	until(t, "a leader", func() bool {
		for _, n := range nodes {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			s, err := client.Status(ctx, n.client)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				found = n
			}
		}
		return found != nil
	})
	return found
}

func act(t *testing.T, co *coord.Coordinator, instance int) error {
	ctx, cancel := context.WithTimeout(t.Context(), testsync.Timeout)
	defer cancel()
	return co.Acts().Do(ctx, coord.Order{Target: "web", Instance: fmt.Sprint(instance)}, func(context.Context) error { return nil })
}

func TestNothingMovesWhileEtcdElectsALeaderOrIsStopped(t *testing.T) {
	nodes := cluster(t, "http", 3)
	co := run(t, open(t, etcd.Config{Endpoints: endpoints(nodes)}))
	before, changed := co.Owned()
	n := leader(t, nodes)
	if err := n.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	instance := 0
	until(t, "it acts without the former leader", func() bool { instance++; return act(t, co, instance) == nil })
	select {
	case <-changed:
		owned, _ := co.Owned()
		t.Errorf("shards have moved: %d are owned, %d were", len(owned), len(before))
	default:
	}

	for _, other := range nodes {
		if other != n {
			if err := other.process.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "it may not act", func() bool { return !co.Allowed() })
	if err := act(t, co, 1_000_000); !errors.Is(err, coord.ErrNotAllowed) {
		t.Errorf("it acts without etcd: %v", err)
	}
	if owned, _ := co.Owned(); len(owned) != shard.Count {
		t.Errorf("it probes %d shards", len(owned))
	}
	for _, other := range nodes {
		if other != n {
			if err := other.process.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "it acts again", func() bool { return act(t, co, 1_000_000) == nil })
}

func TestTLSAndAPassword(t *testing.T) {
	authority := dialtest.NewAuthority(t)
	certificate := authority.Sign(t, time.Hour, "127.0.0.1")
	certFile, keyFile := dialtest.Files(t, certificate)
	nodes := cluster(t, "https", 1, "--cert-file", certFile, "--key-file", keyFile)
	config := etcd.Config{Endpoints: endpoints(nodes), TLS: &tls.Config{RootCAs: authority.Pool()}}
	b := open(t, config)
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "secret", Value: []byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	requirePassword(t, config)

	until(t, "it needs a password", func() bool {
		_, _, err := b.Range(t.Context(), "")
		return err != nil && !errors.Is(err, coord.ErrUnreachable)
	})
	config.Username, config.Password = "sonde", "wrong"
	until(t, "a wrong password is refused", func() bool {
		wrong, err := etcd.Open(config)
		if err != nil {
			return !errors.Is(err, coord.ErrUnreachable)
		}
		defer wrong.Close()
		if _, err := wrong.Get(t.Context(), "secret"); err == nil {
			t.Fatal("any password is right")
		}
		return false // etcd has not responded in time
	})
	config.Password = "correct"
	if entries, _, err := open(t, config).Range(t.Context(), "secret"); err != nil || len(entries) != 1 {
		t.Errorf("found %v, %v", entries, err)
	}
	run(t, open(t, config))
}

// proxy forwards connections until it is cut.
type proxy struct {
	net.Listener
	to string

	connsMu sync.Mutex // guards conns
	conns   []net.Conn
}

// newProxy returns a proxy to a host and port.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to}
	go p.serve()
	t.Cleanup(func() { _ = l.Close(); p.cut() })
	return p
}

func (p *proxy) serve() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.connsMu.Lock()
		p.conns = append(p.conns, in, out)
		p.connsMu.Unlock()
		go func() { _, _ = io.Copy(in, out) }()
		go func() { _, _ = io.Copy(out, in) }()
	}
}

func (p *proxy) cut() {
	p.connsMu.Lock()
	defer p.connsMu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// While there is no connection, etcd may be restored from a snapshot, and make as many changes as it has lost: the
// revision does not show that.
func TestAWatchEndsWithTheConnection(t *testing.T) {
	nodes := cluster(t, "http", 1)
	p := newProxy(t, strings.TrimPrefix(nodes[0].client, "http://"))
	b := open(t, etcd.Config{Endpoints: []string{"http://" + p.Addr().String()}})
	_, at, err := b.Range(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "key"}}}); err != nil {
		t.Fatal(err)
	}
	seen, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for events, err := range b.Watch(t.Context(), "", at) {
			if err != nil {
				ended <- err
			} else if len(events) == 1 && events[0].Key == "key" {
				close(seen)
			}
		}
	}()
	testsync.Receive(t, "the change", seen)
	p.cut()
	if err := testsync.Receive(t, "the end of the watch", ended); !errors.Is(err, coord.ErrUnreachable) {
		t.Errorf("the watch has ended by %v", err)
	}
}

// An engine runs for longer than certificates and authorities are valid.
func TestRenewedCertificatesAreUsedByTheNextConnection(t *testing.T) {
	before, after := dialtest.NewAuthority(t), dialtest.NewAuthority(t)
	certFile, keyFile := dialtest.Files(t, before.Sign(t, time.Hour, "127.0.0.1"))
	nodes := cluster(t, "https", 1, "--cert-file", certFile, "--key-file", keyFile) // etcd reads the files for each connection
	p := newProxy(t, strings.TrimPrefix(nodes[0].client, "https://"))
	var now atomic.Pointer[dialtest.Authority]
	now.Store(before)
	b := open(t, etcd.Config{
		Endpoints: []string{"https://" + p.Addr().String()}, TLS: &tls.Config{RootCAs: before.Pool()},
		RenewTLS: func() (*tls.Config, error) {
			if a := now.Load(); a != nil {
				return &tls.Config{RootCAs: a.Pool()}, nil
			}
			return nil, errors.New("the file is being replaced")
		},
	})
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := b.Get(ctx, "key")
		return err
	}
	now.Store(nil)
	p.cut()
	until(t, "the former authority is used while there is none", func() bool { return get() == nil })

	renewedCert, renewedKey := dialtest.Files(t, after.Sign(t, time.Hour, "127.0.0.1"))
	for from, to := range map[string]string{renewedCert: certFile, renewedKey: keyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	p.cut()
	until(t, "the former authority is not trusted", func() bool {
		err := get()
		return errors.Is(err, coord.ErrUnreachable) && strings.Contains(err.Error(), "unknown authority")
	})
	now.Store(after)
	until(t, "the renewed authority is used", func() bool { return get() == nil })
}

// After a power failure, engines and etcd start at the same time: an engine with a password must not depend on the
// order.
func TestAnEngineWithAPasswordStartsWhileEtcdIsAway(t *testing.T) {
	nodes := cluster(t, "http", 1)
	config := etcd.Config{Endpoints: endpoints(nodes)}
	open(t, config)
	requirePassword(t, config)
	config.Username, config.Password = "sonde", "correct"
	unreachable := config
	unreachable.Endpoints = []string{"http://" + gatewaytest.FreeAddress(t)}
	if b, err := etcd.Open(unreachable); err != nil {
		t.Errorf("nothing listens there: %v", err)
	} else if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := nodes[0].process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b, err := etcd.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.Get(ctx, "key"); err == nil {
		t.Error("etcd answers, although it is stopped")
	}
	if err := nodes[0].process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	run(t, b)
}

// requirePassword adds the user sonde with access to the default prefix, and makes etcd require passwords.
func requirePassword(t *testing.T, c etcd.Config) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints, TLS: c.TLS})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	for _, do := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, "engine"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "engine", etcd.DefaultPrefix, clientv3.GetPrefixRangeEnd(etcd.DefaultPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, "sonde", "correct"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "sonde", "engine"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnErrorSaysWhetherEtcdAnswers(t *testing.T) {
	for _, username := range []string{"", "sonde"} {
		b, err := etcd.Open(etcd.Config{Endpoints: []string{"http://" + gatewaytest.FreeAddress(t)}, Username: username, Password: username})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = b.Get(ctx, "key")
		cancel()
		if !errors.Is(err, coord.ErrUnreachable) || strings.Contains(err.Error(), "rpc error") {
			t.Errorf("as user %q: %v", username, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigsAreChecked(t *testing.T) {
	for want, c := range map[string]etcd.Config{
		"endpoints are missing":       {},
		`prefix is "/x"; it must end`: {Endpoints: []string{"http://127.0.0.1:1"}, Prefix: "/x"},
	} {
		if _, err := etcd.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
