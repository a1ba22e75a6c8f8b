//go:build linux

package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// commandsEngine is an engine with exec probes.
type commandsEngine struct {
	*exec.Cmd
	client api.Client
}

// runCommands starts an engine with targets under resource limits.
func runCommands(t *testing.T, targets string, limits ...faulttest.Limit) *commandsEngine {
	t.Helper()
	dir := t.TempDir()
	config, address := filepath.Join(dir, "config.hcl"), filepath.Join(dir, "address")
	if err := os.WriteFile(config, []byte("engine { listen = \"127.0.0.1:0\" }\n"+targets), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &commandsEngine{Cmd: exec.Command(program.Build(t, program.Sonde), "run", "--address-file", address, config)}
	e.Stdout, e.Stderr = os.Stdout, os.Stderr
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.kill)
	for _, l := range limits {
		faulttest.Confine(t, e.Process.Pid, l)
	}
	testsync.Until(t, "the address", func() bool {
		text, _ := os.ReadFile(address)
		e.client = api.Client{Base: "http://" + strings.TrimSpace(string(text)), HTTP: &http.Client{Timeout: testsync.Timeout}}
		return strings.HasSuffix(string(text), "\n")
	})
	return e
}

func (e *commandsEngine) kill() {
	_ = e.Process.Kill()
	_ = e.Wait()
}

func (e *commandsEngine) probe(t *testing.T, target string) (p api.Probe) {
	t.Helper()
	answer, err := e.client.Target(t.Context(), target)
	if err != nil || len(answer.Probes) != 1 {
		t.Fatalf("%s: %+v, %v", target, answer, err)
	}
	return answer.Probes[0]
}

// Each attempt has three processes that have left its process group.
func TestKillDuringExecAttemptsLeavesNoProcess(t *testing.T) {
	tier.CI(t)
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is missing")
	}
	const targets = 5
	for range tier.Pick(1, 2, 20) {
		dir := t.TempDir()
		leave := filepath.Join(dir, "leave")
		script := "#!/bin/sh\necho $$ >>\"$1\"\nexec sleep 600\n"
		if err := os.WriteFile(leave, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		var config strings.Builder
		for n := range targets {
			fmt.Fprintf(&config, `target "t%d" {
			  probe "readiness" {
			    exec { command = ["sh", "-c", "setsid \"$0\" \"$1\" & timeout 600 \"$0\" \"$1\" & (setsid \"$0\" \"$1\" &) ; sleep 600", %q, %q] }
			    timeout = "1h"
			    period  = "1s"
			  }
			}
			`, n, leave, filepath.Join(dir, strconv.Itoa(n)))
		}
		e := runCommands(t, config.String())
		var pids []int
		testsync.Until(t, "the processes", func() bool {
			pids = nil
			for n := range targets {
				text, _ := os.ReadFile(filepath.Join(dir, strconv.Itoa(n)))
				for field := range strings.FieldsSeq(string(text)) {
					pid, _ := strconv.Atoi(field)
					pids = append(pids, pid)
				}
			}
			return len(pids) == 3*targets
		})
		e.kill()
		for _, pid := range pids {
			testsync.Until(t, "the end of process "+strconv.Itoa(pid), func() bool { return syscall.Kill(pid, 0) != nil })
		}
	}
}

// The fork bomb is killed, with the outcome unknown, and changes no verdict of its neighbours.
func TestAForkBombInAProbeDisturbsNoNeighbour(t *testing.T) {
	tier.CI(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	const neighbours = 5
	config := `target "bomb" {
	  probe "readiness" {
	    exec { command = ["sh", "-c", "(setsid sh -c 'while :; do sleep 600.25 & done' &); sleep 600"] }
	    timeout = "1h"
	    period  = "5s"
	  }
	}
	`
	for n := range neighbours {
		for name, block := range map[string]string{"http": `http { port = "` + port + `" }`, "exec": `exec { command = ["true"] }`} {
			config += fmt.Sprintf("target \"%s/%d\" {\n  address = \"127.0.0.1\"\n  probe \"readiness\" {\n    %s\n    period = \"1s\"\n  }\n}\n", name, n, block)
		}
	}
	e := runCommands(t, config, faulttest.Processes(1500))
	testsync.Until(t, "the end of a bomb", func() bool {
		r := e.probe(t, "bomb").Result
		return r != nil && r.Reason == "exec.processes"
	})
	for n := range neighbours {
		for _, name := range []string{"http", "exec"} {
			target := fmt.Sprintf("%s/%d", name, n)
			before := e.probe(t, target).Attempts.Success
			testsync.Until(t, "further attempts", func() bool { return e.probe(t, target).Attempts.Success > before })
			if p := e.probe(t, target); p.Verdict != probe.Passing || p.Changes > 2 { // that of its instance, and the first verdict
				t.Errorf("%s: %v after %d changes, %+v", target, p.Verdict, p.Changes, p.Attempts)
			}
		}
	}
	e.kill() // another attempt has begun since
	testsync.Until(t, "the end of its processes", func() bool {
		all, _ := filepath.Glob("/proc/[1-9]*/cmdline")
		return !slices.ContainsFunc(all, func(file string) bool {
			words, _ := os.ReadFile(file)
			return string(words) == "sleep\x00600.25\x00"
		})
	})
}
