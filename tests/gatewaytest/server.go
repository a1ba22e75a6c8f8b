package gatewaytest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// serverEnv holds the name and the address of the Server that a process should run.
const serverEnv = "GATEWAYTEST_SERVER"

// Main is the TestMain of packages that use Servers: each server is a process of the test's own program.
func Main(m *testing.M) {
	if is, ok := os.LookupEnv(serverEnv); ok {
		name, address, _ := strings.Cut(is, " ")
		if err := serve(name, address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run() // its return value is the exit status
}

// Server is a server behind a gateway, in its own process. It responds to requests with its name, and to /ready with 200 until it
// drains, then with 503.
type Server struct {
	Name    string
	Address string

	t     testing.TB
	cmd   *exec.Cmd
	input io.WriteCloser
	ended chan struct{} // closed when the process has exited
}

// Servers starts servers. They are killed when the test ends.
func Servers(t testing.TB, names ...string) []*Server {
	t.Helper()
	var all []*Server
	for _, name := range names {
		s := &Server{Name: name, Address: "127.0.0.1:0", t: t}
		s.Start()
		t.Cleanup(s.Kill)
		all = append(all, s)
	}
	return all
}

// Start starts the server, at the same address after Kill or Drain. It waits until the address is free: another process may use it
// for a connection.
func (s *Server) Start() {
	s.t.Helper()
	testsync.Until(s.t, "a server at "+s.Address, func() bool {
		program, err := os.Executable()
		if err != nil {
			s.t.Fatal(err)
		}
		s.cmd = exec.Command(program)
		s.cmd.Env = append(os.Environ(), serverEnv+"="+s.Name+" "+s.Address)
		s.cmd.Stderr = os.Stderr
		input, inputErr := s.cmd.StdinPipe()
		output, outputErr := s.cmd.StdoutPipe()
		if inputErr != nil || outputErr != nil {
			s.t.Fatal(inputErr, outputErr)
		}
		if err := s.cmd.Start(); err != nil {
			return false // this machine lacks processes
		}
		address, err := bufio.NewReader(output).ReadString('\n')
		ended := make(chan struct{})
		go func(cmd *exec.Cmd) { defer close(ended); _ = cmd.Wait() }(s.cmd)
		s.input, s.ended = input, ended
		if err != nil {
			<-ended
			return false
		}
		s.Address = strings.TrimSpace(address)
		return true
	})
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Hang stops the process: the system continues to accept connections for it.
func (s *Server) Hang() { s.signal(syscall.SIGSTOP) }

// Continue resumes the process after Hang.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Drain makes the server report that it is not ready, while it responds to requests as before.
func (s *Server) Drain() {
	s.t.Helper()
	if _, err := io.WriteString(s.input, "drain\n"); err != nil {
		s.t.Fatal(err)
	}
}

// Exit stops the server after the requests in progress.
func (s *Server) Exit() {
	s.input.Close()
	testsync.Receive(s.t, "the end of "+s.Name, s.ended)
}

// serve runs the process of a Server. It returns at the end of its standard input.
func serve(name, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var draining atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if draining.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Println(listener.Addr())
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		draining.Store(true)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-served; err != http.ErrServerClosed {
		return err
	}
	return nil
}
