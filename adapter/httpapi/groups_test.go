package httpapi_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
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
	s, err := httpapi.New(httpapi.Config{Engine: e, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	client := &httpapi.Client{Base: server.URL}
	list, err := client.Groups(t.Context())
	if err != nil || len(list.Groups) != 2 || list.Groups[1].Name != "shop" || list.Groups[1].MinReady != "50%" || list.Groups[1].Members != nil {
		t.Errorf("the groups are %+v, %v", list, err)
	}
	one, err := client.Group(t.Context(), "shop", "")
	if err != nil || one.State != "undecided" || one.Counts != (httpapi.GroupCounts{Total: 2, Undecided: 2}) || len(one.Members) != 2 ||
		one.Members[1].Target != "shop/web" || one.Members[1].Labels["team"] != "shop" {
		t.Errorf("the group is %+v, %v", one, err)
	}
	if target, err := client.Target(t.Context(), "shop/db"); err != nil || !slices.Equal(target.Groups, []string{"all", "shop"}) {
		t.Errorf("the groups of a member are %v, %v", target.Groups, err)
	}
	if rest, err := client.Group(t.Context(), "shop", "shop/db"); err != nil || len(rest.Members) != 1 {
		t.Errorf("after a member come %+v, %v", rest.Members, err)
	}
	members, err := client.Targets(t.Context(), httpapi.Query{Group: "shop", Labels: []string{"tier=db"}})
	if err != nil || describe(members) != "shop/db of 1" {
		t.Errorf("the members are %s, %v", describe(members), err)
	}
	var notFound *httpapi.Error
	if _, err := client.Group(t.Context(), "none", ""); !errors.As(err, &notFound) || notFound.Status != 404 {
		t.Errorf("an unknown group gives %v", err)
	}
	if _, err := client.Targets(t.Context(), httpapi.Query{Group: "none"}); !errors.As(err, &notFound) || notFound.Status != 404 {
		t.Errorf("the targets of an unknown group give %v", err)
	}
}

// The members are those of the group's present rule, and the stream ends with the group.
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
	client := client(t, server(t, httpapi.Config{Engine: e, Groups: groups}))
	var seen []string
	for event, err := range client.Events(t.Context(), httpapi.EventOptions{Group: "web", Names: []string{"*/web"}, Targets: true, Snapshot: true}) {
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
			report("pay/web", "2") // a stream looks at its group at each change and each heartbeat
		}
	}
	if got := strings.Join(seen[:min(len(seen), 3)], ", "); got != "target shop/web, target_removed shop/web, target pay/web" || len(seen) > 4 {
		t.Errorf("the events are %v", seen)
	}
	for _, err := range client.Events(t.Context(), httpapi.EventOptions{Group: "web"}) {
		if notFound, ok := errors.AsType[*httpapi.Error](err); !ok || notFound.Status != 404 {
			t.Errorf("an unknown group gives %v", err)
		}
	}
}
