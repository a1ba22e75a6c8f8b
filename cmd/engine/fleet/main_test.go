package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/root"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/etcdtest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"sonde-fleet": main,
		"plain":       func() { root.Main(root.Options{Program: "sonde"}) },
	})
}

// TestScripts runs the scripts of testdata, with a real etcd and engines that are processes. They have
// additional commands, see commands, the program plain, which is sonde without etcd, and these variables:
//
//	ETCD         URL of etcd, which the command etcd starts
//	SERVER_PORT  port of a server that accepts connections
//	ENGINE_1     address of the engine engine-1
func TestScripts(t *testing.T) {
	tier.Needs(t, "etcd")
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"etcd": startEtcd, "stopetcd": stopEtcd, "etcdget": etcdGet, "engine": startEngine, "crash": endEngine(syscall.SIGKILL), "shutdown": endEngine(syscall.SIGTERM),
			"substitute": substitute, "waitshared": waitShared, "waitstored": waitStored, "nochanges": noChanges, "waitrun": waitRun, "waitget": waitGet, "waitlog": waitLog,
		},
		Setup: func(e *testscript.Env) error {
			server, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			go accept(server)
			e.Defer(func() { _ = server.Close() })
			_, port, _ := net.SplitHostPort(server.Addr().String())
			e.Setenv("SERVER_PORT", port)
			f := &fleet{engines: map[string]*process{}, seen: map[string]int{}, peer: freeURL(t)}
			e.Setenv("ETCD", freeURL(t))
			e.Setenv("HOME", e.WorkDir)
			e.Values[fleetKey{}] = f
			return nil
		},
	})
}

// accept accepts connections, without responding, until the listener is closed.
func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

func freeURL(t *testing.T) string { return "http://" + gatewaytest.FreeAddress(t) }

// fleet holds the processes of a script.
type fleet struct {
	etcd    *process
	peer    string // URL of etcd for other members
	engines map[string]*process
	seen    map[string]int // by engine: number of changed verdicts in its log at the last check
}

type fleetKey struct{}

func fleetOf(ts *testscript.TestScript) *fleet { return ts.Value(fleetKey{}).(*fleet) }

// process is a background process that writes its output to a file.
type process struct {
	*exec.Cmd
	log   string
	ended chan struct{} // closed when the process exits
}

func start(ts *testscript.TestScript, name string, c *exec.Cmd) *process {
	p := &process{Cmd: c, log: ts.MkAbs(name + ".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	ts.Check(err)
	defer log.Close()
	p.Dir, p.Stdout, p.Stderr = ts.MkAbs("."), log, log
	ts.Check(p.Start())
	go func() {
		defer close(p.ended)
		_ = p.Wait() // the process may have been killed
	}()
	ts.Defer(func() { p.end(syscall.SIGKILL) })
	return p
}

func (p *process) end(s os.Signal) {
	_ = p.Process.Signal(s) // the process may have exited
	<-p.ended
}

// startEtcd implements the command etcd. It starts etcd, or restarts it with the same data.
func startEtcd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "etcd")
	f, client := fleetOf(ts), ts.Getenv("ETCD")
	f.etcd = start(ts, "etcd", etcdtest.Single(client, f.peer))
	wait(ts, "etcd to answer", func() bool { return revision(client) > 0 })
}

func stopEtcd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "stopetcd")
	fleetOf(ts).etcd.end(syscall.SIGKILL)
}

// revision returns etcd's current revision, or 0 if etcd does not respond.
func revision(client string) int64 {
	answer, err := etcdRange(client, "x")
	if err != nil {
		return 0
	}
	return answer.Header.Revision
}

// rangeAnswer is etcd's response to a range request.
type rangeAnswer struct {
	Header struct {
		Revision int64 `json:"revision,string"`
	} `json:"header"`
	Entries []struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	} `json:"kvs"`
}

// etcdRange reads the keys with a prefix from etcd. The prefix must not be empty.
func etcdRange(client, prefix string) (answer rangeAnswer, err error) {
	end := []byte(prefix)
	end[len(end)-1]++
	request, err := json.Marshal(map[string][]byte{"key": []byte(prefix), "range_end": end})
	if err != nil {
		return answer, err
	}
	response, err := http.Post(client+"/v3/kv/range", "application/json", bytes.NewReader(request))
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

// etcdGet implements etcdget PREFIX. It writes the keys with a prefix, and their values.
func etcdGet(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "etcdget PREFIX")
	answer, err := etcdRange(ts.Getenv("ETCD"), args[0])
	ts.Check(err)
	for _, e := range answer.Entries {
		_, err := fmt.Fprintf(ts.Stdout(), "%s %s\n", e.Key, e.Value)
		ts.Check(err)
	}
}

// startEngine implements engine NAME [ARG...]. It starts an engine with config.hcl, and sets a variable to its address.
func startEngine(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "engine NAME [ARG...]")
	name, f := args[0], fleetOf(ts)
	ts.Check(os.RemoveAll(ts.MkAbs(name + ".address")))
	flags := []string{"run", "--cluster-name", name, "--listen", "127.0.0.1:0", "--address-file", name + ".address", "--log-format", "text"}
	f.engines[name] = start(ts, name, exec.Command("sonde-fleet", append(flags, args[1:]...)...))
	wait(ts, name+" to listen", func() bool {
		b, err := os.ReadFile(ts.MkAbs(name + ".address"))
		ts.Setenv(variable(name), strings.TrimSpace(string(b)))
		return err == nil && len(b) > 0
	})
}

// variable returns the name of the variable with the address of an engine.
func variable(engine string) string { return strings.ToUpper(strings.ReplaceAll(engine, "-", "_")) }

// endEngine implements crash NAME and shutdown NAME.
func endEngine(s os.Signal) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		usage(ts, !neg && len(args) == 1, "crash NAME, or shutdown NAME")
		f := fleetOf(ts)
		f.engines[args[0]].end(s)
		delete(f.engines, args[0])
	}
}

// substitute implements substitute FILE. It replaces ${VARIABLE} in the file, except for unknown variables.
func substitute(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "substitute FILE")
	text := strings.NewReplacer("${ETCD}", ts.Getenv("ETCD"), "${SERVER_PORT}", ts.Getenv("SERVER_PORT")).Replace(ts.ReadFile(args[0]))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// waitShared implements waitshared NAME... It waits until each target is probed by one of these engines and shown as ready by
// all.
func waitShared(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "waitshared NAME...")
	last := ""
	defer func() { ts.Logf("%s", last) }()
	wait(ts, "each target to be ready in one of "+strings.Join(args, ", "), func() bool {
		owners, shared := map[string][]string{}, 0
		last = ""
		for _, name := range args {
			client := api.Client{Base: "http://" + ts.Getenv(variable(name))}
			cluster, err := client.Cluster(context.Background())
			all, listErr := client.Targets(context.Background(), api.Query{})
			if err != nil || listErr != nil {
				last = fmt.Sprintf("%s: %v, %v", name, err, listErr)
				return false
			}
			shared = cluster.Targets
			for _, target := range all.Targets {
				switch {
				case target.State != probe.StateReady:
					last += fmt.Sprintf("%s is %s by %s\n", target.Name, target.State.String(), name)
				case target.Heard.IsZero():
					owners[target.Name] = append(owners[target.Name], name)
				}
			}
			if all.Total != shared {
				last += fmt.Sprintf("%s shows that there is %d of %d targets\n", name, all.Total, shared)
			}
		}
		for target, names := range owners {
			if len(names) > 1 {
				last += fmt.Sprintf("%s is in %v\n", target, names)
			}
		}
		last += fmt.Sprintf("%d of %d are ready\n", len(owners), shared)
		return shared > 0 && len(owners) == shared && !strings.Contains(last, " is ")
	})
}

// quiet is how long etcd's revision must be unchanged until all changes count as stored. It is several times as long as the
// time for which engines collect changes.
const quiet = 5 * time.Second

// waitStored implements waitstored. It waits until the engines have stored all verdicts: in a steady state they write nothing.
func waitStored(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "waitstored")
	last, since := int64(0), time.Now()
	wait(ts, "nothing to be written", func() bool {
		if now := revision(ts.Getenv("ETCD")); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > quiet
	})
	for name := range fleetOf(ts).engines {
		fleetOf(ts).seen[name] = changes(ts, name)
	}
}

// noChanges implements nochanges NAME... It checks that no verdict has changed in these engines since waitstored.
func noChanges(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "nochanges NAME...")
	for _, name := range args {
		if n := changes(ts, name) - fleetOf(ts).seen[name]; n > 0 {
			ts.Fatalf("%d verdicts have changed:\n%s", n, logOf(ts, name))
		}
	}
}

func changes(ts *testscript.TestScript, engine string) int {
	return strings.Count(logOf(ts, engine), `msg="verdict changed"`)
}

func logOf(ts *testscript.TestScript, engine string) string {
	text, err := os.ReadFile(ts.MkAbs(engine + ".log"))
	ts.Check(err)
	return string(text)
}

// waitLog implements waitlog NAME REGEXP. It waits until the log of an engine matches.
func waitLog(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "waitlog NAME REGEXP")
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	wait(ts, "the log of "+args[0]+" to have "+args[1], func() bool { return re.MatchString(logOf(ts, args[0])) })
}

// waitRun implements waitrun REGEXP PROGRAM [ARG...]. It runs the program repeatedly until its output matches.
func waitRun(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "waitrun REGEXP PROGRAM [ARG...]")
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	var output []byte
	defer func() { ts.Logf("last output:\n%s", output) }()
	wait(ts, "the output of "+strings.Join(args[1:], " "), func() bool {
		output, _ = exec.Command(args[1], args[2:]...).CombinedOutput() // the exit code is irrelevant
		return re.Match(output)
	})
}

// waitGet implements waitget URL REGEXP. It waits until the status and the body of the response match.
func waitGet(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "waitget URL REGEXP")
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	text := ""
	defer func() { ts.Logf("last answer:\n%s", text) }()
	wait(ts, args[0]+" to answer "+args[1], func() bool {
		response, err := http.Get(args[0])
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		text = response.Status + "\n" + string(body)
		return err == nil && re.MatchString(text)
	})
}

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// patience limits waiting, so that a failing test does not hang.
const patience = 5 * time.Minute

// wait waits until a condition holds.
func wait(ts *testscript.TestScript, what string, holds func() bool) {
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("timeout waiting for %s%s", what, logs(ts))
		}
	}
}

// logs returns the last lines of all logs.
func logs(ts *testscript.TestScript) (all string) {
	paths, err := filepath.Glob(ts.MkAbs("*.log"))
	ts.Check(err)
	slices.Sort(paths)
	for _, path := range paths {
		text, _ := os.ReadFile(path) // of a failing test
		all += fmt.Sprintf("\n%s:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
	}
	return all
}
