package api_test

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// texts returns the texts of an SVG image, and the colors of its rectangles. The image must be well-formed.
func texts(t *testing.T, picture string) (all, colors []string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return all, colors
		}
		if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
		switch token := token.(type) {
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				all = append(all, text)
			}
		case xml.StartElement:
			for _, a := range token.Attr {
				if token.Name.Local == "rect" && a.Name.Local == "fill" {
					colors = append(colors, a.Value)
				}
			}
		}
	}
}

func TestABadgeShowsTheStateOfATargetOrAGroup(t *testing.T) {
	e, _ := labeledEngine(t)
	groups := group.New(group.Config{Engine: e})
	if err := groups.Apply(map[string]group.Rule{"all": {MinReady: probe.Minimum{Count: 1}}}); err != nil {
		t.Fatal(err)
	}
	s := server(t, api.Config{Groups: groups})
	for _, c := range []struct{ path, name, state, color string }{
		{"/badge/shop/web.svg", "shop/web", "restart blocked", "#a40e26"},
		{"/badge/shop/db.svg", "shop/db", "starting", "#57606a"},
		{"/badge/web%5B%22a%22%5D.svg", `web["a"]`, "absent", "#57606a"},
		{"/badge/group/all.svg", "all", "undecided", "#57606a"},
	} {
		w := record(s, httptest.NewRequest("GET", "http://localhost"+c.path, nil))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "image/svg+xml" {
			t.Errorf("%s: status %d: %s", c.path, w.Code, w.Body)
			continue
		}
		all, colors := texts(t, w.Body.String())
		if want := []string{c.name + ": " + c.state, c.name, c.state}; strings.Join(all, "|") != strings.Join(want, "|") {
			t.Errorf("%s shows %q, want %q", c.path, all, want)
		}
		if len(colors) != 2 || colors[1] != c.color {
			t.Errorf("%s has the colors %q, want %s", c.path, colors, c.color)
		}
	}
	for path, want := range map[string]string{
		"/badge/shop/web":       "/badge/shop/web.svg",
		"/badge/shop/wbe.svg":   `no target \"shop/wbe\"; the badge of a group is /badge/group/NAME.svg`,
		"/badge/group/none.svg": "none",
	} {
		if w := record(s, httptest.NewRequest("GET", "http://localhost"+path, nil)); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
}

// Only with PublicBadges is a badge served to a page of another site and without the token; nothing else is.
func TestBadgesAreForEveryoneOnlyIfTheConfigurationSaysSo(t *testing.T) {
	const token = "0123456789abcdef"
	foreign := func(path string) *http.Request {
		r := httptest.NewRequest("GET", "http://status.example.com"+path, nil)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Dest", "image")
		return r
	}
	for public, want := range map[bool]int{false: http.StatusForbidden, true: http.StatusOK} {
		s := server(t, api.Config{Token: token, PublicBadges: public})
		w := record(s, foreign("/badge/shop/web.svg"))
		if w.Code != want {
			t.Errorf("public_badges = %v: the badge has status %d, want %d", public, w.Code, want)
		}
		if policy := w.Header().Get("Cross-Origin-Resource-Policy"); policy != map[bool]string{false: "same-origin", true: "cross-origin"}[public] {
			t.Errorf("public_badges = %v: the resource policy is %s", public, policy)
		}
		for _, path := range []string{"/v1/targets/shop/web", "/badge/../v1/targets", "/v1/targets"} {
			if w := record(s, foreign(path)); w.Code == http.StatusOK {
				t.Errorf("public_badges = %v: a page of another site reads %s", public, path)
			}
		}
		own := httptest.NewRequest("GET", "http://status.example.com/badge/shop/web.svg", nil)
		own.Header.Set("Authorization", "Bearer "+token)
		if w := record(s, own); w.Code != http.StatusOK {
			t.Errorf("public_badges = %v: with the token the badge has status %d", public, w.Code)
		}
	}
}
