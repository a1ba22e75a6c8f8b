// Command subject is the program that runs in the containers of tests.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	arg := func(n int) string {
		if len(os.Args) > n {
			return os.Args[n]
		}
		return ""
	}
	switch os.Args[1] {
	case "exit": // STATUS [TEXT]
		fmt.Println("stdout", arg(3))
		fmt.Fprintln(os.Stderr, "stderr", arg(3))
		exit(arg(2))
	case "sleep": // SECONDS
		sleep(arg(2))
	case "parent": // SECONDS: of a child that ignores SIGTERM
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command("/subject", "sleep", arg(2))
		child.Stdout = os.Stdout
		_ = child.Run()
	case "output": // KILOBYTES
		n, _ := strconv.Atoi(arg(2))
		for range n {
			fmt.Println(strings.Repeat("x", 1023))
		}
	case "eat": // MEGABYTES
		n, _ := strconv.Atoi(arg(2))
		eaten := make([]byte, n<<20)
		for i := range eaten {
			eaten[i] = 1
		}
		fmt.Println("has eaten", len(eaten))
	case "crash": // SECONDS STATUS: exits after a while
		fmt.Println("about to crash")
		sleep(arg(2))
		exit(arg(3))
	case "touch": // FILE: creates it, then serves like exec-liveness.yaml
		_ = os.WriteFile(arg(2), nil, 0o600)
		awaitTerm()
	case "rm": // FILE
		_ = os.Remove(arg(2))
	case "test": // FILE: like cat
		if _, err := os.Stat(arg(2)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "get": // ADDRESS: like a HEALTHCHECK
		get(arg(2))
	case "serve": // ADDRESS
		serve(arg(2))
	}
}

// get exits with status 1 unless the address responds to GET /healthz with 200.
func get(address string) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if !strings.Contains(line, " 200 ") {
		fmt.Println(line)
		os.Exit(1)
	}
}

func exit(status string) {
	n, _ := strconv.Atoi(status)
	os.Exit(n)
}

func sleep(seconds string) {
	n, _ := strconv.ParseFloat(seconds, 64)
	time.Sleep(time.Duration(n * float64(time.Second)))
}

// awaitTerm exits with status 0 on SIGTERM.
func awaitTerm() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
	fmt.Println("got SIGTERM")
	os.Exit(0)
}

// serve responds to HTTP requests: /fail makes all later ones fail, /crash exits.
func serve(address string) {
	go awaitTerm()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("serving", address)
	var failing atomic.Bool
	for {
		conn, err := listener.Accept()
		if err != nil {
			os.Exit(1)
		}
		go answer(conn, &failing)
	}
}

func answer(conn net.Conn, failing *atomic.Bool) {
	defer conn.Close()
	line, _ := bufio.NewReader(conn).ReadString('\n')
	switch {
	case strings.Contains(line, "/fail"):
		failing.Store(true)
	case strings.Contains(line, "/crash"):
		fmt.Println("crashing as asked")
		os.Exit(3)
	}
	status := "200 OK"
	if failing.Load() {
		status = "500 Internal Server Error"
	}
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
}
