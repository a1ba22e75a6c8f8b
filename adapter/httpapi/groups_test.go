package httpapi_test

import (
	"errors"
	"net/http/httptest"
	"testing"

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
