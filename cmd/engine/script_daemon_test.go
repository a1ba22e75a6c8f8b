package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// commands returns the script commands in addition to testscript's own.
func commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"freeport":   freePort,
		"substitute": substitute,
		"exits":      exitsWith,
		"daemon":     startDaemon,
		"signal":     signalDaemon,
		"ended":      daemonEnded,
		"waitlog":    waitLog,
		"waitfile":   waitFile,
		"waitget":    waitGet,
		"waitrun":    waitRun,
		"waitgone":   waitGone,
		"post":       post,
		"plugin":     buildPlugin,
		"compiler":   needCompiler,
		"runtime":    startRuntime,
		"container":  makeContainer,
		"inside":     runInside,
		"systemd":    startSystemd,
		"unit":       makeUnit,
		"onsystem":   runOnSystem,
		"waitsystem": waitOnSystem,
		"shellimage": makeShellImage,
		"compose":    runCompose,
	}
}

// Limits on waiting for a condition, so that a failing test does not hang.
const (
	waitTimeout = 4 * time.Minute
	waitStep    = 10 * time.Millisecond
)

// background is the running engine of a script: sonde run, which writes its log to the file log and its address to the file
// address.
type background struct {
	process *exec.Cmd
	exited  chan struct{} // closed when it exits
}

type backgroundKey struct{}

func backgroundOf(ts *testscript.TestScript) *background {
	return ts.Value(backgroundKey{}).(*background)
}

// startDaemon implements daemon ARG... It starts sonde run and sets ADDRESS to its address.
func startDaemon(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg, "daemon [ARG...]")
	ts.Check(os.RemoveAll(ts.MkAbs("address"))) // of an earlier daemon
	log, err := os.Create(ts.MkAbs("log"))
	ts.Check(err)
	defer log.Close()
	d := backgroundOf(ts)
	d.process = exec.Command("sonde", append([]string{"run", "--address-file", "address", "--log-format", "text"}, args...)...)
	d.process.Dir = ts.MkAbs(".")
	d.process.Env = append(environ(), busVariable+"="+ts.Getenv(busVariable))
	if socket := ts.Getenv("SOCKET"); socket != "" {
		d.process.Env = append(d.process.Env, "DOCKER_HOST=unix://"+socket)
	}
	d.process.Stdout, d.process.Stderr = log, log
	ts.Check(d.process.Start())
	d.exited = make(chan struct{})
	go func() {
		defer close(d.exited)
		_ = d.process.Wait() // exits uses ProcessState
	}()
	ts.Defer(func() {
		_ = d.process.Process.Kill()
		<-d.exited
	})
	wait(ts, "the daemon to listen", func() bool {
		b, err := os.ReadFile(ts.MkAbs("address"))
		ts.Setenv("ADDRESS", strings.TrimSpace(string(b)))
		return err == nil && len(b) > 0
	})
	if strings.HasSuffix(ts.Getenv("ADDRESS"), ":9650") {
		ts.Fatalf("the daemon listens on the default port, which another program may have: use --listen 127.0.0.1:0")
	}
}

func environ() []string { return append(os.Environ(), "GORACE="+noRaceSleep) }

// signalDaemon implements signal HUP|TERM|INT|KILL.
func signalDaemon(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}
	usage(ts, !neg && len(args) == 1 && signals[args[0]] != nil, "signal HUP|TERM|INT|KILL")
	ts.Check(backgroundOf(ts).process.Process.Signal(signals[args[0]]))
}

// daemonEnded implements ended CODE. It waits until the daemon has exited.
func daemonEnded(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "ended CODE")
	d := backgroundOf(ts)
	select {
	case <-d.exited:
	case <-time.After(waitTimeout):
		ts.Fatalf("the daemon has not ended; its log:\n%s", logEnd(ts))
	}
	if code := strconv.Itoa(d.process.ProcessState.ExitCode()); code != args[0] {
		ts.Fatalf("the daemon's exit code is %s, not %s; its log:\n%s", code, args[0], logEnd(ts))
	}
}

// waitLog implements waitlog REGEXP... It waits until the daemon's log has lines that match all expressions, one after another.
func waitLog(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "waitlog REGEXP...")
	waitFile(ts, neg, append([]string{"log"}, args...))
}

// waitFile implements waitfile FILE REGEXP... It is like waitlog, for any file.
func waitFile(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "waitfile FILE REGEXP...")
	re, err := regexp.Compile("(?m)" + strings.Join(args[1:], "(?s:.*)^.*"))
	ts.Check(err)
	wait(ts, args[0]+" to have "+strings.Join(args[1:], ", then "), func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && re.Match(text)
	})
}

// waitGet implements waitget URL REGEXP. It waits until the response matches.
func waitGet(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 2, "waitget URL REGEXP")
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	body := ""
	defer func() { ts.Logf("last answer:\n%s", body) }()
	wait(ts, args[0]+" to answer "+args[1], func() bool {
		body, err = get(http.MethodGet, args[0])
		return err == nil && re.MatchString(body) != neg
	})
}

// waitRun implements waitrun REGEXP PROGRAM [ARG...]. It runs the program repeatedly until its output matches.
func waitRun(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) >= 2, "waitrun REGEXP PROGRAM [ARG...]")
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	output := ""
	defer func() { ts.Logf("last output:\n%s", output) }()
	wait(ts, "the output of "+strings.Join(args[1:], " "), func() bool {
		c := exec.Command(args[1], args[2:]...)
		c.Dir, c.Env = ts.MkAbs("."), environ()
		b, _ := c.CombinedOutput() // the exit code is irrelevant
		output = string(b)
		return re.MatchString(output) != neg
	})
}

// waitGone implements waitgone FILE. It waits until the process whose ID is in the file has exited.
func waitGone(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "waitgone FILE")
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	waitFor(ts, nil, "process "+strconv.Itoa(pid)+" to end", func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}

// post implements post URL. It ignores the response.
func post(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "post URL")
	_, err := get(http.MethodPost, args[0])
	ts.Check(err)
}

// get returns the status and the body of a response.
func get(method, url string) (string, error) {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Timeout: waitTimeout}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.Status + "\n" + string(body), err
}

// wait waits until a condition holds. It fails if the daemon has exited and the condition still does not hold.
func wait(ts *testscript.TestScript, what string, holds func() bool) {
	waitFor(ts, backgroundOf(ts).exited, what, holds)
}

// waitFor waits until a condition holds, or until the channel is closed.
func waitFor(ts *testscript.TestScript, ended <-chan struct{}, what string, holds func() bool) {
	deadline := time.Now().Add(waitTimeout)
	for !holds() {
		over := time.Now().After(deadline)
		select {
		case <-ended:
			over = !holds()
		case <-time.After(waitStep):
		}
		if over {
			ts.Fatalf("timeout waiting for %s; the daemon's log:\n%s", what, logEnd(ts))
		}
	}
}

// logEnd returns the last lines of the daemon's log.
func logEnd(ts *testscript.TestScript) string {
	const limit = 40
	text, err := os.ReadFile(ts.MkAbs("log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(len(lines)-limit, 0):], "")
}
