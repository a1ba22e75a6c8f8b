package probe_test

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/probe"
)

func TestResultsAreMadeInOneWord(t *testing.T) {
	cases := []struct {
		name      string
		got, want probe.Result
	}{
		{"Succeed takes its text as it is", probe.Succeed("100%d"), probe.Result{Outcome: probe.Success, Detail: "100%d"}},
		{"Warn", probe.Warn(probe.ReasonHTTPRedirect, "to %s", "b"),
			probe.Result{Outcome: probe.Warning, Reason: "http.redirect", Detail: "to b"}},
		{"Fail", probe.Fail(probe.ReasonHTTPStatus, "status %d", 503),
			probe.Result{Outcome: probe.Failure, Reason: "http.status", Detail: "status 503"}},
		{"Broken", probe.Broken("exec.start", "no %s", "x"),
			probe.Result{Outcome: probe.Unknown, Reason: "exec.start", Detail: "no x"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("got %+v, want %+v", c.got, c.want)
			}
		})
	}
}

func TestAFunctionIsAHandler(t *testing.T) {
	var h probe.Handler = probe.HandlerFunc(func(_ context.Context, t probe.Target) probe.Result {
		return probe.Succeed(t.Name)
	})
	if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got != probe.Succeed("web") {
		t.Errorf("got %+v", got)
	}
}

func TestTextOfStrangersIsCleaned(t *testing.T) {
	const most = 8
	cases := []struct{ name, in, want string }{
		{"plain", "ok", "ok"},
		{"empty", "", ""},
		{"white space at the end", "ok \t\r\n\n", "ok"},
		{"white space before", "\n\t ok", "\n\t ok"},
		{"lines and tabs", "a\nb\tc", "a\nb\tc"},
		{"as long as allowed", "12345678", "12345678"},
		{"too long", "123456789", "12345678"},
		{"cut before a character", "1234567é", "1234567"},
		{"cut after a character", "123456é!", "123456é"},
		{"nothing but white space", " \n ", ""},
		{"an escape sequence", "\x1b[2J", "\uFFFD[2J"},
		{"a carriage return", "a\rb", "a\uFFFDb"},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"cut where it is not UTF-8", "1234567\xff", "1234567"},
		{"turned writing", "a\u202eb", "a\uFFFDb"},
		{"a line separator", "a\u2028b", "a\uFFFDb"},
		{"a control of Latin-1", "a\u009bb", "a\uFFFDb"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := probe.CleanText(c.in, most); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	const most = 8
	for in, want := range map[string]string{
		"":                               "",
		" a\r\n\tb\u2028 c ":             "a b c",
		"a\x1b[2J\nb":                    "a\uFFFD[2J",
		strings.Repeat("\n", most) + "a": "a", // white space is removed first
		"123 567 9":                      "123 567",
	} {
		if got := probe.OneLine(in, most); got != want {
			t.Errorf("the line of %q is %q, want %q", in, got, want)
		}
	}
}

func FuzzCleanText(f *testing.F) {
	f.Add("a plain line", 5)
	f.Add("\x1b[31mred\u202e\xff \n", 7)
	f.Add("ééé \u2028", 3)
	f.Add("12345 6", 6)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = max(most, 0) % (2 * probe.MaxDetail)
		got := probe.CleanText(s, most)
		switch {
		case len(got) > most:
			t.Errorf("%d bytes of %q, at most %d are allowed", len(got), got, most)
		case !utf8.ValidString(got):
			t.Errorf("%q is not UTF-8", got)
		case strings.ContainsFunc(got, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }):
			t.Errorf("%q has control characters", got)
		case probe.CleanText(got, most) != got:
			t.Errorf("%q is cleaned to %q, and that to %q", s, got, probe.CleanText(got, most))
		}
	})
}

func TestADurationForPeopleHasTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1234 * time.Nanosecond: "1µs", 32052852 * time.Nanosecond: "32.1ms", 639300 * time.Microsecond: "639ms", 400 * time.Millisecond: "400ms",
		3240 * time.Millisecond: "3.2s", 42 * time.Second: "42s", 5 * time.Minute: "5m", 192 * time.Second: "3m12s",
		time.Hour - time.Millisecond: "1h", time.Hour: "1h", 5*time.Hour + 3*time.Minute + 9*time.Second: "5h3m", 10 * time.Hour: "10h",
		26 * time.Hour: "1d2h", 336 * time.Hour: "14d", 24*time.Hour + 59*time.Minute: "1d",
	} {
		if got := probe.Brief(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
