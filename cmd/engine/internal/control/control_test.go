package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/private"
)

// address returns an engine address that no other test uses.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func listen(t *testing.T, address string) *Socket {
	t.Helper()
	if _, err := private.OfUser(); err != nil {
		t.Skip(err)
	}
	s, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestOnlyTheUserOfAnEngineCanReachItsSocket(t *testing.T) {
	a := address(t)
	s := listen(t, a)
	path, err := Find(a)
	if err != nil || path != filepath.Join(s.dir, socketName) {
		t.Fatalf("found %q, %v", path, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has %v, %v", info.Mode(), err)
	}
	if _, err := Listen(a); err == nil || !strings.Contains(err.Error(), "another engine listens") {
		t.Errorf("a second engine: %v", err)
	}
	s.Close()
	if path, err := Find(a); path != "" || err != nil {
		t.Errorf("after its end: found %q, %v", path, err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// dialer is the environment variable that makes this test program only connect to a socket.
const dialer = "SONDE_TEST_DIAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(dialer); path != "" {
		if _, err := net.Dial("unix", path); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAnotherUserCannotConnect(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	s := listen(t, address(t))
	for uid, want := range map[uint32]string{0: "", 65534: "permission denied"} {
		other := exec.Command("/proc/self/exe")
		other.Env = []string{dialer + "=" + filepath.Join(s.dir, socketName)}
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := other.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || (got == "") != (want == "") || !strings.HasSuffix(got, want) {
			t.Errorf("user %d: %q, %v, want %q", uid, got, err, want)
		}
	}
}

// kill closes a socket without removing it, as if the process had been killed.
func kill(t *testing.T, s *Socket) {
	t.Helper()
	path := filepath.Join(s.dir, socketName)
	if err := os.Rename(path, path+".kept"); err != nil {
		t.Fatal(err)
	}
	_ = s.Listener.Close()
	if err := os.Rename(path+".kept", path); err != nil {
		t.Fatal(err)
	}
}

func TestSocketsOfKilledEnginesAreReplaced(t *testing.T) {
	a := address(t)
	killed := listen(t, a)
	kill(t, killed)
	if path, err := Find(a); path != "" || err != nil {
		t.Errorf("of a killed engine: found %q, %v", path, err)
	}
	listen(t, a)
	if path, err := Find(a); path == "" || err != nil {
		t.Errorf("of the next engine: %v", err)
	}
}

func TestAnEngineIsFoundByTheAddressesThatReachIt(t *testing.T) {
	for _, c := range []struct {
		name, address string
		want          bool
	}{
		{"127.0.0.1:9650", "127.0.0.1:9650", true},
		{"127.0.0.1:9650", "localhost:9650", true},
		{"127.0.0.1:9650", "LOCALHOST:9650", true},
		{"127.0.0.1:9650", "localhost.:9650", true},
		{"127.0.0.1:9650", "127.0.0.1:09650", true},
		{"127.0.0.1:9650", "[::ffff:127.0.0.1]:9650", true},
		{"[::1]:9650", "localhost:9650", true},
		{"[::1]:9650", "[0:0:0:0:0:0:0:1]:9650", true},
		{"127.0.0.1:9650", "127.0.0.1:9651", false},
		{"127.0.0.2:9650", "localhost:9650", false},
		{"127.0.0.2:9650", "127.0.0.1:9650", false},
		{"127.0.0.2:9650", "127.0.0.2:9650", true},
		{"127.0.0.1:9650", "[::1]:9650", false},
		{"127.0.0.1:9650", "127.0.0.1:75186", false},
		{"127.0.0.1:9650", "10.0.0.7:9650", false},
		{"127.0.0.1:9650", "", true},
		{"[::]:9650", "127.0.0.1:9650", true},
		{"0.0.0.0:9650", "localhost:9650", true},
		{"0.0.0.0:9650", "127.0.0.2:9650", true},
		{"0.0.0.0:9650", "[::1]:9650", false},
		{"0.0.0.0:9650", "sonde.example:9650", false},
		{"10.0.0.7:9650", "localhost:9650", false},
		{"pid-7", "", true},
		{"pid-7", "127.0.0.1:9650", false},
	} {
		if got := matches(c.name, c.address); got != c.want {
			t.Errorf("%s by %q: %v", c.name, c.address, got)
		}
	}
}

// An engine in another network namespace may have the same address, and one in another PID namespace the same process ID.
func TestAnEngineInAnotherNamespaceIsNotTheOneThatIsMeant(t *testing.T) {
	a := address(t)
	for _, name := range []string{a, fmt.Sprintf("%s%d", pidPrefix, os.Getpid())} {
		ours := listen(t, strings.TrimPrefix(name, fmt.Sprintf("%s%d", pidPrefix, os.Getpid())))
		if here(name) == "" {
			t.Skip("there are no namespaces")
		}
		path := filepath.Join(ours.dir, socketName)
		other := strings.TrimSuffix(ours.dir, here(name)) + "@1"
		if err := os.Rename(ours.dir, other); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(other) })
		if found, isHere := nameOf(filepath.Join(other, socketName)); found != name || isHere {
			t.Errorf("%s: it is %s, here: %v", name, found, isHere)
		}
		if name != a {
			continue // other tests have engines without an address
		}
		if found, err := Find(a); found != "" || err == nil || !strings.Contains(err.Error(), a+" is in another network or PID namespace") {
			t.Errorf("found %q, %v", found, err)
		}
		listen(t, a)
		if found, err := Find(a); found != path || err != nil {
			t.Errorf("beside it: found %q, %v", found, err)
		}
	}
}
