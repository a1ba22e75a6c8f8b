package render

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

const minInterval = 10 * time.Millisecond // of a Config

// run runs a renderer for the group of a scene.
func run(t *testing.T, s *gatewaytest.Scene, c Config) (status func() group.GatewayStatus, stop func()) {
	t.Helper()
	return runFor(t, s, c, "web")
}

// runFor runs a renderer for groups.
func runFor(t *testing.T, s *gatewaytest.Scene, c Config, groups ...string) (status func() group.GatewayStatus, stop func()) {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	all := gateway.New(gateway.Config{Groups: s.Groups})
	if err := all.Apply(map[string]gateway.Spec{"edge": {Groups: groups, New: func() gateway.Output { return New(c) }}}); err != nil {
		t.Fatal(err)
	}
	stop = gatewaytest.Run(t, all)
	return func() group.GatewayStatus { return all.Statuses()[0] }, stop
}

// has waits until a file has a text.
func has(t *testing.T, path, want string) {
	t.Helper()
	testsync.Until(t, fmt.Sprintf("%q in %s", want, path), func() bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == want
	})
}

const list = "{{range .Members}}{{.Name}} {{.HostPort}} {{.State}} {{.Weight}} {{.Reason}}\n{{end}}"

func TestAFileFollowsItsMembers(t *testing.T) {
	dir := t.TempDir()
	path, ran := filepath.Join(dir, "out"), filepath.Join(dir, "ran")
	s := gatewaytest.New(t, group.Rule{Port: "http", DegradedWeight: 0.25}, map[string]string{"web-1": "10.0.0.7:80", `x["é"]`: "[fd00::1]:8080", "bare": ""})
	status, stop := run(t, s, Config{
		Template: list, Path: path, Command: []string{"sh", "-c", "cat " + path + " >> " + ran}, Interval: minInterval,
	})
	s.Say(map[string]probe.Outcome{"web-1": probe.Success, `x["é"]`: probe.Unknown, "bare": probe.Failure})
	if _, err := os.Stat(path); err == nil || status().Outputs > 0 {
		t.Error("the file is written before all members are decided")
	}
	s.Say(map[string]probe.Outcome{`x["é"]`: probe.Warning})
	want := "web_1 10.0.0.7:80 ready 100 \nx_____ [fd00::1]:8080 degraded 25 \n"
	has(t, path, want)
	has(t, ran, want)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Say(map[string]probe.Outcome{"web-1": probe.Failure, `x["é"]`: probe.Success})
	second := "web_1 10.0.0.7:80 down 0 exec.exit\nx_____ [fd00::1]:8080 ready 100 \n"
	has(t, path, second)
	testsync.Until(t, "the command", func() bool { text, _ := os.ReadFile(ran); return strings.HasSuffix(string(text), second) })
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	stop()
	if err := os.Remove(ran); err != nil {
		t.Fatal(err)
	}
	run(t, s, Config{Template: list, Path: path, Command: []string{"sh", "-c", "cat " + path + " >> " + ran}}) // it may not have run before
	has(t, ran, second)
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("the folder has %v, %v", names, err)
	}
}

// A group of which nothing is known any more stays in the file as it was, and the others go on.
func TestAFrozenGroupHoldsUpNoOther(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1:80", "b": "10.0.0.2:80", "x": "10.0.0.3:80"})
	groups := func(other string) {
		t.Helper()
		rules := map[string]group.Rule{}
		for name, members := range map[string][]string{"web": {"a", "b"}, "other": {other}} {
			selector, err := probe.NewSelector(members, nil)
			if err != nil {
				t.Fatal(err)
			}
			rules[name] = group.Rule{Members: selector}
		}
		if err := s.Groups.Apply(rules); err != nil {
			t.Fatal(err)
		}
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success, "x": probe.Success})
	groups("x")
	path := filepath.Join(t.TempDir(), "out")
	runFor(t, s, Config{Template: list, Path: path, Interval: minInterval}, "web", "other")
	has(t, path, "a 10.0.0.1 ready 100 \nb 10.0.0.2 ready 100 \nx 10.0.0.3 ready 100 \n")
	groups("none*")
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	has(t, path, "a 10.0.0.1 down 0 exec.exit\nb 10.0.0.2 ready 100 \nx 10.0.0.3 ready 100 \n")
}

// A member without an address is left out of a file that has addresses, and reported, until it leaves
// the group. A file of names has it.
func TestAMemberWithoutAnAddressIsLeftOut(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1", "bare": ""})
	members := func(names ...string) {
		t.Helper()
		selector, err := probe.NewSelector(names, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Groups.Apply(map[string]group.Rule{"web": {Members: selector}}); err != nil {
			t.Fatal(err)
		}
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "bare": probe.Failure})
	members("a", "bare", "ghost")
	addresses, names := filepath.Join(t.TempDir(), "addresses"), filepath.Join(t.TempDir(), "names")
	status, _ := run(t, s, Config{Template: list, Path: addresses, Interval: minInterval})
	ofNames, _ := run(t, s, Config{Template: "{{range .Members}}{{.Name}} {{end}}", Path: names, Interval: minInterval})
	has(t, names, "a bare ghost ")
	has(t, addresses, "a 10.0.0.1 ready 100 \n")
	testsync.Until(t, "an error", func() bool { return status().Failing == 1 })
	if st := status(); st.Failures[0].Source != "group web" || !strings.Contains(st.Error, "members without an address are left out: bare;") {
		t.Errorf("the status is %+v", st)
	}
	members("a", "ghost")
	testsync.Until(t, "its end", func() bool { return status().Failing == 0 })
	if st := ofNames(); st.Errors > 0 {
		t.Errorf("the status of names is %+v", st)
	}
}

func TestACommandThatFailsIsRunAgain(t *testing.T) {
	dir := t.TempDir()
	path, ran, ok := filepath.Join(dir, "out"), filepath.Join(dir, "ran"), filepath.Join(dir, "ok")
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	status, _ := run(t, s, Config{
		Template: list, Path: path, Interval: minInterval, Command: []string{"sh", "-c", "echo x >> " + ran + "; echo no '\n' luck; test -e " + ok},
	})
	testsync.Until(t, "two failures", func() bool { return status().Errors >= 2 })
	if st := status(); st.Error != "sh: exit status 1: no luck" || st.Outputs != 0 || st.ErrorSince.IsZero() {
		t.Errorf("the status is %+v", st)
	}
	gatewaytest.WriteFile(t, dir, "ok", "")
	testsync.Until(t, "success", func() bool { return status().Error == "" && status().Outputs == 1 })
	text, err := os.ReadFile(ran)
	if err != nil || strings.Count(string(text), "x") != int(status().Errors)+1 {
		t.Errorf("the command ran %q, %v, and the status is %+v", text, err, status())
	}
}

// A command that hangs is killed, and what has changed meanwhile is in the next run.
func TestACommandThatHangsIsKilled(t *testing.T) {
	dir := t.TempDir()
	path, hang := filepath.Join(dir, "out"), filepath.Join(dir, "hang")
	gatewaytest.WriteFile(t, dir, "hang", "")
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	status, stop := run(t, s, Config{
		Template: list, Path: path, Interval: minInterval, Timeout: 500 * time.Millisecond, Command: []string{"sh", "-c", "test ! -e " + hang + " || exec sleep 1000"},
	})
	testsync.Until(t, "a failure", func() bool { return strings.Contains(status().Error, "killed after 500ms (timeout)") })
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	testsync.Until(t, "success", func() bool { return status().Error == "" && status().Outputs > 0 })
	has(t, path, "a 10.0.0.1 down 0 exec.exit\n")
	stop()
}

// A command is killed with its descendants, also with those in a session of their own.
func TestACommandIsKilledWithItsDescendants(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil || runtime.GOOS != "linux" {
		t.Skip("setsid is missing, or this is not Linux")
	}
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	inner := filepath.Join(dir, "inner")
	gatewaytest.WriteFile(t, dir, "inner", "setsid sleep 1000 & echo $$ $! >> "+pids+"\nwait\n")
	_, stop := run(t, s, Config{Template: list, Path: filepath.Join(dir, "out"), Timeout: time.Hour, Command: []string{"sh", "-c", "setsid sh " + inner + " & echo $! >> " + pids + "; wait"}})
	var all []string
	testsync.Until(t, "three descendants", func() bool {
		text, _ := os.ReadFile(pids)
		all = strings.Fields(string(text))
		return len(all) == 3
	})
	stop()
	for _, pid := range all {
		testsync.Until(t, "the end of process "+pid, func() bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ") // init may be slow to reap it
		})
	}
}

// However often members change, the command runs at most once per interval.
func TestRunsAreApart(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	status, _ := run(t, s, Config{Template: list, Path: filepath.Join(dir, "out"), Interval: time.Hour, Command: []string{"sh", "-c", "echo x >> " + ran}})
	testsync.Until(t, "the first run", func() bool { return status().Outputs == 1 })
	for range 3 {
		s.Say(map[string]probe.Outcome{"a": probe.Failure})
		s.Say(map[string]probe.Outcome{"a": probe.Success})
	}
	if text, err := os.ReadFile(ran); err != nil || string(text) != "x\n" {
		t.Errorf("the command ran %q, %v", text, err)
	}
}

func TestAFileThatCannotBeWrittenIsShown(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	dir := t.TempDir()
	status, _ := run(t, s, Config{Template: list, Path: filepath.Join(dir, "none", "out"), Interval: minInterval})
	testsync.Until(t, "a failure", func() bool { return strings.Contains(status().Error, "no such file or directory") })
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "success", func() bool { return status().Error == "" })
}

func TestTemplatesAreChecked(t *testing.T) {
	tier.Slow(t)
	for text, want := range map[string]string{
		"": "", list: "", "{{index .Members 7}}": "", "{{len .InRotation}}": "", "{{(index .Groups 0).Name}}": "",
		"{{range .Members}}": "unexpected EOF", "{{range .Member}}{{end}}": "has .Member, which does not exist there; what exists: .Groups",
		"{{range .Members}}{{.Adress}}{{end}}": "has .Adress, which does not exist there; what exists: .Target, .Name, .Address", "{{nothing}}": `function "nothing" not defined`,
		"{{_step}}": `function "_step" not defined`, "{{range 1000}}{{if .}}{{else}}{{end}}{{end}}": "",
		"{{with 1}}{{if .}}{{range 1000000000000}}{{continue}}{{end}}{{end}}{{end}}": "steps",
		doubling(40): "steps",
	} {
		err := Config{Template: text, Path: "x"}.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q gives %v, want %q", text, err, want)
		}
	}
	for _, c := range []Config{{}, {Path: "/etc/passwd"}, {Path: "x", Interval: 1}, {Path: "x", Timeout: 2 * time.Hour}, {Path: "x", Command: []string{""}}, {Path: "x", Timeout: time.Second}} {
		if err := c.Check(); err == nil {
			t.Errorf("%+v is valid", c)
		}
	}
	huge, err := parseTemplate(strings.Repeat(`{{printf "%1000000d" 1}}`, 17))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := execute(huge, example); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a huge text gives %v", err)
	}
}

// doubling returns a template of which each part calls the next one twice, n times, and that
// writes nothing.
func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{{define "%d"}}{{template "%d"}}{{template "%d"}}{{end}}`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `{{define "%d"}}{{end}}{{template "0"}}`, n)
	return b.String()
}

func TestOnlyARegularFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	status, _ := run(t, s, Config{Template: list, Path: path, Interval: minInterval})
	testsync.Until(t, "a failure", func() bool { return strings.Contains(status().Error, "is not a regular file") })
	if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("the pipe was replaced: %v %v", info, err)
	}
}

// A successor starts when Run returns, and must not run its command beside one that hangs.
func TestTheEndWaitsForACommandThatDoesNotExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{Template: list, Path: "x"}).(*renderer)
		exited, ended := make(chan struct{}), make(chan struct{})
		r.stuck = exited
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { defer close(ended); r.Run(ctx, nil) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the renderer has ended before the command")
		default:
		}
		close(exited)
		<-ended
	})
}
