package haproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestTheSocketIsOnThisMachine(t *testing.T) {
	for socket, want := range map[string]string{
		"/run/haproxy/admin.sock": "", "./admin.sock": "", "127.0.0.1:9999": "", "[::1]:9999": "",
		"10.0.0.7:9999": "another machine", "": "path of a Unix socket", "admin": "path of a Unix socket", "127.0.0.1:0": "path of a Unix socket",
	} {
		err := Config{Socket: socket}.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q gives %v, want %q", socket, err, want)
		}
	}
	if err := (Config{Socket: "/x", Backend: "web; shutdown"}).Check(); err == nil {
		t.Error("a backend may be a command")
	}
}

// header is that of "show servers state" of HAProxy 2.6.
const header = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n"

func row(name, address string, admin, weight, port int) string {
	return fmt.Sprintf("3 web 1 %s %s 2 %d %d 100 2 1 0 2 0 0 0 0 - %d - 0 0 - - 0\n", name, address, admin, weight, port)
}

func TestServersAreRead(t *testing.T) {
	got, err := parseServers(header + row("a", "10.0.0.7", 0, 100, 80) + row("b", "::1", 9, 256, 8080) + "\n")
	if want := []server{{"a", "10.0.0.7", "80", 0, 100}, {"b", "::1", "8080", 9, 256}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"Can't find backend.\n\n": "HAProxy says: Can't find backend.", "Permission denied\n": "HAProxy says: Permission denied", "": "HAProxy says",
		"1\n# srv_name\n": "no column srv_addr", header + "3 web 1 a\n": "cut off", header + strings.Replace(row("a", "b", 0, 1, 1), " 0 1 ", " x 1 ", 1): "server a",
		"2\n" + header[2:]: "HAProxy says",
	} {
		if got, err := parseServers(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q gives %v, %v, want %s", text, got, err, want)
		}
	}
}

func FuzzServersAreRead(f *testing.F) {
	f.Add(header + row("a", "10.0.0.7", 0, 100, 80))
	f.Add("1\n# srv_name srv_addr srv_port srv_admin_state srv_uweight\na b 1 2 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseServers(text)
		for _, s := range all {
			if err == nil && (s.name == "" || strings.ContainsAny(s.name, "\n ")) {
				t.Errorf("%q gives %+v", text, s)
			}
		}
	})
}

// recorder is a runtime socket that records commands.
type recorder struct {
	path    string
	answers string // to show servers state

	mu       sync.Mutex
	commands []string
	refusal  string
}

func record(t *testing.T, servers string) *recorder {
	r := &recorder{path: filepath.Join(gatewaytest.Dir(t), "s"), answers: header + servers + "\n"}
	l, err := net.Listen("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, r.answer(strings.TrimSpace(line)))
			conn.Close()
		}
	}()
	return r
}

func (r *recorder) answer(line string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(line, "show servers state") {
		return r.answers
	}
	r.commands = append(r.commands, strings.Split(line, "; ")...)
	return r.refusal + "\n\n"
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.commands = nil }()
	return r.commands
}

// A server is found by the name of its target, by the last part of that, or by its address and
// port, and gets the commands that it needs, and no others.
func TestOnlyWhatDiffersIsSet(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "http"}, map[string]string{
		"same": "", "back": "", "shop/down": "", `web["x"]`: "10.0.0.7:80", "drains": "", "maint": "",
	})
	s.Say(map[string]probe.Outcome{
		"same": probe.Success, "back": probe.Success, "shop/down": probe.Failure, `web["x"]`: probe.Failure, "drains": probe.Success, "maint": probe.Failure,
	})
	s.Leave("drains")
	r := record(t, row("same", "10.1.0.1", 0, 100, 80)+row("back", "10.1.0.2", 1, 50, 80)+row("down", "10.1.0.3", 8, 100, 80)+
		row("other", "10.0.0.7", 0, 100, 80)+row("drains", "10.1.0.4", 0, 100, 80)+row("maint", "10.1.0.5", 1, 3, 80)+row("stranger", "10.1.0.6", 0, 7, 80))
	p := New(Config{Socket: r.path})
	now := time.Now()
	want := []string{
		"set server web/back state ready", "set server web/back weight 100", "set server web/down state maint", "set server web/drains state drain",
		"set server web/other state maint",
	}
	sessions := []string{"shutdown sessions server web/down", "shutdown sessions server web/other"}
	for after, ends := range map[time.Duration][]string{0: nil, endSessionsAfter - 1: nil, endSessionsAfter: sessions} {
		p := New(Config{Socket: r.path}) // "show servers state" goes on to answer the same
		for _, at := range []time.Duration{0, after} {
			if err := p.update(t.Context(), []*group.View{s.Groups.Get("web").View()}, now.Add(at)); err != nil {
				t.Fatal(err)
			}
			if at == 0 && after > 0 {
				r.take()
			}
		}
		got := r.take()
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, append(slices.Clone(want), ends...)) {
			t.Errorf("after %v the commands are %q, want %q and %q", after, got, want, ends)
		}
	}
	r.refusal = "Permission denied"
	if err := p.update(t.Context(), []*group.View{s.Groups.Get("web").View()}, now); err == nil || !strings.Contains(err.Error(), "Permission denied") {
		t.Errorf("a refused command gives %v", err)
	}
}

// A member without a server, and an HAProxy that is not there, are errors, and the rest goes on.
func TestWhatIsMissingIsShown(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "", "b": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Failure, "b": probe.Success})
	r := record(t, row("a", "10.0.0.7", 0, 100, 80))
	all := gateway.New(gateway.Config{Groups: s.Groups})
	specs := map[string]gateway.Spec{
		"here": {Groups: []string{"web"}, New: func() gateway.Output { return New(Config{Socket: r.path}) }},
		"none": {Groups: []string{"web"}, New: func() gateway.Output { return New(Config{Socket: r.path + "2"}) }},
	}
	if err := all.Apply(specs); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, all)
	for i, want := range []string{"there is no server for b", "no such file"} {
		testsync.Until(t, want, func() bool { return strings.Contains(all.Statuses()[i].Error, want) })
	}
	testsync.Until(t, "commands", func() bool { return slices.Contains(r.take(), "set server web/a state maint") })
}

func TestManyCommandsAreSentInParts(t *testing.T) {
	r := record(t, "")
	var commands []string
	for i := range 2000 {
		commands = append(commands, fmt.Sprintf("set server web/server-%d state maint", i))
	}
	if err := socket(r.path).run(t.Context(), commands); err != nil {
		t.Fatal(err)
	}
	if got := r.take(); !slices.Equal(got, commands) {
		t.Errorf("%d commands have arrived", len(got))
	}
}
