package follow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/gateway/follow"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const token = "0123456789abcdef"

// serve serves the API of a scene at an address until stop is called, or the test ends.
func serve(t *testing.T, s *gatewaytest.Scene, address string) (base string, stop func()) {
	t.Helper()
	server, err := api.New(api.Config{Engine: s.Engine, Groups: s.Groups, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	testsync.Until(t, "the port", func() bool { l, err = net.Listen("tcp", address); return err == nil })
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx, l) })
	stop = func() { cancel(); serving.Wait() }
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
}

// follower is a Follower with its log.
type follower struct {
	*follow.Follower
	log testsync.Buffer
}

// start starts a Follower of the group "web", which ends with the test.
func start(t *testing.T, c follow.Config) *follower {
	t.Helper()
	if c.Groups == nil {
		c.Groups = []string{"web"}
	}
	f := new(follower)
	c.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	var err error
	if f.Follower, err = follow.New(c); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, f)
	return f
}

// describe describes a view: "frozen", or its members.
func describe(v *group.View) string {
	if v.Frozen {
		return "frozen"
	}
	var all []string
	for m := range v.Members() {
		all = append(all, fmt.Sprintf("%s %s:%d %v %d", m.Target, m.Address, m.Port, m.State, m.Weight))
	}
	return strings.Join(all, ", ")
}

func await(t *testing.T, f *follower, want string) *group.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testsync.Timeout)
	defer cancel()
	g := f.Get("web")
	for v := g.View(); ; {
		if describe(v) == want {
			return v
		}
		next, err := g.Next(ctx, v.Version)
		if err != nil {
			t.Fatalf("the group is %s, want %s:\n%s", describe(v), want, f.log.String())
		}
		v = next
	}
}

// awaitLog waits until the log has a text.
func awaitLog(t *testing.T, f *follower, containing string) {
	t.Helper()
	testsync.Until(t, "the log to have "+containing, func() bool {
		return strings.Contains(strings.ReplaceAll(f.log.String(), `\"`, `"`), containing)
	})
}

var addresses = map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "fd00::3"}

func TestAFollowerShowsTheGroup(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80", DegradedWeight: 0.25, Panic: 0.5, MinReady: probe.Minimum{Count: 2}}, addresses)
	base, _ := serve(t, s, "127.0.0.1:0")
	f := start(t, follow.Config{Client: &api.Client{Base: base, Token: token}})
	if g := f.Get("other"); g != nil {
		t.Error("a group that is not followed is there")
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success, "c": probe.Warning})
	v := await(t, f, "a 10.0.0.1:80 ready 100, b 10.0.0.2:80 ready 100, c fd00::3:80 degraded 25")
	if v.State != probe.GatewayReady || v.Last != probe.GatewayReady || v.Need != 2 || v.Rule.MinReady.Count != 2 || v.Since.IsZero() || v.InRotation != 3 || v.Counts[probe.GatewayDegraded] != 1 {
		t.Errorf("the view is %+v", v)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	v = await(t, f, "a 10.0.0.1:80 down 0, b 10.0.0.2:80 ready 100, c fd00::3:80 degraded 25")
	if m := v.Member("a"); m.Reason != probe.ReasonExecExit || m.Since.IsZero() {
		t.Errorf("the member that is down is %+v", m)
	}
	s.Say(map[string]probe.Outcome{"b": probe.Failure})
	v = await(t, f, "a 10.0.0.1:80 down 100, b 10.0.0.2:80 down 100, c fd00::3:80 degraded 100")
	if !v.Panicking || v.State != probe.GatewayDown {
		t.Errorf("the view is %+v", v)
	}
	if text := f.log.String(); text != "" {
		t.Errorf("the log has\n%s", text)
	}
}

// What a gateway has is kept while the engine is away, and until the next one knows the group.
func TestViewsAreKeptOverARestart(t *testing.T) {
	first := gatewaytest.New(t, group.Rule{Port: "80"}, addresses)
	base, stop := serve(t, first, "127.0.0.1:0")
	f := start(t, follow.Config{Client: &api.Client{Base: base, Token: token}, MaxRetry: 10 * time.Millisecond})
	await(t, f, "frozen")
	first.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure, "c": probe.Success})
	kept := await(t, f, "a 10.0.0.1:80 ready 100, b 10.0.0.2:80 down 0, c fd00::3:80 ready 100")
	stop()
	first.Stop()
	awaitLog(t, f, `level=WARN msg="cannot follow group, keeping its current state" group=web`)
	second := gatewaytest.New(t, group.Rule{Port: "80"}, addresses)
	serve(t, second, strings.TrimPrefix(base, "http://"))
	awaitLog(t, f, `level=INFO msg="group is followed again" group=web`) // and nothing is known
	if v := f.Get("web").View(); v != kept {
		t.Errorf("the view was %s and is %s", describe(kept), describe(v))
	}
	second.Say(map[string]probe.Outcome{"a": probe.Failure, "b": probe.Success, "c": probe.Success})
	await(t, f, "a 10.0.0.1:80 down 0, b 10.0.0.2:80 ready 100, c fd00::3:80 ready 100")
	if err := second.Groups.Apply(nil); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, f, "there is no group")
	if v := f.Get("web").View(); v.InRotation != 2 {
		t.Errorf("after the group was removed the view is %s", describe(v))
	}
}

func TestTheTokenIsNeeded(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, addresses)
	base, _ := serve(t, s, "127.0.0.1:0")
	f := start(t, follow.Config{Client: &api.Client{Base: base, Token: "wrong"}})
	awaitLog(t, f, "token")
	if v := f.Get("web").View(); !v.Frozen || v.Counts.Total() != 0 {
		t.Errorf("the view is %s", describe(v))
	}
}

func TestGroupsHaveSeveralPages(t *testing.T) {
	pages := map[string]string{
		"":   `{"name":"web","state":"ready","last":"ready","version":6,"minReady":"1","members":[` + member("t1") + `,` + member("t2") + `],"next":"t2"}`,
		"t2": `{"name":"web","state":"ready","last":"ready","version":6,"minReady":"1","members":[` + member("t3") + `],"next":"t3"}`,
		"t3": `{"name":"web","state":"ready","last":"ready","version":6,"minReady":"1","members":[` + member("t4") + `]}`,
	}
	f := start(t, follow.Config{Client: fake(func(r *http.Request) string {
		if r.URL.Query().Get("version") == "6" { // nothing has changed
			<-r.Context().Done()
		}
		return pages[r.URL.Query().Get("after")]
	})})
	await(t, f, "t1 10.0.0.1:80 ready 100, t2 10.0.0.1:80 ready 100, t3 10.0.0.1:80 ready 100, t4 10.0.0.1:80 ready 100")
}

// A group that changes between two of its pages is read again: a View has the members of one
// version. The third reading counts also if the group has changed during it.
func TestAGroupThatChangesBetweenPagesIsReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		changes int64 // of the group, between the pages
		reads   int64
		want    string
	}{
		"never":  {0, 1, "t1 10.0.0.1:80 ready 100, t2 10.0.0.1:80 down 0"},
		"once":   {1, 2, "t1 10.0.0.1:80 down 0, t2 10.0.0.1:80 ready 100"},
		"always": {100, 3, "t1 10.0.0.1:80 ready 100, t2 10.0.0.1:80 ready 100"},
	} {
		t.Run(name, func(t *testing.T) {
			var version, reads atomic.Int64
			version.Store(5)
			down := strings.NewReplacer(`"ready"`, `"down"`, "true", "false", "100", "0")
			f := start(t, follow.Config{Client: fake(func(r *http.Request) string {
				first := r.URL.Query().Get("after") == ""
				if v := r.URL.Query().Get("version"); v != "" && v != "0" {
					<-r.Context().Done() // the first View stays
				}
				one, two := member("t1"), down.Replace(member("t2"))
				if version.Load()%2 == 0 { // they have swapped
					one, two = down.Replace(one), member("t2")
				}
				page := fmt.Sprintf(`{"name":"web","state":"ready","last":"ready","version":%d,"minReady":"1","members":[`, version.Load())
				if !first {
					return page + two + `]}`
				}
				if reads.Add(1) <= c.changes {
					version.Add(1)
				}
				return page + one + `],"next":"t1"}`
			})})
			await(t, f, c.want)
			if got := reads.Load(); got != c.reads {
				t.Errorf("the group was read %d times, want %d", got, c.reads)
			}
		})
	}
}

func member(name string) string {
	return `{"target":"` + name + `","address":"10.0.0.1","port":80,"state":"ready","inRotation":true,"weight":100}`
}

// roundTrip is a transport without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// fake returns a client of an API that gives answers.
func fake(answer func(*http.Request) string) *api.Client {
	return &api.Client{HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.Header().Set(api.HeaderEngine, "sonde")
		_, _ = io.WriteString(w, answer(r))
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return w.Result(), nil
	})}}
}

// An answer that no engine gives changes nothing.
func TestWrongAnswersAreRejected(t *testing.T) {
	page := func(members, rest string) string {
		return `{"name":"web","state":"ready","last":"ready","version":5,"minReady":"1","members":[` + members + `]` + rest + `}`
	}
	long := strings.Repeat("x", probe.MaxTargetName+1)
	for name, c := range map[string]struct{ answer, want string }{
		"no JSON":            {"<html>", "invalid character"},
		"no version":         {strings.Replace(page(member("a"), ""), `"version":5`, `"version":0`, 1), "no version"},
		"another group":      {strings.Replace(page(member("a"), ""), `"web"`, `"api"`, 1), `another group: "api"`},
		"an unknown state":   {strings.Replace(page(member("a"), ""), `"ready"`, `"well"`, 1), "well"},
		"a member's state":   {page(strings.Replace(member("a"), `"ready"`, `"well"`, 1), ""), `member "a"`},
		"no MinReady":        {strings.Replace(page(member("a"), ""), `"1"`, `"-1"`, 1), "whole number"},
		"the order":          {page(member("b")+","+member("a"), ""), `not sorted by name at "a"`},
		"one name twice":     {page(member("a")+","+member("a"), ""), `not sorted by name at "a"`},
		"a long name":        {page(member(long), ""), "513 bytes"},
		"a negative port":    {page(strings.Replace(member("a"), "80", "-1", 1), ""), "port is -1"},
		"a large port":       {page(strings.Replace(member("a"), "80", "65536", 1), ""), "port is 65536"},
		"a large weight":     {page(strings.Replace(member("a"), "100", "257", 1), ""), "weight is 257"},
		"no weight":          {page(strings.Replace(member("a"), "100", "0", 1), ""), "weight is 0, and inRotation is true"},
		"a weight, and none": {page(strings.Replace(member("a"), `"weight"`, `"zeroWeight":true,"weight"`, 1), ""), "zeroWeight and inRotation"},
		"a line in address":  {page(strings.Replace(member("a"), "10.0.0.1", `10.0.0.1\n`, 1), ""), "control characters"},
		"the same page":      {page(member("a"), `,"next":"a"`), `not sorted by name at "a"`},
		"another next page":  {page(member("a"), `,"next":"b"`), "does not begin"},
		"an empty next page": {page("", `,"next":"b"`), "does not begin"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, follow.Config{Client: fake(func(*http.Request) string { return c.answer })})
			awaitLog(t, f, c.want)
			if v := f.Get("web").View(); !v.Frozen || v.Counts.Total() != 0 {
				t.Errorf("the view is %s", describe(v))
			}
		})
	}
}

// A group that another server shows is none.
func TestAnotherServerIsNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, version(7)) }))
	defer other.Close()
	f := start(t, follow.Config{Client: &api.Client{Base: other.URL}})
	awaitLog(t, f, "is not a Sonde engine")
	if v := f.Get("web").View(); !v.Frozen || v.Counts.Total() != 0 {
		t.Errorf("the view is %s", describe(v))
	}
}

// However an API answers, it is not asked in a busy loop, and is asked again soon.
func TestRequestsHaveABoundedRate(t *testing.T) {
	for name, c := range map[string]struct {
		answer      func(r *http.Request, n int64) string
		least, most int64 // requests in a minute
	}{
		"fails":            {func(*http.Request, int64) string { return "" }, 12, 40},
		"changes":          {func(_ *http.Request, n int64) string { return version(n) }, 5000, 6001},
		"does not wait":    {func(*http.Request, int64) string { return version(7) }, 5000, 6001},
		"waits":            {func(r *http.Request, _ int64) string { return waits(r) }, 2, 3},
		"does not answer":  {func(r *http.Request, _ int64) string { <-r.Context().Done(); return "" }, 2, 2},
		"fails then waits": {func(r *http.Request, n int64) string { return failsOnce(r, n) }, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int64
				start(t, follow.Config{Client: fake(func(r *http.Request) string { return c.answer(r, requests.Add(1)) })})
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := requests.Load(); n < c.least || n > c.most {
					t.Errorf("there were %d requests in a minute, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

func version(n int64) string {
	return fmt.Sprintf(`{"name":"web","state":"ready","last":"ready","version":%d,"minReady":"1","members":[%s]}`, n, member("a"))
}

// waits answers as an engine of whose group nothing changes.
func waits(r *http.Request) string {
	if r.URL.Query().Get("version") == "7" {
		wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
		time.Sleep(wait)
	}
	return version(7)
}

func failsOnce(r *http.Request, n int64) string {
	if n == 1 {
		return "{"
	}
	return waits(r)
}

func TestInvalidConfigurationsAreRejected(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	client := &api.Client{}
	for want, c := range map[string]follow.Config{
		"Client is nil":           {Groups: []string{"web"}},
		"no group":                {Client: client},
		"at most 64":              {Client: client, Groups: many},
		"duplicate group \"web\"": {Client: client, Groups: []string{"web", "web"}},
		"control characters":      {Client: client, Groups: []string{"a\nb"}},
		"not be negative":         {Client: client, Groups: []string{"web"}, MaxRetry: -1},
	} {
		if _, err := follow.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(version(7)))
	f.Add([]byte(strings.Replace(version(7), "]}", `],"next":"a"}`, 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		var isRead atomic.Bool
		client := fake(func(r *http.Request) string {
			if v := r.URL.Query().Get("version"); v != "" && v != "0" {
				isRead.Store(true)
				<-r.Context().Done()
			}
			return string(text)
		})
		var log testsync.Buffer
		fo, err := follow.New(follow.Config{Client: client, Groups: []string{"web"}, MaxRetry: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = fo.Run(ctx) }()
		testsync.Until(t, "an answer", func() bool { return isRead.Load() || log.String() != "" })
		cancel()
		<-done
		var page api.Group
		if log.String() == "" && json.Unmarshal(text, &page) == nil {
			if v := fo.Get("web").View(); v.Counts.Total() != len(page.Members) {
				t.Errorf("the view %s has other members than %s", describe(v), text)
			}
		}
	})
}
