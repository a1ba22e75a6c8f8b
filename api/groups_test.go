package api_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestGroupsAreServedWithTheirMembers(t *testing.T) {
	e, _ := labeledEngine(t)
	groups := group.New(group.Config{Engine: e})
	shop, err := probe.NewSelector(nil, []string{"team=shop"})
	if err != nil {
		t.Fatal(err)
	}
	if err := groups.Apply(map[string]group.Rule{"shop": {Members: shop, MinReady: probe.Minimum{Share: 0.5}}, "all": {}}); err != nil {
		t.Fatal(err)
	}
	s, err := api.New(api.Config{Engine: e, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	client := &api.Client{Base: server.URL}
	list, err := client.Groups(t.Context())
	if err != nil || len(list.Groups) != 2 || list.Groups[1].Name != "shop" || list.Groups[1].MinReady != "50%" || list.Groups[1].Members != nil {
		t.Errorf("the groups are %+v, %v", list, err)
	}
	one, err := client.Group(t.Context(), "shop", "")
	if err != nil || one.State != "undecided" || one.Counts != (api.GroupCounts{Total: 2, Undecided: 2}) || len(one.Members) != 2 ||
		one.Members[1].Target != "shop/web" || one.Members[1].Labels["team"] != "shop" {
		t.Errorf("the group is %+v, %v", one, err)
	}
	if target, err := client.Target(t.Context(), "shop/db"); err != nil || !slices.Equal(target.Groups, []string{"all", "shop"}) {
		t.Errorf("the groups of a member are %v, %v", target.Groups, err)
	}
	if rest, err := client.Group(t.Context(), "shop", "shop/db"); err != nil || len(rest.Members) != 1 {
		t.Errorf("after a member come %+v, %v", rest.Members, err)
	}
	members, err := client.Targets(t.Context(), api.Query{Group: "shop", Labels: []string{"tier=db"}})
	if err != nil || describe(members) != "shop/db of 1" {
		t.Errorf("the members are %s, %v", describe(members), err)
	}
	var notFound *api.Error
	if _, err := client.Group(t.Context(), "none", ""); !errors.As(err, &notFound) || notFound.Status != 404 {
		t.Errorf("an unknown group gives %v", err)
	}
	if _, err := client.Targets(t.Context(), api.Query{Group: "none"}); !errors.As(err, &notFound) || notFound.Status != 404 {
		t.Errorf("the targets of an unknown group give %v", err)
	}
}

// A request with a version gets its response when the group has another one.
func TestRequestsWaitForAChangeOfAGroup(t *testing.T) {
	e, _ := labeledEngine(t)
	groups := group.New(group.Config{Engine: e})
	rule := func(need int) map[string]group.Rule {
		return map[string]group.Rule{"all": {MinReady: probe.Minimum{Count: need}}}
	}
	if err := groups.Apply(rule(1)); err != nil {
		t.Fatal(err)
	}
	s := server(t, api.Config{Engine: e, Groups: groups})
	address, end := serve(t, s)
	client := &api.Client{Base: "http://" + address}
	first, err := client.Group(t.Context(), "all", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint64{0, 1, first.Version - 1, first.Version + 1} { // immediately
		if g, err := client.AwaitGroup(t.Context(), "all", version, time.Minute); err != nil || g.Version != first.Version || len(g.Members) != 4 {
			t.Errorf("with version %d the answer is %+v, %v", version, g, err)
		}
	}
	if g, err := client.AwaitGroup(t.Context(), "all", first.Version, time.Millisecond); err != nil || g.Version != first.Version {
		t.Errorf("after the wait the answer is %+v, %v", g, err)
	}
	type answer struct {
		group api.Group
		err   error
	}
	answers := make(chan answer, 1)
	ask := func(version uint64) {
		g, err := client.AwaitGroup(t.Context(), "all", version, time.Hour)
		answers <- answer{g, err}
	}
	go ask(first.Version)
	if err := groups.Apply(rule(2)); err != nil {
		t.Fatal(err)
	}
	second := testsync.Receive(t, "the answer after a change", answers)
	if second.err != nil || second.group.Version <= first.Version || second.group.Need != 2 {
		t.Errorf("after a change the answer is %+v", second)
	}
	go ask(second.group.Version)
	if err := groups.Apply(nil); err != nil {
		t.Fatal(err)
	}
	if a := testsync.Receive(t, "the answer after the end", answers); a.err == nil || !strings.Contains(a.err.Error(), `no group "all"`) {
		t.Errorf("after the group was removed the answer is %+v", a)
	}
	for _, query := range []string{"version=", "version=-1", "version=x", "wait=1s", "version=1&wait=x", "version=1&wait=-1s", "version=1&version=2"} {
		r := httptest.NewRequest("GET", "/v1/groups/all?"+query, nil)
		r.Host = address
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != 400 {
			t.Errorf("?%s has the status %d", query, w.Code)
		}
	}
	if err := end(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

// Waiting requests have their own limit, so that all others are served meanwhile. They end when the server stops.
func TestWaitingRequestsAreBounded(t *testing.T) {
	e, _ := labeledEngine(t)
	groups := group.New(group.Config{Engine: e})
	if err := groups.Apply(map[string]group.Rule{"all": {}}); err != nil {
		t.Fatal(err)
	}
	address, end := serve(t, server(t, api.Config{Engine: e, Groups: groups}))
	client := &api.Client{Base: "http://" + address, HTTP: &http.Client{Transport: &http.Transport{}}}
	version := groups.Get("all").View().Version
	var refused, ended atomic.Int64
	var asking sync.WaitGroup
	for range api.MaxWaiters + 1 {
		asking.Go(func() {
			_, err := client.AwaitGroup(t.Context(), "all", version, time.Hour)
			if failed, ok := errors.AsType[*api.Error](err); ok && failed.Status == 503 && strings.Contains(failed.Message, "the limit is 96") {
				refused.Add(1)
			} else if err != nil {
				ended.Add(1)
			}
		})
	}
	testsync.Until(t, "all to wait", func() bool { return refused.Load() == 1 })
	if _, err := client.Group(t.Context(), "all", ""); err != nil {
		t.Errorf("beside requests that wait another one gets %v", err)
	}
	_ = end()
	asking.Wait()
	if ended.Load() != api.MaxWaiters {
		t.Errorf("%d requests were ended, want %d", ended.Load(), api.MaxWaiters)
	}
}

// gatedGroups are groups that can be read for a response once a gate is open. The first read of a request decides
// whether it waits; the second one is for its response.
type gatedGroups struct {
	*group.Groups
	requests int64
	reads    *atomic.Int64
	gate     chan struct{}
}

func (g gatedGroups) Get(name string) *group.Group {
	if g.reads.Add(1) > g.requests {
		<-g.gate
	}
	return g.Groups.Get(name)
}

// A change ends all waits at the same time: the requests take turns then, and none is refused.
func TestAllThatWaitForAChangeAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := labeledEngine(t)
		groups := group.New(group.Config{Engine: e})
		if err := groups.Apply(map[string]group.Rule{"all": {}}); err != nil {
			t.Fatal(err)
		}
		version := groups.Get("all").View().Version
		gated := gatedGroups{groups, api.MaxWaiters, new(atomic.Int64), make(chan struct{})}
		p, end := servePipes(t, api.Config{Engine: e, Groups: gated})
		transport := &http.Transport{DialContext: p.Dial}
		client := &api.Client{HTTP: &http.Client{Transport: transport}}
		var asking sync.WaitGroup
		for range api.MaxWaiters {
			asking.Go(func() {
				if g, err := client.AwaitGroup(t.Context(), "all", version, time.Hour); err != nil || g.Version == version {
					t.Errorf("the answer has version %d, %v", g.Version, err)
				}
			})
		}
		testsync.Until(t, "all to wait", func() bool { return gated.reads.Load() == api.MaxWaiters })
		if err := groups.Apply(map[string]group.Rule{"all": {Panic: 0.5}}); err != nil {
			t.Fatal(err)
		}
		testsync.Until(t, "the first answers", func() bool { return gated.reads.Load() == api.MaxWaiters+api.MaxRequests })
		close(gated.gate)
		asking.Wait()
		transport.CloseIdleConnections()
		end()
	})
}

// The members are those of the group's current rule, and the stream ends with the group.
func TestEventsCanBeLimitedToAGroup(t *testing.T) {
	e, _ := labeledEngine(t)
	groups := group.New(group.Config{Engine: e})
	apply := func(rules map[string]group.Rule) {
		t.Helper()
		if err := groups.Apply(rules); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(names ...string) group.Rule {
		members, err := probe.NewSelector(names, nil)
		if err != nil {
			t.Fatal(err)
		}
		return group.Rule{Members: members}
	}
	report := func(target, instance string) {
		e.Report(probe.Instance{Target: target, ID: instance, Phase: probe.Waiting, Since: time.Now()})
	}
	apply(map[string]group.Rule{"web": rule("shop/*")})
	client := client(t, server(t, api.Config{Engine: e, Groups: groups}))
	var seen []string
	for event, err := range client.Events(t.Context(), api.EventOptions{Group: "web", Names: []string{"*/web"}, Targets: true, Snapshot: true}) {
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			break
		}
		seen = append(seen, string(event.Type)+" "+event.Target.Name)
		switch len(seen) {
		case 1:
			apply(map[string]group.Rule{"web": rule("pay/*")})
			report("shop/web", "1")
		case 2:
			report("pay/web", "1")
		case 3:
			apply(nil)
			report("pay/web", "2") // a stream checks its group at each change and each heartbeat
		}
	}
	first := min(len(seen), 3) // if the instance is seen before its probes are, there are further events of pay/web
	if got := strings.Join(seen[:first], ", "); got != "target shop/web, target_removed shop/web, target pay/web" ||
		slices.ContainsFunc(seen[first:], func(event string) bool { return event != "target pay/web" }) {
		t.Errorf("the events are %v", seen)
	}
	for _, err := range client.Events(t.Context(), api.EventOptions{Group: "web"}) {
		if notFound, ok := errors.AsType[*api.Error](err); !ok || notFound.Status != 404 {
			t.Errorf("an unknown group gives %v", err)
		}
	}
}
