// Package browser tests the status page in Chromium, against the real server and engine. It is a
// separate module, since the driver of the browser is a large dependency.
//
//	SONDE_TIER=ci go test ./... -screenshots /tmp/shots    also take screenshots
//	SONDE_TIER=ci go test -run PicturesOfTheReadme . -images ../../docs/images    retake the pictures of README.md
//
// The tests run only in .ci/run, since they need Chromium; the test of a cluster also needs etcd.
package browser

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// limit is how long a test waits for the page, even on a busy machine.
const limit = 5 * time.Minute

// site is an engine with scripted targets, and the server of its page.
type site struct {
	t      *testing.T
	engine *engine.Engine
	groups *group.Groups
	url    string

	mu       sync.Mutex
	faults   map[string]probe.Result // results of targets that do not succeed
	gateways []group.GatewayStatus
	told     []api.Notifier
	set      probe.Set
}

// newSite serves the page of targets, each with a readiness probe.
func newSite(t *testing.T, token string, names ...string) *site {
	t.Helper()
	tier.Needs(t, "chromium")
	s := &site{t: t, engine: engine.New(engine.Config{}), faults: map[string]probe.Result{}, set: probe.Set{}}
	period := 100 * time.Millisecond
	if len(names) > 1000 {
		period = 20 * time.Second
	}
	for _, name := range names {
		s.add(probe.ID{Target: name, Kind: probe.Readiness}, period)
	}
	s.groups = group.New(group.Config{Engine: s.engine})
	gateways := func() []group.GatewayStatus {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.gateways
	}
	notifiers := func() []api.Notifier {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.told
	}
	server, err := api.New(api.Config{Engine: s.engine, Groups: s.groups, Gateways: gateways, Notifiers: notifiers, Listen: "127.0.0.1:0", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := server.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	var running sync.WaitGroup
	running.Go(func() { server.Serve(ctx, listener) })
	running.Go(func() { s.engine.Run(ctx) })
	running.Go(func() { s.groups.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// add adds a probe, whose attempts succeed unless fail was called.
func (s *site) add(id probe.ID, period time.Duration) {
	attempt := func(context.Context, probe.Target) probe.Result {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r, bad := s.faults[id.Target]; bad {
			return r
		}
		r := probe.Succeed("")
		r.HTTPStatus = 200
		r.SetFacts(probe.Facts{Protocol: "HTTP/2.0", TLS: tls.VersionTLS13, Redirects: 1})
		return r
	}
	s.set[id] = probe.Probe{
		Target: probe.Target{Address: "192.0.2.17"}, Handler: probe.HandlerFunc(attempt), HandlerName: "http",
		Settings: "path = \"/healthz\"\nheaders = { Authorization = (sensitive) }",
		Rule:     probe.Rule{Period: period, Timeout: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 1},
	}
}

// start applies the probes to the engine, and starts an instance of each target.
func (s *site) start() *site {
	s.t.Helper()
	if _, err := s.engine.Apply(s.set); err != nil {
		s.t.Fatal(err)
	}
	for id := range s.set {
		s.instance(id.Target, 0)
	}
	return s
}

func (s *site) instance(target string, restarts int32) {
	s.engine.Report(probe.Instance{
		Target: target, ID: fmt.Sprintf("%s-%d", target, restarts), Phase: probe.Running, Since: time.Now(), Restarts: restarts,
	})
}

// fail makes attempts at targets fail from now on.
func (s *site) fail(targets ...string) *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range targets {
		s.faults[name] = probe.Fail("http.status", "GET http://192.0.2.17:8080/healthz: status 503\nupstream connect error or disconnect/reset before headers")
	}
	return s
}

// setGateways sets the statuses of gateways.
func (s *site) setGateways(all ...group.GatewayStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gateways = all
}

// setNotifiers sets the statuses of notifiers.
func (s *site) setNotifiers(all ...api.Notifier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = all
}

// eject makes gateways observe failed requests to a target that is ready.
func (s *site) eject(target string) {
	s.t.Helper()
	refused := probe.Observation{Outcome: probe.Failure, Reason: probe.ReasonTCPRefused, Detail: "connection refused"}
	testsync.Until(s.t, "the ejection", func() bool {
		s.engine.Observe(probe.ID{Target: target, Kind: probe.Readiness}, refused)
		st, _ := s.engine.Target(target)
		return st.Ejection != nil
	})
}

// tab is a tab of the browser. Errors of the page's scripts, and requests blocked by its security policy, fail the test.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// open opens the page in a window with a width.
func (s *site) open(width int64) *tab {
	s.t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.WSURLReadTimeout(limit))
	ctx, cancel := chromedp.NewExecAllocator(s.t.Context(), options...)
	s.t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	s.t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, limit)
	s.t.Cleanup(cancel)
	tab := &tab{s.t, ctx}
	chromedp.ListenTarget(ctx, tab.check)
	tab.run(chromedp.EmulateViewport(width, 900), chromedp.Navigate(s.url+"/"))
	return tab
}

// answered matches the browser's messages about responses that the page expects: a token is missing, or a target does not exist.
var answered = regexp.MustCompile(`status of (401|404) `)

// check fails the test if an event is an error of the page.
func (b *tab) check(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.t.Errorf("the page: %v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError && !answered.MatchString(e.Entry.Text) {
			b.t.Errorf("the page: %s %s", e.Entry.Text, e.Entry.URL)
		}
	}
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		text := ""
		after, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
		defer cancel()
		chromedp.Run(after, chromedp.Evaluate("document.body.innerText", &text))
		b.t.Fatalf("%v; the page says:\n%.2000s", err, text)
	}
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	b.run(chromedp.Poll(expression, nil, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(limit)))
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) (v T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &v))
	return v
}

// tileSays returns an expression that is true if the tile with a title at the top of the page shows the number n.
func tileSays(title string, n string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".tile")].some((e) => e.innerText.replace(/\s+/g, " ") === "%s %s")`, n, title)
}

const rows = `[...document.querySelectorAll("#targets tr")]`

// row returns an expression for the row of a target.
func row(name string) string {
	return fmt.Sprintf(`%s.find((r) => r.querySelector("th a").textContent === %q)`, rows, name)
}

// names returns the names of n targets.
func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("shop/web-%05d", i))
	}
	return all
}

func TestTheNumbersAreThoseOfAllTargets(t *testing.T) {
	all := names(10_001)
	bad := all[9_000:9_041]
	b := newSite(t, "", all...).fail(bad...).start().open(1440)
	b.until(tileSays("in trouble", "41") + "&&" + tileSays("ready", "9,960") + "&&" + tileSays("targets", "10,001"))
	b.until(rows + `.length === 200 && ` + rows + `.slice(0, 41).every((r) => r.querySelector(".state").textContent === "not ready")`)

	b.run(chromedp.Click(`//button[contains(., "in trouble")]`, chromedp.BySearch))
	b.until(rows + `.length === 41`)
	if got := eval[string](b, rows+`[0].innerText`); !strings.Contains(got, "http.status") || !strings.Contains(got, bad[0]) {
		t.Errorf("the first row is %q", got)
	}
	if got := eval[string](b, `document.title`); got != "(41) Sonde" {
		t.Errorf("the title is %q", got)
	}
	b.run(chromedp.Click(`//button[contains(., "targets")]`, chromedp.BySearch))
	b.until(rows + `.length === 200`)
	b.run(chromedp.Click(`#more`, chromedp.ByQuery))
	b.until(rows + `.length === 400 && document.querySelector("#shown").textContent === "400 of 10,001 are shown."`)
}

// TestTheTilesAddUp counts targets in five states: each is in one tile.
func TestTheTilesAddUp(t *testing.T) {
	for _, n := range []int{8, 500, 10_001} {
		all := names(n)
		s := newSite(t, "", all...).fail(all[1]).start()
		s.faults[all[2]] = probe.Result{Outcome: probe.Unknown, Reason: "probe.no_file", Detail: "no such file"}
		s.faults[all[5]] = probe.Warn("test.slow", "took 2s")
		s.engine.Admin().Pause(all[3], engine.Pause{Reason: probe.ReasonPaused})
		s.engine.Report(probe.Instance{Target: all[4], Phase: probe.Waiting, Since: time.Now()})
		b := s.open(1440)
		b.until(tileSays("in trouble", "1") + "&&" + tileSays("paused", "1") + "&&" + tileSays("unreachable or blind", "1") + "&&" + tileSays("starting", "1") + "&&" + tileSays("degraded", "1"))
		sum := `[...document.querySelectorAll(".tile[data-part] strong")].reduce((sum, e) => sum + Number(e.innerText.replaceAll(",", "")), 0)`
		b.until(fmt.Sprintf(`%s === %d && document.querySelectorAll(".tile[data-part]").length === 6`, sum, n))
		b.run(chromedp.Click(`//button[contains(., "blind")]`, chromedp.BySearch))
		b.until(rows + `.length === 1 && ` + rows + `[0].querySelector(".sentence").innerText === "no such file"`)
		b.run(chromedp.Click(`//button[contains(., "degraded")]`, chromedp.BySearch))
		b.until(rows + `.length === 1 && ` + rows + `[0].querySelector(".sentence").innerText === "took 2s"`)
	}
}

// TestADenseViewShowsManyTargets counts the targets that fit completely in a window of 1440 by 900 pixels.
func TestADenseViewShowsManyTargets(t *testing.T) {
	s := newSite(t, "", names(500)...).fail("shop/web-00007").start()
	b := s.open(1440)
	b.until(tileSays("in trouble", "1"))
	b.run(chromedp.SetValue("#view", "dense", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector("#view").dispatchEvent(new Event("input", { bubbles: true }))`, nil))
	b.until(rows + `.filter((r) => { const box = r.querySelector("th a").getBoundingClientRect(); return box.width > 0 && box.top >= 0 && box.bottom <= 900; }).length >= 60`)
	b.until(rows + `[0].title === "not ready: GET http://192.0.2.17:8080/healthz: status 503\nupstream connect error or disconnect/reset before headers"`)
	b.run(chromedp.Reload())
	b.until(`document.querySelector("#list").dataset.view === "dense" && document.querySelector("#view").value === "dense"`)
}

func TestTargetsAreShownInSections(t *testing.T) {
	s := newSite(t, "", "shop/web", "shop/db", "blog/web", "mail")
	for id, p := range s.set {
		if id.Target != "mail" {
			p.Target.Labels = map[string]string{"team": strings.SplitN(id.Target, "/", 2)[0]}
			s.set[id] = p
		}
	}
	s.fail("blog/web").start()
	web, err := probe.NewSelector([]string{"*/web"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.groups.Apply(map[string]group.Rule{"web": {Members: web}}); err != nil {
		t.Fatal(err)
	}
	b := s.open(1440)
	for by, want := range map[string]string{
		"team":   "team=blog 1 shown, 1 in trouble;blog/web;without team 1 shown;mail;team=shop 2 shown;shop/db;shop/web",
		"prefix": "blog/ 1 shown, 1 in trouble;blog/web;no prefix 1 shown;mail;shop/ 2 shown;shop/db;shop/web",
		"group":  "web 2 shown, 1 in trouble;blog/web;shop/web;in no group 2 shown;mail;shop/db",
	} {
		b.run(chromedp.Evaluate(fmt.Sprintf(`location.hash = "#/?by=%s"`, by), nil))
		b.until(fmt.Sprintf(`%s.map((r) => (r.querySelector("th a") || r).innerText.trim()).join(";") === %q`, rows, want))
	}
}

func TestAChangeTouchesOnlyWhatHasChanged(t *testing.T) {
	s := newSite(t, "", names(50)...).start()
	b := s.open(1440)
	b.until(tileSays("ready", "50"))
	// A rebuilt list would lose both: the nodes, and the reader's selection.
	b.run(chromedp.Evaluate(rows+`.forEach((r) => { r.mark = true; })`, nil),
		chromedp.Evaluate(`getSelection().selectAllChildren(`+row("shop/web-00007")+`.querySelector("th a"))`, nil))
	s.fail("shop/web-00040")
	b.until(tileSays("in trouble", "1") + "&&" + rows + `[0] === ` + row("shop/web-00040"))
	if got := eval[int](b, rows+`.filter((r) => r.mark).length`); got != 50 {
		t.Errorf("%d of 50 rows were kept", got)
	}
	if got := eval[string](b, `String(getSelection())`); got != "shop/web-00007" {
		t.Errorf("%q is selected", got)
	}
}

func TestARestartIsShown(t *testing.T) {
	s := newSite(t, "", names(8)...).start()
	b := s.open(1440)
	b.until(tileSays("ready", "8"))
	s.instance("shop/web-00003", 4)
	b.until(row("shop/web-00003") + `.querySelector(".of-restarts").innerText === "4"`)
}

func TestTheListIsFiltered(t *testing.T) {
	s := newSite(t, "", "shop/web", "shop/db", "blog/web")
	s.add(probe.ID{Target: "shop/db", Kind: probe.Liveness}, 100*time.Millisecond)
	s.fail("blog/web").start()
	b := s.open(1440)
	shown := func(want ...string) {
		t.Helper()
		b.until(fmt.Sprintf(`%s.map((r) => r.querySelector("th a").textContent).join() === %q`, rows, strings.Join(want, ",")))
	}
	shown("blog/web", "shop/db", "shop/web")
	b.run(chromedp.WaitVisible("#search", chromedp.ByQuery))
	// The driver also types "/" as a letter, which a keyboard does not once the page has handled the key.
	b.run(chromedp.Evaluate(`document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }))`, nil), chromedp.KeyEvent("shop"))
	shown("shop/db", "shop/web")
	b.until(`document.querySelector("#matches").textContent === "2 of 3 targets"`)
	b.run(chromedp.SetValue("#search", "*/we", chromedp.ByQuery), chromedp.KeyEvent("b"))
	shown("blog/web", "shop/web")
	b.run(chromedp.Evaluate(`location.hash = "#/?kind=liveness"`, nil))
	shown("shop/db")
	b.run(chromedp.Evaluate(`location.hash = "#/?state=not_ready"`, nil))
	shown("blog/web")
	b.run(chromedp.Reload()) // the query is in the address
	shown("blog/web")
	b.run(chromedp.Evaluate(`location.hash = "#/?name=nothing"`, nil))
	b.until(`document.querySelector("#empty").innerText === "No target matches."`)
}

func TestGroupsAreShown(t *testing.T) {
	s := newSite(t, "", "web-1", "web-2", "web-3", "db").start()
	web, err := probe.NewSelector([]string{"web-*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.groups.Apply(map[string]group.Rule{"web": {Members: web, MinReady: probe.Minimum{Count: 3}}}); err != nil {
		t.Fatal(err)
	}
	b := s.open(1440)
	says := func(text string) string {
		return fmt.Sprintf(`document.querySelector("#groups").innerText.replace(/\s+/g, " ").includes(%q)`, text)
	}
	b.until(says("web 3 of 3 ready, 3 needed ✓ ready") + "||" + says("web 3 of 3 ready, 3 needed ready"))
	s.fail("web-2")
	b.until(says("2 of 3 ready, 3 needed") + "&&" + says("down"))
	b.run(chromedp.Click(".group", chromedp.ByQuery))
	b.until(rows + `.map((r) => r.querySelector("th a").textContent).join() === "web-2,web-1,web-3"`)
	b.run(chromedp.Click(".group", chromedp.ByQuery))
	b.until(rows + `.length === 4`)
}

func TestNotifiersAreShown(t *testing.T) {
	s := newSite(t, "", "web-1").start()
	first := api.Notifier{Name: "oncall", Output: "alertmanager", Receiver: "http://am-1:9093", Sent: 3, Last: time.Now()}
	second := api.Notifier{Name: "oncall", Output: "alertmanager", Receiver: "http://am-2:9093", Pending: 1700, Error: "connection refused", ErrorSince: time.Now()}
	s.setNotifiers(first, second)
	b := s.open(1440)
	b.until(`[...document.querySelectorAll("#notifiers li")].map((e) => e.querySelector(".state").innerText).join() === "failing,up to date"`)
	b.until(`["http://am-2:9093", "1,700 notices pending", "connection refused"].every((text) => document.querySelector("#notifiers li").innerText.includes(text))`)
	s.setNotifiers(first)
	b.until(`document.querySelectorAll("#notifiers li").length === 1`)
}

func TestGatewaysAreShown(t *testing.T) {
	s := newSite(t, "", "web-1").start()
	s.setGateways(group.GatewayStatus{Gateway: "edge", Output: "agent", Groups: []string{"web", "db"}}, group.GatewayStatus{Gateway: "lb", Output: "haproxy", Groups: []string{"web"}, Outputs: 3, Last: time.Now()})
	b := s.open(1440)
	is := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf(`[...document.querySelectorAll("#gateways li")].map((e) => e.querySelector("b").innerText + ": " + e.querySelector(".state").innerText).join() === %q`, want))
	}
	is("edge: waiting,lb: up to date")
	b.run(chromedp.Evaluate(`document.querySelectorAll("#gateways li").forEach((e) => { e.mark = true; })`, nil))
	s.setGateways(group.GatewayStatus{Gateway: "lb", Output: "haproxy", Groups: []string{"web"}, Outputs: 3, Last: time.Now(), Error: "dial unix /run/haproxy.sock: no such file", ErrorSince: time.Now()})
	is("lb: not up to date")
	b.until(`document.querySelector("#gateways li").mark && document.querySelector("#gateways").innerText.includes("no such file")`)
	s.setGateways()
	b.until(`document.querySelectorAll("#gateways li").length === 0`)
}

func TestAnEjectedTargetIsShown(t *testing.T) {
	s := newSite(t, "", "web-1")
	id := probe.ID{Target: "web-1", Kind: probe.Readiness}
	slow := s.set[id]
	slow.Rule.Period = time.Hour // no attempt ends the ejection
	s.set[id] = slow
	s.start()
	b := s.open(1440)
	b.until(tileSays("ready", "1"))
	s.eject("web-1")
	b.until(row("web-1") + `.querySelector(".of-why").innerText.replace(/\s+/g, " ") === "ejected by gateways: connection refused tcp.refused"`)
	b.run(chromedp.Evaluate(`location.hash = "#/target/web-1"`, nil))
	for _, want := range []string{"Gateways send it no requests", "ejected, down", "HTTP/2.0, status 200, TLS 1.3, 1 redirect", "ejected: requests of gateways have failed"} {
		b.until(fmt.Sprintf(`document.querySelector("#target").innerText.includes(%q)`, want))
	}
}

func TestATargetHasAPage(t *testing.T) {
	const token = "0123456789abcdef" // without a token, the page does not show how a probe is configured
	s := newSite(t, token, "shop/web", "shop/db").fail("shop/web")
	s.add(probe.ID{Target: "shop/web", Kind: probe.Liveness, Name: "port 80"}, 100*time.Millisecond)
	s.start()
	shop, err := probe.NewSelector([]string{"shop/*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.groups.Apply(map[string]group.Rule{"shop": {Members: shop}, "all": {}}); err != nil {
		t.Fatal(err)
	}
	b := s.open(1440)
	b.run(chromedp.WaitVisible("#login", chromedp.ByQuery), chromedp.SendKeys("#token", token+"\r", chromedp.ByQuery))
	b.until(tileSays("in trouble", "1"))
	b.run(chromedp.Click(`//a[text()="shop/web"]`, chromedp.BySearch))
	b.until(`!document.querySelector("#target").hidden && document.querySelector("#target-name").textContent === "shop/web"`)
	b.until(`document.querySelectorAll("#probes .card").length === 2 && document.querySelectorAll("#probes .run i.failure").length === 2`)
	for _, want := range []string{"192.0.2.17", "liveness port 80", "1/1 failure", "status 503", "could not be made"} {
		b.until(fmt.Sprintf(`document.querySelector("#target").innerText.includes(%q)`, want))
	}
	b.until(`document.querySelectorAll("#history li").length > 0`)
	b.until(`document.querySelector("#target-lead").textContent === "GET http://192.0.2.17:8080/healthz: status 503" && document.querySelector("#target-code").textContent === "liveness/port 80 · http.status"`)
	for _, not := range []string{"Live", "Restarts", "static"} {
		if eval[bool](b, fmt.Sprintf(`[...document.querySelectorAll("#facts > div")].some((e) => !e.hidden && e.innerText.includes(%q))`, not)) {
			t.Errorf("the facts say %q", not)
		}
	}
	b.run(chromedp.Click(`#probes .card:nth-child(2) summary`, chromedp.ByQuery))
	b.until(`document.querySelector("#probes .card:nth-child(2) details pre").innerText === 'http {\n  path = "/healthz"\n  headers = { Authorization = (sensitive) }\n}'`)
	b.until(`document.querySelector('#facts a[href="#/?group=shop"]').textContent === "shop" && document.querySelectorAll("#facts a").length === 2`)
	s.mu.Lock()
	s.faults = map[string]probe.Result{}
	s.mu.Unlock()
	b.until(`document.querySelector("#target-state").innerText === "ready"`)
	b.run(chromedp.KeyEvent("\u001b"))
	b.until(`!document.querySelector("#list").hidden && document.querySelector("#target").hidden`)
	b.run(chromedp.Evaluate(`location.hash = "#/target/no%2Fsuch"`, nil))
	b.until(`document.querySelector("#target-why").innerText.startsWith("There is no such target")`)
}

// uptime returns the saved uptime of a target that was ready for hours, failed for ten minutes three hours ago, and has been ready
// since.
func uptime(now time.Time) string {
	ago := func(d time.Duration) int64 { return now.Add(-d).Unix() }
	spans := binary.AppendUvarint(nil, uint64(2*time.Hour/time.Second)<<5|uint64(probe.StateReady))
	spans = binary.AppendUvarint(spans, uint64(10*time.Minute/time.Second)<<5|uint64(probe.StateNotReady))
	text, _ := json.Marshal(map[string]any{
		"began": ago(5 * time.Hour), "first": ago(5 * time.Hour), "since": ago(2*time.Hour + 50*time.Minute), "state": "ready", "states": spans,
		"hours": [][]int64{{ago(3*time.Hour) / 3600, 600, 0}},
	})
	return string(text)
}

// restoreUptime restores the uptime that another engine had saved when it stopped.
func restoreUptime(t *testing.T, e *engine.Engine, target, text string, stopped time.Time) {
	t.Helper()
	saved := map[string]func(any) error{target: func(into any) error { return json.Unmarshal([]byte(text), into) }}
	if err := e.Records().RestoreUptimes(saved, nil, stopped, 0); err != nil {
		t.Fatal(err)
	}
}

func TestTheBarShowsAFailureAtItsPlaceAfterARestartOfTheEngine(t *testing.T) {
	now := time.Now()
	before := engine.New(engine.Config{})
	restoreUptime(t, before, "shop/web", uptime(now), now)
	value, _ := before.Records().SavedUptime("shop/web")
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, "", "shop/web", "shop/db")
	restoreUptime(t, s.engine, "shop/web", string(text), now.Add(-30*time.Minute)) // it was down for half an hour
	s.start()
	b := s.open(1440)
	bar := row("shop/web") + `.querySelector(".uptime")`
	drawn := func() {
		t.Helper()
		b.until(tileSays("ready", "2") + "&&" + rows + `.length === 2`)
		b.until(bar + `.querySelectorAll(".is-trouble").length === 1`)
		failure := eval[map[string]any](b, `((e) => ({ x: Number(e.getAttribute("x")), text: e.textContent.split(",")[0] }))(`+bar+`.querySelector(".is-trouble"))`)
		if x := failure["x"].(float64); x < 24*60-3*60-3 || x > 24*60-3*60+1 || failure["text"] != "not ready for 10 min" {
			t.Errorf("the failure is %v", failure)
		}
		if got := eval[string](b, bar+`.querySelector("svg").getAttribute("aria-label")`); !strings.HasPrefix(got, "last 24 hours: unknown for 19 h, ready for 4 h, not ready for 10 min") {
			t.Errorf("the bar says %q", got)
		}
		if got := eval[string](b, bar+`.querySelector(".day").textContent`); got != "96.30 %" {
			t.Errorf("it was available for %q", got)
		}
	}
	drawn()
	b.run(chromedp.Reload())
	drawn()
	b.run(chromedp.Evaluate(`location.hash = "#/target/shop%2Fweb"`, nil))
	b.until(`document.querySelectorAll("#target-uptime .is-trouble").length === 1 && document.querySelector("#target-uptime .day").textContent === "96.30 %"`)
}

// Only the states of visible targets are read, however many rows the list has.
func TestLatenciesOutliveThePage(t *testing.T) {
	s := newSite(t, "", "shop/web").start()
	b := s.open(1440)
	points := row("shop/web") + `?.querySelector(".spark polyline").getAttribute("points").split(" ").length`
	b.until(points + " >= 20")
	b.run(chromedp.Reload())
	b.until(points + " >= 20")
	if shown := eval[float64](b, `performance.now()`); shown > 100_000 { // the page itself notices an attempt every ten seconds
		t.Errorf("20 latencies are shown after %.0f ms", shown)
	}
}

func TestOnlyVisibleBarsAreRead(t *testing.T) {
	b := newSite(t, "", names(500)...).start().open(1440)
	b.until(tileSays("ready", "500") + "&&" + rows + `.length === 200`)
	b.until(rows + `.filter((r) => r.querySelector(".is-ready")).length > 5`)
	if got := eval[int](b, rows+`.filter((r) => r.querySelector(".is-ready")).length`); got > 64 {
		t.Errorf("%d bars were read", got)
	}
	b.run(chromedp.Evaluate(rows+`[150].scrollIntoView()`, nil))
	b.until(`Boolean(` + rows + `[150].querySelector(".is-ready"))`)
}

func TestATokenIsAskedFor(t *testing.T) {
	const token = "0123456789abcdef"
	s := newSite(t, token, names(3)...).start()
	b := s.open(1440)
	login := func(typed string) {
		b.run(chromedp.WaitVisible("#login", chromedp.ByQuery), chromedp.SendKeys("#token", typed+"\r", chromedp.ByQuery))
	}
	login("wrong-wrong-wrong")
	b.until(`document.querySelector("#login-error").textContent === "Wrong token."`)
	login(token)
	b.until(tileSays("ready", "3") + ` && document.querySelector("#login").hidden && document.querySelector("#connection").textContent === "live"`)
}

func TestAPhoneHasNoSidewaysScroll(t *testing.T) {
	long := "a-team-with-a-long-name/" + strings.Repeat("very-long-", 8) + "service"
	s := newSite(t, "", append(names(8), long)...).fail(long, "shop/web-00002").start()
	b := s.open(390)
	fits := func() {
		t.Helper()
		if got := eval[int](b, `document.documentElement.scrollWidth`); got > 390 {
			t.Errorf("the page is %d pixels wide", got)
		}
	}
	b.until(tileSays("in trouble", "2"))
	fits()
	b.until(rows + `[0].getBoundingClientRect().top > 0`)
	if got := eval[float64](b, rows+`[0].getBoundingClientRect().bottom`); got > 700 {
		t.Errorf("the first target ends %v pixels below the top", got)
	}
	b.run(chromedp.Evaluate(`location.hash = "#/target/`+strings.ReplaceAll(long, "/", "%2F")+`"`, nil))
	b.until(`document.querySelectorAll("#probes .card").length === 1 && document.querySelector("#target").innerText.includes("503")`)
	fits()
}

// shown is a script that records when the first rows were painted.
const shown = `new MutationObserver(() => {
	if (!window.shownAt && document.querySelector("#targets tr")) {
		window.shownAt = -1;
		requestAnimationFrame(() => setTimeout(() => { window.shownAt = performance.now(); }));
	}
}).observe(document, { childList: true, subtree: true });`

// TestTenThousandTargetsAreFast measures the page with 10,001 targets, and logs the figures, which -v shows. It asserts that the
// page does not grow with the changes that it shows.
func TestTenThousandTargetsAreFast(t *testing.T) {
	all := names(10_001)
	s := newSite(t, "", all...).start()
	b := s.open(1440)
	b.until(tileSays("ready", "10,001"))
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(shown).Do(ctx)
		return err
	}), chromedp.Reload())
	b.until(`window.shownAt > 0`)
	t.Logf("first paint with the list: %.0f ms after the navigation", eval[float64](b, `window.shownAt`))

	slowest := time.Duration(0)
	change := func(restarts int32) {
		t.Helper()
		changed := time.Now()
		s.instance(all[150], restarts)
		b.until(fmt.Sprintf(`%s.querySelector(".of-restarts").innerText === "%d"`, row(all[150]), restarts))
		slowest = max(slowest, time.Since(changed))
	}
	for i := range int32(20) {
		change(i + 1)
	}
	t.Logf("a change of a row: shown after %v at most, of 20", slowest.Round(time.Millisecond))
	changed := time.Now()
	s.engine.Report(probe.Instance{Target: all[9000], ID: "none", Phase: probe.Waiting, Since: changed, Reason: probe.ReasonNoStart, Detail: "no such file"})
	b.until(tileSays("in trouble", "1") + "&&" + rows + `[0].innerText.includes("cannot start")`)
	t.Logf("a target in trouble that was not in the list: shown first after %v", time.Since(changed).Round(time.Millisecond))

	heap := func() float64 {
		t.Helper()
		var used float64
		b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
			if err = heapprofiler.CollectGarbage().Do(ctx); err == nil {
				used, _, _, _, err = runtime.GetHeapUsage().Do(ctx)
			}
			return err
		}))
		return used / (1 << 20)
	}
	before := heap()
	for i := range 3 * len(all) {
		s.instance(all[i%len(all)], int32(100+i/len(all)))
	}
	change(999)
	after := heap()
	t.Logf("memory of the page: %.1f MiB, and %.1f MiB after %d changes", before, after, 3*len(all))
	if after > 2*before+16 {
		t.Errorf("the page has grown from %.1f to %.1f MiB", before, after)
	}
}

// TestScreenshots takes screenshots for people, if the flag is set.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots")
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	for n, bad := range map[int]int{8: 2, 500: 17, 10_001: 41} {
		all := names(n)
		s := newSite(t, "", all...).fail(all[n/2 : n/2+bad]...)
		s.add(probe.ID{Target: all[n/2], Kind: probe.Liveness}, 100*time.Millisecond)
		s.start()
		s.instance(all[1], 3)
		if err := s.groups.Apply(map[string]group.Rule{"all": {MinReady: probe.Minimum{Share: 1}}, "some": {}}); err != nil {
			t.Fatal(err)
		}
		s.setGateways(
			group.GatewayStatus{Gateway: "edge", Output: "agent", Groups: []string{"all"}, Outputs: 3, Last: time.Now()},
			group.GatewayStatus{Gateway: "lb", Output: "haproxy", Groups: []string{"all", "some"}, Error: "dial unix /run/haproxy/admin.sock: connect: no such file or directory", ErrorSince: time.Now()},
		)
		for width, shape := range map[int64]string{1440: "wide", 390: "phone"} {
			b := s.open(width)
			b.until(tileSays("in trouble", fmt.Sprint(bad)))
			for _, scheme := range []string{"light", "dark"} {
				media := emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}})
				b.run(chromedp.Evaluate(`location.hash = "#/"`, nil), media)
				b.until(`!document.querySelector("#list").hidden`)
				b.shoot(fmt.Sprintf("%s/list-%d-%s-%s.png", *screenshots, n, shape, scheme))
				b.run(chromedp.Evaluate(`location.hash = "#/?view=dense&by=prefix"`, nil))
				b.until(`Boolean(document.querySelector("#targets .section"))`)
				b.shoot(fmt.Sprintf("%s/dense-%d-%s-%s.png", *screenshots, n, shape, scheme))
				b.run(chromedp.Evaluate(`location.hash = "#/target/`+strings.ReplaceAll(all[n/2], "/", "%2F")+`"`, nil))
				b.until(`!document.querySelector("#target").hidden && document.querySelectorAll("#probes .card").length === 2 && document.querySelectorAll("#history li").length > 1`)
				b.run(chromedp.Evaluate(`document.querySelector("#probes details").open = true`, nil))
				b.shoot(fmt.Sprintf("%s/target-%d-%s-%s.png", *screenshots, n, shape, scheme))
			}
		}
	}
}

// TestThePicturesOfTheReadme takes the pictures of README.md, if the flag is set: a shop of ten targets, two of them in trouble.
func TestThePicturesOfTheReadme(t *testing.T) {
	if *images == "" {
		t.Skip("no -images")
	}
	addresses := map[string]string{
		"shop/web-1": "10.0.0.11", "shop/web-2": "10.0.0.12", "shop/web-3": "10.0.0.13", "shop/db": "10.0.0.20", "shop/queue": "10.0.0.21",
		"shop/worker": "10.0.0.22", "blog/web": "10.0.1.11", "blog/db": "10.0.1.20", "mail": "10.0.2.5", "search": "10.0.2.6",
	}
	s := newSite(t, "", slices.Sorted(maps.Keys(addresses))...)
	now := time.Now()
	for id, p := range s.set {
		attempt := p.Handler
		p.Target.Address, p.Rule.Period = addresses[id.Target], time.Second
		p.Handler = probe.HandlerFunc(func(ctx context.Context, target probe.Target) probe.Result {
			if response, err := http.Get(s.url + "/healthz"); err == nil { // takes some time
				response.Body.Close()
			}
			return attempt.Probe(ctx, target)
		})
		s.set[id] = p
		restoreUptime(t, s.engine, id.Target, pastOf(id.Target, now), now)
	}
	change := engine.Change{Set: s.set, Memories: map[probe.ID]engine.Memory{}}
	for id := range s.set {
		m := engine.Memory{State: verdict.State{Instance: id.Target + "-0", Verdict: probe.Passing, Last: probe.Success, Run: 1}, Started: true, InstanceSince: now.Add(-30 * time.Hour)}
		if m.Since = m.InstanceSince; id.Target == "shop/queue" {
			m.State.Verdict, m.State.Last, m.Since = probe.Failing, probe.Failure, now.Add(-25*time.Minute)
		}
		change.Memories[id] = m
	}
	s.faults["shop/queue"] = probe.Fail(probe.ReasonTCPRefused, "dial tcp 10.0.0.21:5672: connect: connection refused")
	if _, err := s.engine.Change(change); err != nil {
		t.Fatal(err)
	}
	for id, m := range change.Memories {
		s.engine.Report(probe.Instance{Target: id.Target, ID: m.State.Instance, Phase: probe.Running, Since: m.InstanceSince})
	}
	s.engine.Report(probe.Instance{
		Target: "shop/worker", ID: "shop/worker-7", Phase: probe.Ended, Since: now.Add(-20 * time.Minute), Restarts: 7, Managed: true,
		Reason: probe.ReasonBackOff, Detail: "exit status 1: cannot reach queue 10.0.0.21:5672; next start in 40s (back-off)",
	})
	web, err := probe.NewSelector([]string{"shop/web-*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.groups.Apply(map[string]group.Rule{"web": {Members: web, MinReady: probe.Minimum{Count: 2}}}); err != nil {
		t.Fatal(err)
	}
	b := s.open(1280)
	b.until(tileSays("in trouble", "2") + "&&" + tileSays("ready", "8") + `&& document.querySelector("#engine").textContent === "engine healthy"`)
	b.until(rows + `.filter((r) => r.querySelector(".is-ready") && r.querySelector(".spark.drawn")).length >= 8`)
	for _, scheme := range []string{"light", "dark"} {
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}))
		b.shoot(filepath.Join(*images, "status-"+scheme+".png"))
	}
}

// pastOf returns the saved uptime of a target in the pictures.
func pastOf(target string, now time.Time) string {
	began := now.Add(-30 * time.Hour)
	at, spans, state := began, []byte(nil), probe.StateReady
	until := func(ago time.Duration, next probe.TargetState) {
		spans = binary.AppendUvarint(spans, uint64(now.Add(-ago).Unix()-at.Unix())<<4|uint64(state))
		at, state = now.Add(-ago), next
	}
	switch target {
	case "shop/queue":
		until(11*time.Hour, probe.StateNotReady)
		until(10*time.Hour, probe.StateReady)
		until(25*time.Minute, probe.StateNotReady)
	case "shop/worker":
		until(11*time.Hour, probe.StateUnreachable)
		until(10*time.Hour, probe.StateReady)
		until(20*time.Minute, probe.StateCrashLooping)
	case "shop/web-2":
		until(17*time.Hour, probe.StatePaused)
		until(15*time.Hour, probe.StateReady)
	case "blog/web":
		until(6*time.Hour, probe.StateFailing)
		until(5*time.Hour+50*time.Minute, probe.StateRestarting)
		until(5*time.Hour+48*time.Minute, probe.StateReady)
	}
	text, _ := json.Marshal(map[string]any{"began": began.Unix(), "first": began.Unix(), "since": at.Unix(), "state": state, "spans": spans})
	return string(text)
}

// maxShot is the maximum height of a picture: more of a long list would show nothing new.
const maxShot = 2400

// shoot takes a screenshot after the page was painted.
func (b *tab) shoot(file string) {
	var png []byte
	b.run(chromedp.Evaluate(`new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)))`, nil,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	clip := &page.Viewport{Width: eval[float64](b, `innerWidth`), Height: min(maxShot, eval[float64](b, `document.querySelector("footer").getBoundingClientRect().bottom + scrollY`)), Scale: 1}
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().WithClip(clip).WithCaptureBeyondViewport(true).Do(ctx)
		return err
	}))
	if err := os.WriteFile(file, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
