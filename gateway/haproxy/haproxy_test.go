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

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
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
	if want := []server{{"a", "10.0.0.7", "80", "-", 0, 100}, {"b", "::1", "8080", "-", 9, 256}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"Can't find backend.\n\n": "HAProxy says: Can't find backend.", "Permission denied\n": "HAProxy says: Permission denied", "": "HAProxy says",
		"1\n# srv_name\n": "no column srv_addr", header + "3 web 1 a\n": "truncated line", header + strings.Replace(row("a", "b", 0, 1, 1), " 0 1 ", " x 1 ", 1): "server a",
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
	r := &recorder{path: filepath.Join(testsync.SocketDir(t), "s"), answers: header + servers + "\n"}
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
	p := newPusher(Config{Socket: r.path})
	now := time.Now()
	want := []string{
		"set server web/back state ready", "set server web/back weight 100", "set server web/down state maint", "set server web/drains state drain",
		"set server web/other state maint",
	}
	sessions := []string{"shutdown sessions server web/down", "shutdown sessions server web/other"}
	for after, ends := range map[time.Duration][]string{0: nil, endSessionsAfter - 1: nil, endSessionsAfter: sessions} {
		p := newPusher(Config{Socket: r.path}) // "show servers state" goes on to answer the same
		for _, at := range []time.Duration{0, after} {
			if results := p.update(t.Context(), []*group.View{s.Groups.Get("web").View()}, now.Add(at)); results["group web"] != nil || results[sourceSocket] != nil {
				t.Fatal(results)
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
	if err := p.update(t.Context(), []*group.View{s.Groups.Get("web").View()}, now)["group web"]; err == nil || !strings.Contains(err.Error(), "Permission denied") {
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
	for i, want := range []string{"no server for b", "no such file"} {
		testsync.Until(t, want, func() bool { return strings.Contains(all.Statuses()[i].Error, want) })
	}
	testsync.Until(t, "commands", func() bool { return slices.Contains(r.take(), "set server web/a state maint") })
}

// A server that refuses its commands for ever does not keep another one, whose member leaves, in use.
func TestARefusedCommandDoesNotKeepAMemberThatLeaves(t *testing.T) {
	servers := row("a", "10.0.0.7", 0, 1, 80)
	r := record(t, servers+row("b", "10.0.0.8", 0, 100, 80))
	r.refusal = "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'."
	p := newPusher(Config{Socket: r.path})
	weight, maint := "set server g1/a weight 100", "set server g1/b state maint"
	for i, c := range []struct {
		members []*group.Member
		b       int // administrative state
		want    []string
	}{
		{[]*group.Member{up("a"), up("b")}, 0, []string{weight}},
		{[]*group.Member{up("a")}, 0, []string{weight, maint}},
		{[]*group.Member{up("a")}, 0, []string{weight, maint}}, // it may have been the one that was refused
		{[]*group.Member{up("a")}, forcedMaint, []string{weight}},
		{[]*group.Member{up("a")}, 0, []string{weight}}, // by hand
	} {
		r.answers = header + servers + row("b", "10.0.0.8", c.b, 100, 80) + "\n"
		results := p.update(t.Context(), views(c.members), time.Now())
		if got := r.take(); !slices.Equal(got, c.want) || results["group g1"] == nil || results[sourceSocket] != nil {
			t.Errorf("update %d: the commands are %q, want %q; %v", i, got, c.want, results)
		}
	}
}

// A new HAProxy may give the name of a member's server to another one, of which nothing is known. All
// would go into maintenance otherwise, before the configuration of Sonde has the new servers.
func TestAServerElsewhereIsNotTheMembers(t *testing.T) {
	r := record(t, row("b", "10.0.0.8", 0, 100, 80))
	p := newPusher(Config{Socket: r.path})
	member := up("web-2")
	member.Address, member.Port = "10.0.0.8", 80
	for i, c := range []struct {
		server  string
		members []*group.Member
		want    []string
	}{
		{row("b", "10.0.0.8", 0, 100, 80), []*group.Member{member}, nil},
		{row("b", "10.0.0.9", 0, 100, 80), []*group.Member{member}, nil},
		{row("b", "10.0.0.8", 0, 100, 80), []*group.Member{member}, nil},
		{row("b", "10.0.0.8", 0, 100, 81), nil, nil},
		{row("b", "10.0.0.8", 0, 100, 80), []*group.Member{member}, nil},
		{row("b", "10.0.0.8", 0, 100, 80), nil, []string{"set server g1/b state maint"}},
	} {
		r.answers = header + c.server + "\n"
		p.update(t.Context(), views(c.members), time.Now())
		if got := r.take(); !slices.Equal(got, c.want) {
			t.Errorf("update %d: the commands are %q, want %q", i, got, c.want)
		}
	}
}

// The command that ends sessions is sent again if HAProxy has not answered it, and not otherwise.
// A server that has the name of a member is at the address that is probed: it would get requests elsewhere, whatever the probes find.
func TestAServerIsAtTheAddressOfItsMember(t *testing.T) {
	for name, c := range map[string]struct {
		server  string
		address string
		port    uint16
		want    string // after "set server g1/a "
		problem string
	}{
		"the same":                    {row("a", "10.0.0.7", 0, 100, 80), "10.0.0.7", 80, "", ""},
		"another address":             {row("a", "10.0.0.8", 0, 100, 80), "10.0.0.7", 80, "addr 10.0.0.7 port 80", ""},
		"another port":                {row("a", "10.0.0.7", 0, 100, 81), "10.0.0.7", 80, "addr 10.0.0.7 port 80", ""},
		"a group without a port":      {row("a", "10.0.0.8", 0, 100, 81), "10.0.0.7", 0, "addr 10.0.0.7", ""},
		"a server without a port":     {row("a", "10.0.0.8", 0, 100, 0), "10.0.0.7", 80, "addr 10.0.0.7", ""},
		"the same in IPv6":            {row("a", "fd00::7", 0, 100, 80), "fd00:0::7", 80, "", ""},
		"another family":              {row("a", "10.0.0.7", 0, 100, 80), "fd00::7", 80, "addr fd00::7 port 80", ""},
		"a member without an address": {row("a", "10.0.0.8", 0, 100, 80), "", 0, "", ""},
		"a member with a name":        {row("a", "10.0.0.8", 0, 100, 80), "a.lab", 80, "", ""},
		"a process of this machine":   {row("a", "10.0.0.8", 0, 100, 80), "127.0.0.1", 80, "", ""},
		"a server on a unix socket":   {row("a", "-", 0, 100, 0), "10.0.0.7", 80, "", ""},
		"a server with a name": {strings.Replace(row("a", "10.0.0.8", 0, 100, 80), " - 80", " a.lab 80", 1), "10.0.0.7", 80, "",
			"server a is at 10.0.0.8:80, by the name a.lab, and its member at 10.0.0.7:80"},
	} {
		t.Run(name, func(t *testing.T) {
			r, m := record(t, c.server), up("a")
			m.Address, m.Port = c.address, c.port
			var want []string
			if c.want != "" {
				want = []string{"set server g1/a " + c.want}
			}
			err := newPusher(Config{Socket: r.path}).update(t.Context(), views([]*group.Member{m}), time.Now())["group g1"]
			if got := r.take(); !slices.Equal(got, want) || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("the commands are %q, want %q; %v", got, want, err)
			}
		})
	}
}

// It is the member's from then on: it gets no requests when the member leaves, also if HAProxy has refused to set its address.
func TestAServerThatMovesStaysItsMembers(t *testing.T) {
	for refusal, address := range map[string]string{"": "10.0.0.7", "No such server.": "10.0.0.8"} {
		r, m := record(t, row("a", "10.0.0.8", 0, 100, 80)), up("a")
		m.Address, m.Port, r.refusal = "10.0.0.7", 80, refusal
		p := newPusher(Config{Socket: r.path})
		p.update(t.Context(), views([]*group.Member{m}), time.Now())
		r.take()
		r.answers = header + row("a", address, 0, 100, 80) + "\n"
		p.update(t.Context(), views(nil), time.Now())
		if got, want := r.take(), []string{"set server g1/a state maint"}; !slices.Equal(got, want) {
			t.Errorf("after the answer %q the commands are %q, want %q", refusal, got, want)
		}
	}
}

// HAProxy answers to a command that sets an address, which is no error.
func TestHAProxyTakesTheAddressesOfMembers(t *testing.T) {
	admin := startHAProxy(t, "web", "a", "b")
	s := gatewaytest.New(t, group.Rule{Port: "http"}, map[string]string{"a": "127.0.0.7:80", "b": "127.0.0.1:2"})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success})
	s.RunOutput(func() gateway.Output { return New(Config{Socket: admin}) })
	testsync.Until(t, "the address of a", func() bool {
		servers, err := socket(admin).servers(t.Context(), "web")
		return err == nil && servers[0].place() == "127.0.0.7:80" && servers[1].place() == "127.0.0.1:2"
	})
	for _, command := range []string{"set server web/a addr 127.0.0.7 port 80", "set server web/a addr 127.0.0.8 port 81", "set server web/a addr ::1"} {
		if err := socket(admin).run(t.Context(), []string{command, "set server web/a weight 7"}); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	if err := socket(admin).run(t.Context(), []string{"set server web/a addr x.invalid"}); err == nil {
		t.Error("a name is an address")
	}
}

func TestSessionsEndAfterAFailureOfTheSocket(t *testing.T) {
	tier.Slow(t)
	r := record(t, row("a", "10.0.0.7", 0, 100, 80))
	p := newPusher(Config{Socket: r.path})
	now, down := time.Now(), views([]*group.Member{down("a")})
	p.update(t.Context(), down, now)
	if got := r.take(); !slices.Equal(got, []string{"set server g1/a state maint"}) {
		t.Fatalf("the commands are %q", got)
	}
	r.answers = header + row("a", "10.0.0.7", forcedMaint, 100, 80) + "\n"
	for i, c := range []struct {
		refusal string
		fails   bool
		want    []string
	}{
		{strings.Repeat(" ", maxAnswer), true, []string{"shutdown sessions server g1/a"}}, // too long
		{"", false, []string{"shutdown sessions server g1/a"}},
		{"", false, nil},
	} {
		r.refusal = c.refusal
		results := p.update(t.Context(), down, now.Add(endSessionsAfter+time.Duration(i)*interval))
		if got := r.take(); !slices.Equal(got, c.want) || (results[sourceSocket] != nil) != c.fails {
			t.Errorf("update %d: the commands are %q, want %q; %v", i, got, c.want, results)
		}
	}
}

// A group whose name no backend can have says nothing about the socket.
func TestAnInvalidBackendDoesNotCureTheSocket(t *testing.T) {
	v := group.NewMirror("web shop")
	v.Publish(&group.View{}, []*group.Member{up("a")})
	results := newPusher(Config{Socket: filepath.Join(testsync.SocketDir(t), "none")}).update(t.Context(), []*group.View{v.Group.View()}, time.Now())
	if _, reported := results[sourceSocket]; reported || results["group web shop"] == nil {
		t.Errorf("the results are %v", results)
	}
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

// A command that HAProxy refuses does not keep those after it from being sent.
func TestARefusedCommandHoldsUpNoOther(t *testing.T) {
	r := record(t, "")
	r.refusal = "No such server."
	commands := []string{"set server web/" + strings.Repeat("a", maxCommands), "set server web/b state maint"}
	if err := socket(r.path).run(t.Context(), commands); err == nil || !strings.Contains(err.Error(), "No such server.") {
		t.Errorf("the error is %v", err)
	}
	if got := r.take(); !slices.Equal(got, commands) {
		t.Errorf("%d commands have arrived", len(got))
	}
}

// views returns a View of each group, by its name, with members that have names and states.
func views(groups ...[]*group.Member) (all []*group.View) {
	for i, members := range groups {
		m := group.NewMirror(fmt.Sprintf("g%d", i+1))
		m.Publish(&group.View{}, members)
		all = append(all, m.Group.View())
	}
	return all
}

func up(target string) *group.Member {
	return &group.Member{Target: target, State: probe.GatewayReady, InRotation: true, Weight: 100}
}

func down(target string) *group.Member {
	return &group.Member{Target: target, State: probe.GatewayDown}
}

// Members that name the same server do not fight for it: the error names them, and the server is
// what the one says whose name is closer to its own, or stays as it is.
func TestMembersDoNotFightForAServer(t *testing.T) {
	weak := up("a")
	weak.Weight = 10
	at := func(m *group.Member) *group.Member { m.Address, m.Port = "10.0.0.7", 80; return m }
	for name, c := range map[string]struct {
		views    []*group.View
		commands []string
		problem  string // of the first group, and of the second one
	}{
		"one name":                        {views([]*group.Member{down("a")}), []string{"set server web/a state maint"}, ""},
		"two with the same last part":     {views([]*group.Member{down("pay/a"), up("shop/a")}), nil, `members "pay/a" of g1 and "shop/a" of g1 both match server a: the server is left unchanged`},
		"three":                           {views([]*group.Member{down("a/a"), down("b/a"), down("c/a")}), nil, `"a/a" of g1 and "c/a" of g1`},
		"its name, and its last part":     {views([]*group.Member{down("a"), up("shop/a")}), []string{"set server web/a state maint"}, `members "a" of g1 and "shop/a" of g1 both match server a: the first one is used`},
		"its last part, and its name":     {views([]*group.Member{up("1/a"), down("a")}), []string{"set server web/a state maint"}, `members "a" of g1 and "1/a" of g1`},
		"two of one address":              {views([]*group.Member{at(down("x")), at(up("y"))}), nil, `members "x" of g1 and "y" of g1 both match server a`},
		"one in two groups":               {views([]*group.Member{down("a")}, []*group.Member{down("a")}), []string{"set server web/a state maint"}, ""},
		"one with other weights":          {views([]*group.Member{weak}, []*group.Member{up("a")}), []string{"set server web/a weight 10"}, `members "a" of g1 and "a" of g2 both match server a: the first one is used`},
		"two groups with other last part": {views([]*group.Member{down("pay/a")}, []*group.Member{up("shop/a")}), nil, `members "pay/a" of g1 and "shop/a" of g2 both match server a: the server is left unchanged`},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, row("a", "10.0.0.7", 0, 100, 80))
			results := newPusher(Config{Socket: r.path, Backend: "web"}).update(t.Context(), c.views, time.Now())
			if got := r.take(); !slices.Equal(got, c.commands) {
				t.Errorf("the commands are %q, want %q", got, c.commands)
			}
			for _, v := range c.views {
				if err := results["group "+v.Group]; (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
					t.Errorf("the error of %s is %v, want %s", v.Group, err, c.problem)
				}
			}
		})
	}
}

// states returns the administrative states of the servers of a backend of an HAProxy.
func states(t *testing.T, admin, backend string) map[string]int {
	t.Helper()
	servers, err := socket(admin).servers(t.Context(), backend)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, s := range servers {
		all[s.name] = s.admin
	}
	return all
}

// startHAProxy starts HAProxy with a backend of servers, and returns its runtime socket.
func startHAProxy(t *testing.T, backend string, servers ...string) (admin string) {
	dir := testsync.SocketDir(t)
	admin = filepath.Join(dir, "admin.sock")
	text := "global\n    stats socket " + admin + " mode 600 level admin\ndefaults\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nbackend " + backend + "\n"
	for i, name := range servers {
		text += fmt.Sprintf("    server %s 127.0.0.1:%d weight 100\n", name, i+1)
	}
	gatewaytest.Start(t, gatewaytest.Accepts(admin), "haproxy", "-db", "-f", gatewaytest.WriteFile(t, dir, "haproxy.cfg", text))
	return admin
}

// A group whose backend HAProxy does not have is an error of its own, which stays. The groups after
// it go on.
func TestAWrongBackendStopsNoOtherGroup(t *testing.T) {
	admin := startHAProxy(t, "web", "a", "b")
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "", "b": ""})
	if err := s.Groups.Apply(map[string]group.Rule{"gone": {}, "web": {}}); err != nil {
		t.Fatal(err)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success})
	all := gateway.New(gateway.Config{Groups: s.Groups})
	if err := all.Apply(map[string]gateway.Spec{"edge": {Groups: []string{"gone", "web"}, New: func() gateway.Output { return New(Config{Socket: admin}) }}}); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, all)
	for _, o := range []probe.Outcome{probe.Failure, probe.Success, probe.Failure} {
		s.Say(map[string]probe.Outcome{"a": o})
		testsync.Until(t, fmt.Sprint("the state of a for ", o), func() bool { return states(t, admin, "web")["a"]&forcedMaint != 0 == (o == probe.Failure) })
		if st := all.Statuses()[0]; st.Error != "HAProxy, backend gone: HAProxy says: Can't find backend." || st.Failing != 1 {
			t.Errorf("the status is %+v", st)
		}
	}
}

// A server that no member names any more goes into maintenance, once. One that was never a
// member's stays as it is.
func TestTheServerOfAMemberThatLeavesGetsNoRequests(t *testing.T) {
	admin := startHAProxy(t, "web", "a", "b", "stranger")
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "", "b": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success})
	s.RunOutput(func() gateway.Output { return New(Config{Socket: admin}) })
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	testsync.Until(t, "the first change", func() bool { return states(t, admin, "web")["a"]&forcedMaint != 0 })

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
	members("a")
	testsync.Until(t, "maintenance of b", func() bool { return states(t, admin, "web")["b"]&forcedMaint != 0 })
	if err := socket(admin).run(t.Context(), []string{"set server web/b state ready"}); err != nil {
		t.Fatal(err)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	testsync.Until(t, "another change", func() bool { return states(t, admin, "web")["a"] == 0 })
	if is := states(t, admin, "web"); is["b"] != 0 || is["stranger"] != 0 {
		t.Errorf("the states are %v", is)
	}
	members("a", "b")
	s.Say(map[string]probe.Outcome{"b": probe.Failure})
	testsync.Until(t, "b as a member again", func() bool { return states(t, admin, "web")["b"]&forcedMaint != 0 })
}

func newPusher(c Config) *pusher { return New(c).(*pusher) }
