package probe_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestLabelsAreThoseOfPrometheus(t *testing.T) {
	for name, want := range map[string]string{
		"team": "", "_": "", "A1_b": "", strings.Repeat("a", 63): "",
		"":                       "labels has an empty name",
		"1st":                    `labels has the invalid name "1st"; use letters, digits and underscores: _1st`,
		"app.kubernetes.io/name": `labels has the invalid name "app.kubernetes.io/name"; use letters, digits and underscores: app_kubernetes_io_name`,
		"größe":                  `labels has the invalid name "größe"; use letters, digits and underscores: gr__e`,
		"__meta":                 `labels has the name "__meta", which is reserved: Prometheus drops names that begin with two underscores; write meta`,
		"target":                 `labels has the name "target", which is reserved: metrics use it for the target's name; use another name, such as service_target`,
		"job":                    `labels has the name "job", which is reserved: Prometheus sets it at each scrape; use another name, such as service_job`,
		strings.Repeat("a", 64):  "labels has a name of 64 bytes; at most 63 are allowed",
	} {
		err := probe.CheckLabel(name, "x")
		if text(err) != want {
			t.Errorf("the name %q gives %q, want %q", name, text(err), want)
		}
		var field *probe.FieldError
		if errors.As(err, &field) && strings.Contains(field.Hint, ": ") {
			cure := field.Hint[strings.LastIndex(field.Hint, " ")+1:]
			if err := probe.CheckLabel(cure, "x"); err != nil {
				t.Errorf("the cure for %q is refused itself: %v", name, err)
			}
		}
	}
	for _, value := range []string{strings.Repeat("v", 257), "a\nb", "\xff"} {
		if probe.CheckLabel("team", value) == nil {
			t.Errorf("the value %q is allowed", value)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestConditionsOnLabelsNameTheirCure(t *testing.T) {
	for condition, want := range map[string]string{
		"team=shop": "team=shop", "team!=shop": "team!=shop", "team=": "team=", "team!=": "team!=", "a=b=c": "a=b=c", "a=b!=c": "a=b!=c",
		"team==shop":      `write "team=shop"`,
		"team = shop":     `write "team=shop"`,
		"team":            `write "team!=" for the targets that have the label`,
		"team=~sh.*":      "regular expressions are not supported",
		"team!~sh.*":      "regular expressions are not supported",
		"team in (a, b)":  `write "team=shop" or "team!=shop"`,
		"my-team=shop":    "use letters, digits and underscores: my_team",
		"=shop":           "empty name",
		"instance=10.0.0": "reserved",
	} {
		m, err := probe.ParseLabelMatch(condition)
		text := m.Name + map[bool]string{false: "=", true: "!="}[m.Not] + m.Value
		if err == nil && text != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v with the error %v, want %q", condition, m, err, want)
		}
	}
}

func TestASelectorMatchesOneNameAndAllLabels(t *testing.T) {
	shop := map[string]string{"team": "shop", "tier": "web"}
	for _, c := range []struct {
		names, labels []string
		target        string
		want          bool
	}{
		{nil, nil, "web", true},
		{[]string{"web"}, nil, "web", true},
		{[]string{"web"}, nil, "webs", false},
		{[]string{"db", "w*"}, nil, "web", true},
		{nil, []string{"team=shop", "tier=web"}, "web", true},
		{nil, []string{"team=shop", "tier=db"}, "web", false},
		{nil, []string{"site!=north"}, "web", true},
		{nil, []string{"team!=shop"}, "web", false},
		{[]string{"web"}, []string{"team!=shop"}, "web", false},
		{[]string{"db"}, []string{"team=shop"}, "web", false},
		{[]string{`web[*]`}, nil, `web["a"]`, true},
		{[]string{`web[*]`}, nil, `web`, false},
	} {
		s, err := probe.NewSelector(c.names, c.labels)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Matches(c.target, shop); got != c.want {
			t.Errorf("%q %q matches %q: %v, want %v", c.names, c.labels, c.target, got, c.want)
		}
	}
}

func FuzzGlobsMatchAsRegularExpressionsDo(f *testing.F) {
	for _, seed := range [][2]string{{"shop/*", "shop/web"}, {"*a*b?", "xaybz"}, {"??", "é"}, {"*é?", "aéb"}, {"", ""}, {"a[*]", `a["b"]`}, {"***", ""}, {"*??", "éé"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		if strings.ToValidUTF8(glob+name, "") != glob+name || len(glob) > 20 || len(name) > 60 {
			return
		}
		model := strings.NewReplacer(`\*`, "(?s:.*)", `\?`, "(?s:.)").Replace(regexp.QuoteMeta(glob))
		want := regexp.MustCompile("^(?:" + model + ")$").MatchString(name)
		if got := probe.MatchesGlob(glob, name); got != want {
			t.Errorf("%q matches %q: %v, want %v", glob, name, got, want)
		}
	})
}

func TestAMinimumRoundsUp(t *testing.T) {
	for percent := 1; percent <= 100; percent++ {
		m := probe.Minimum{Share: probe.Share(float64(percent) / 100)}
		for n := range 1000 {
			if got, want := m.Of(n), max((percent*n+99)/100, 1); got != want {
				t.Fatalf("%d%% of %d is %d, want %d", percent, n, got, want)
			}
		}
	}
	for s, want := range map[string]string{"2": "2", "50%": "50%", "0": "!", "-1": "!", "1.5": "!", "0%": "!", "101%": "!", "two": "!", "": "!", "1000001": "!"} {
		var m probe.Minimum
		if err := m.UnmarshalText([]byte(s)); err != nil && want != "!" || err == nil && m.String() != want {
			t.Errorf("%q is %v, %v; want %s", s, m, err, want)
		}
	}
	if n := (probe.Minimum{}).Of(5); n != 1 {
		t.Errorf("the zero Minimum of 5 is %d", n)
	}
}
