//go:build wasip1

// A plugin for the tests, in Go without an SDK. The setting text says what it does.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport sonde_v1 input
func input(kind uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport sonde_v1 output
func output(kind uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport sonde_v1 remaining
func remaining() int64

//go:wasmimport sonde_v1 dial
func hostDial(network unsafe.Pointer, n1 uint32, address unsafe.Pointer, n2 uint32, options unsafe.Pointer, n3, flags, ms uint32) int32

const (
	nonblock = 1
	success  = 1
	failure  = 3
)

func bytesOf(s string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}

func dial(network, address string) (net.Conn, error) {
	p1, n1 := bytesOf(network)
	p2, n2 := bytesOf(address)
	fd := hostDial(p1, n1, p2, n2, nil, 0, nonblock, 0)
	if fd < 0 {
		return nil, errors.New("dial " + address + ": error " + strconv.Itoa(int(-fd)))
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	return net.FileConn(f)
}

//go:wasmexport sonde_abi_v1
func marker() {}

//go:wasmexport sonde_run
func run() int32 {
	var buf [4096]byte
	n := input(1, unsafe.Pointer(&buf), uint32(len(buf)))
	mode := strings.TrimSuffix(strings.TrimPrefix(string(buf[:n]), `{"text":"`), `"}`)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(min(remaining(), int64(time.Hour))))
	defer cancel()
	does, ok := modes[mode]
	if !ok {
		panic("no mode " + mode)
	}
	if err := does(ctx); err != nil {
		p, n := bytesOf(err.Error())
		output(1, p, n)
		return failure
	}
	return success
}

var modes = map[string]func(context.Context) error{
	"line":  func(context.Context) error { return line(":db") },
	"two":   two,
	"sleep": func(context.Context) error { time.Sleep(time.Minute); return nil },
	"panic": func(context.Context) error { panic("on purpose") },
	"exit":  func(context.Context) error { os.Exit(7); return nil },
	"hoard": hoard,
	"deep":  func(context.Context) error { return deep(0) },
	"late":  late,
	"files": files,
	"spin": func(context.Context) error {
		for {
		}
	},
	"leave":  leave,
	"dials":  func(context.Context) error { _, err := net.Dial("tcp", "127.0.0.1:1"); return err },
	"looks":  func(context.Context) error { _, err := net.LookupHost("db.invalid"); return err },
	"random": func(context.Context) error { return errors.New(rand.Text()) },
}

func line(address string) error {
	conn, err := dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "PONG\n" {
		err = errors.New("got " + answer)
	}
	return err
}

// two waits for two answers at once, while a third goroutine counts.
func two(context.Context) error {
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- line(":db") }()
	}
	ticks := 0
	ticker := time.NewTicker(time.Millisecond)
	for left := 2; left > 0; {
		select {
		case err := <-errs:
			if err != nil {
				return err
			}
			left--
		case <-ticker.C:
			ticks++
		}
	}
	if ticks == 0 {
		return errors.New("no tick came while answers were waited for")
	}
	return nil
}

func hoard(context.Context) error {
	for n := 0; ; n++ {
		kept = append(kept, []byte(strings.Repeat("x", 1<<20)))
	}
}

var kept [][]byte

// leave finds nothing of an attempt before it, and leaves what it can: a variable, a
// goroutine that waits, one that counts, a timer, and an open connection.
func leave(context.Context) error {
	if left != 0 || kept != nil || runtime.NumGoroutine() > goroutines {
		return errors.New("something is left of another attempt")
	}
	conn, err := dial("tcp", ":db")
	if err != nil {
		return err
	}
	go conn.Read(make([]byte, 1))
	go func() {
		for range time.Tick(100 * time.Microsecond) {
			left++
		}
	}()
	time.AfterFunc(time.Millisecond, func() { left++ })
	left++
	kept = append(kept, make([]byte, 100<<10))
	time.Sleep(2 * time.Millisecond)
	return nil
}

// left counts what leave does; goroutines is how many there are at most when an attempt
// begins, one of which makes it.
var (
	left       int
	goroutines = runtime.NumGoroutine() + 1
)

func deep(n int) error {
	var room [512]byte
	room[n%512] = 1
	if err := deep(n + 1); err != nil {
		return err
	}
	return errors.New(string(room[:]))
}

// late reads with a deadline of its own, which passes.
func late(context.Context) error {
	conn, err := dial("tcp", ":db")
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		return err
	}
	if _, err = conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the deadline has not passed")
	}
	return nil
}

func files(context.Context) error {
	if _, err := os.ReadFile("/etc/passwd"); err == nil {
		return errors.New("a file can be read")
	}
	if env := os.Environ(); len(env) != 1 || env[0] != "SONDE_TEST=seen" {
		return errors.New("the environment is " + strings.Join(env, " "))
	}
	return nil
}

func main() {}
