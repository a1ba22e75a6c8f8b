package render

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

const page = "../../docs/gateways/nginx.md"

// templateOf returns the template of a configuration on a page.
func templateOf(t *testing.T, page, gateway string) string {
	t.Helper()
	_, text, ok := strings.Cut(gatewaytest.CodeBlock(t, page, "hcl", `gateway "`+gateway+`"`), "<<-EOT\n")
	text, _, ended := strings.Cut(text, "    EOT\n")
	if !ok || !ended {
		t.Fatalf("%s has no template in gateway %q", page, gateway)
	}
	return regexp.MustCompile(`(?m)^ {6}`).ReplaceAllString(text, "") // as HCL does
}

// lab is nginx with the configuration of docs/gateways in front of three servers.
type lab struct {
	t        *testing.T
	rule     group.Rule
	config   Config
	backends []*gatewaytest.Backend
	scene    *gatewaytest.Scene
	status   func() group.GatewayStatus
	stop     func()
	load     *gatewaytest.Load
}

func nginx(t *testing.T, rule group.Rule) *lab {
	tier.Needs(t, "nginx")
	rule.Port = "http"
	dir := testsync.SocketDir(t)
	l := &lab{t: t, rule: rule, backends: gatewaytest.Backends(t, "web-1", "web-2", "web-3")}
	front, pid, upstream := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "pid"), filepath.Join(dir, "upstream.conf")
	text := strings.NewReplacer("listen 8080", "listen unix:"+front, "/etc/nginx/upstream.conf", upstream, "proxy_read_timeout 5s", "proxy_read_timeout 2m").Replace(gatewaytest.CodeBlock(t, page, "nginx", "proxy_next_upstream"))
	temporary := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf(" %s_temp_path %s;", kind, filepath.Join(dir, kind))
	}
	text = strings.Replace(text, "http {", "http { access_log off;"+temporary, 1)
	words := []string{"nginx", "-c", gatewaytest.WriteFile(t, dir, "nginx.conf", text), "-e", "stderr", "-g", "pid " + pid + ";"}
	l.config = Config{Template: templateOf(t, page, "edge"), Path: upstream, Command: append(words, "-s", "reload"), Interval: 100 * time.Millisecond}
	l.start()
	l.say(probe.Success, probe.Success, probe.Success)
	testsync.Until(t, "the file", func() bool { _, err := os.Stat(upstream); return err == nil })
	foreground := append([]string{}, words...)
	foreground[len(foreground)-1] += " daemon off;"
	process := gatewaytest.Start(t, gatewaytest.Accepts(front), foreground...)
	t.Cleanup(process.Stop)
	testsync.Until(t, "a reload", func() bool { return l.status().Outputs > 0 })
	l.load = gatewaytest.NewLoad(front)
	t.Cleanup(l.load.Stop)
	return l
}

func (l *lab) start() {
	addresses := map[string]string{}
	for _, b := range l.backends {
		addresses[b.Name] = b.Address
	}
	l.scene = gatewaytest.New(l.t, l.rule, addresses)
	all := gateway.New(gateway.Config{Groups: l.scene.Groups})
	if err := all.Apply(map[string]gateway.Spec{"edge": {Groups: []string{"web"}, New: func() gateway.Output { return New(l.config) }}}); err != nil {
		l.t.Fatal(err)
	}
	stop := gatewaytest.Run(l.t, all)
	l.status = func() group.GatewayStatus { return all.Statuses()[0] }
	l.stop = func() { stop(); l.scene.Stop() }
}

func (l *lab) say(outcomes ...probe.Outcome) {
	l.t.Helper()
	say := map[string]probe.Outcome{}
	for i, o := range outcomes {
		say[l.backends[i].Name] = o
	}
	l.scene.Say(say)
}

// serve waits until only some servers get requests.
func (l *lab) serve(want ...string) {
	l.t.Helper()
	testsync.Until(l.t, "requests to "+strings.Join(want, ", "), func() bool {
		l.load.Pass(l.t, 20) // those under way
		before := [3]int64{}
		for i, b := range l.backends {
			before[i] = b.Hits.Load()
		}
		l.load.Pass(l.t, 60)
		var got []string
		for i, b := range l.backends {
			if b.Hits.Load() > before[i] {
				got = append(got, b.Name)
			}
		}
		return strings.Join(got, " ") == strings.Join(want, " ")
	})
}

func (l *lab) whole(during string) {
	l.t.Helper()
	if _, failed, how := l.load.Take(); failed > 0 {
		l.t.Errorf("%s: %d requests failed: %s", during, failed, how)
	}
}

// No client notices that a server is killed or drains, or that Sonde is away or knows nothing
// yet; with panic none notices either that no server is ready.
func TestNoRequestThroughNginxFails(t *testing.T) {
	l := nginx(t, group.Rule{Panic: 0.01})
	l.serve("web-1", "web-2", "web-3")
	l.backends[0].Kill()
	l.load.Pass(t, 100)
	l.say(probe.Failure, probe.Success, probe.Success)
	l.serve("web-2", "web-3")
	l.whole("kill")
	l.backends[0].Start(t)
	l.serve("web-2", "web-3") // it was killed before nginx was told
	out := l.backends[0].Hits.Load()
	l.stop()
	l.load.Pass(t, 300)
	l.start()
	l.load.Pass(t, 300)
	l.say(probe.Failure, probe.Success, probe.Unknown)
	l.load.Pass(t, 300)
	l.say(probe.Failure, probe.Success, probe.Success)
	testsync.Until(t, "a reload", func() bool { return l.status().Outputs > 0 })
	l.serve("web-2", "web-3")
	l.whole("restart of Sonde")
	if n := l.backends[0].Hits.Load() - out; n > 0 {
		t.Errorf("the server that is down got %d requests", n)
	}
	l.say(probe.Failure, probe.Failure, probe.Failure)
	l.serve("web-1", "web-2", "web-3")
	l.say(probe.Success, probe.Success, probe.Success)
	l.scene.Leave("web-3")
	l.serve("web-1", "web-2")
	l.backends[2].Kill()
	l.load.Pass(t, 300)
	l.whole("panic and drain")
}

func TestWithoutPanicRequestsFailWhenNoServerIsReady(t *testing.T) {
	l := nginx(t, group.Rule{})
	l.say(probe.Failure, probe.Failure, probe.Failure)
	testsync.Until(t, "failures", func() bool { _, failed, _ := l.load.Take(); return failed > 0 })
	l.say(probe.Failure, probe.Success, probe.Failure)
	l.serve("web-2")
}

// The templates of docs/gateways make what they should.
func TestExamplesOfFiles(t *testing.T) {
	d := templateData{Groups: []templateGroup{{Name: "web", State: "ready", Members: []templateMember{
		{Target: "web-1", Name: "web_1", Address: "10.0.0.7", Port: 80, InRotation: true, Weight: 100},
		{Target: "web-2", Name: "web_2", Address: "10.0.0.8", Port: 80, Reason: "tcp.refused"},
		{Target: "web-3", Name: "web_3", Address: "10.0.0.9", Port: 80, InRotation: true, Weight: 25},
	}}}}
	for name, c := range map[string]struct{ page, want string }{
		"edge":       {"varnish.md", "failed=0\nvarnishadm backend.set_health web_1 healthy || failed=1\nvarnishadm backend.set_health web_2 sick || failed=1\nvarnishadm backend.set_health web_3 healthy || failed=1\nexit $failed\n"},
		"nftables":   {"files.md", "        ip daddr 10.9.9.9 tcp dport 80 dnat to numgen inc mod 2 map { 0 : 10.0.0.7 . 80, 1 : 10.0.0.9 . 80 }\n"},
		"keepalived": {"files.md", "ready\n"},
		"hosts":      {"files.md", "10.0.0.7 web.internal web-1.internal\n10.0.0.9 web.internal web-3.internal\n"},
	} {
		parsed, err := parseTemplate(templateOf(t, "../../docs/gateways/"+c.page, name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := execute(parsed, d)
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, text, c.want)
		}
	}
}
