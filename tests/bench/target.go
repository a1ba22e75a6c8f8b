//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
)

// runTarget is role target: a server on all addresses of this machine. It responds to the first bytes of a connection with an HTTP
// response with a two-byte body, or with the text of -answer, and closes the connection, unless the bytes are a request of HTTP/1.1
// that lets it stay open. It uses a single thread with epoll, to take little CPU time from the sides.
//
// It prints its port, and exits at the end of its standard input.
func runTarget(_ context.Context, args []string) error {
	f := flag.NewFlagSet("target", flag.ContinueOnError)
	answer := f.String("answer", response, "the `text` of the answer")
	if err := f.Parse(args); err != nil {
		return err
	}
	s, err := newServer()
	if err != nil {
		return err
	}
	defer s.close()
	s.response = []byte(*answer)
	if err := json.NewEncoder(os.Stdout).Encode(place{s.port}); err != nil {
		return err
	}
	return s.serve()
}

// place is the value that a target prints when it is ready.
type place struct{ Port int }

// backlog is the length of the accept queue: more connections than arrive in two seconds. The kernel limits it to
// net.core.somaxconn, 4096 by default.
const backlog = 4096

// Default responses of a target, with and without closing the connection.
const (
	response     = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	keptResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// server is the state of a target.
type server struct {
	listener, set int // descriptors
	port          int
	request       [4096]byte
	response      []byte
}

func newServer() (*server, error) {
	listener, port, err := listen(backlog)
	if err != nil {
		return nil, err
	}
	set, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		syscall.Close(listener)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	s := &server{listener: listener, set: set, port: port}
	for _, fd := range []int{listener, int(os.Stdin.Fd())} {
		if err := s.watch(fd); err != nil {
			s.close()
			return nil, fmt.Errorf("epoll: %w", err)
		}
	}
	return s, nil
}

// listen opens a non-blocking listener on all addresses, at a port that the system
// chooses.
func listen(backlog int) (fd, port int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("socket: %w", err)
	}
	port, err = bound(fd, backlog)
	if err != nil {
		syscall.Close(fd)
		return 0, 0, fmt.Errorf("listen: %w", err)
	}
	return fd, port, nil
}

func bound(fd, backlog int) (port int, err error) {
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{}); err != nil {
		return 0, err
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		return 0, err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return at.(*syscall.SockaddrInet4).Port, nil
}

func (s *server) close() {
	syscall.Close(s.set)
	syscall.Close(s.listener)
}

func (s *server) watch(fd int) error {
	event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
	return syscall.EpollCtl(s.set, syscall.EPOLL_CTL_ADD, fd, &event)
}

// serve serves until standard input ends.
func (s *server) serve() error {
	events := make([]syscall.EpollEvent, 256)
	for {
		n, err := syscall.EpollWait(s.set, events, -1)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			switch int(e.Fd) {
			case s.listener:
				s.accept()
			case int(os.Stdin.Fd()):
				return nil
			default:
				s.answer(int(e.Fd))
			}
		}
	}
}

// accept accepts all waiting connections, until descriptors run out.
func (s *server) accept() {
	for {
		fd, _, err := syscall.Accept4(s.listener, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return
		}
		if s.watch(fd) != nil {
			syscall.Close(fd)
		}
	}
}

// answer writes the response if data was received. It closes the connection unless the request lets it stay open.
func (s *server) answer(fd int) {
	if n, err := syscall.Read(fd, s.request[:]); n > 0 && err == nil {
		if stays(s.request[:n]) {
			syscall.Write(fd, []byte(keptResponse))
			return
		}
		syscall.Write(fd, s.response) // a client that has disconnected gets none
	}
	syscall.Close(fd)
}

// stays reports whether a request lets its connection stay open.
func stays(request []byte) bool {
	return bytes.Contains(request, []byte(" HTTP/1.1\r\n")) && !bytes.Contains(request, []byte("onnection: close"))
}
