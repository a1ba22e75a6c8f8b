package restart_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

func TestAWrongPreStopIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		hook  restart.PreStop
		field string // "" for none
	}{
		"sleep":      {restart.PreStop{Sleep: time.Second}, ""},
		"url":        {restart.PreStop{URL: "https://127.0.0.1/drain?x", Headers: map[string]string{"A": "b"}}, ""},
		"empty":      {restart.PreStop{}, "pre_stop"},
		"two":        {restart.PreStop{Sleep: time.Second, Command: []string{"x"}}, "pre_stop"},
		"no program": {restart.PreStop{Command: []string{""}}, "pre_stop.command"},
		"no scheme":  {restart.PreStop{URL: "127.0.0.1:80"}, "pre_stop.url"},
		"no host":    {restart.PreStop{URL: "http:///x"}, "pre_stop.url"},
		"headers":    {restart.PreStop{Sleep: time.Second, Headers: map[string]string{"A": "b"}}, "pre_stop.headers"},
		"header":     {restart.PreStop{URL: "http://a", Headers: map[string]string{"A": "b\n"}}, "pre_stop.headers"},
		"a colon":    {restart.PreStop{URL: "http://a", Headers: map[string]string{"A:": "b"}}, "pre_stop.headers"},
		"brackets":   {restart.PreStop{URL: "http://a", Headers: map[string]string{"X(Drain)": "b"}}, "pre_stop.headers"},
		"a letter":   {restart.PreStop{URL: "http://a", Headers: map[string]string{"é": "b"}}, "pre_stop.headers"},
		"a control":  {restart.PreStop{URL: "http://a", Headers: map[string]string{"A": "b\x01c"}}, "pre_stop.headers"},
		"a tab":      {restart.PreStop{URL: "http://a", Headers: map[string]string{"A": "b\tc é"}}, ""},
		"negative":   {restart.PreStop{Sleep: -1}, "pre_stop.sleep"},
	} {
		t.Run(name, func(t *testing.T) {
			err := restart.Unit{PreStop: &c.hook}.Check()
			var field *probe.FieldError
			if got := errors.As(err, &field); got != (c.field != "") || got && field.Field != c.field {
				t.Errorf("Check() = %v, want %q", err, c.field)
			}
		})
	}
}

func TestWrongHeadersAreNamedInTheirOrder(t *testing.T) {
	hook := restart.PreStop{URL: "http://a", Headers: map[string]string{"C ": "", "B": "secret\n", "A:": "", "D": ""}}
	const want = `pre_stop.headers has an invalid name: "A:"; write A, without the colon; ` +
		`pre_stop.headers has a line break at the end of B; a file ends with one: write trimspace(file("…")); pre_stop.headers has an invalid name: "C "`
	if err := (restart.Unit{PreStop: &hook}).Check(); err == nil || err.Error() != want {
		t.Errorf("Check() = %v, want %s", err, want)
	}
}
