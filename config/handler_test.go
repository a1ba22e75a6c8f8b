package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// declared is a handler whose fields are known only at run time, like a plugin's.
func declared(got *Values) Handler {
	return Handler{
		Schema: Schema{Fields: []Field{
			{Name: "query", Type: String, Required: true},
			{Name: "limit", Type: Int, Default: int64(10)},
			{Name: "ratio", Type: Float},
			{Name: "wait", Type: Duration},
			{Name: "strict", Type: Bool},
			{Name: "hosts", Type: Strings},
			{Name: "labels", Type: StringMap},
			{Name: "headers", Type: StringsMap},
			{Name: "password", Type: String, Sensitive: true},
			{Name: "tls", Type: Block, Block: &Schema{Fields: []Field{{Name: "verify", Type: Bool, Default: true}}}},
			{Name: "retry", Type: Object, Block: &Schema{Fields: []Field{{Name: "max", Type: Int}}}},
		}},
		Make: func(v Values, _ Context) (probe.Handler, error) {
			*got = v
			if v["password"] != nil {
				return nil, &probe.FieldError{Field: "query", Problem: "cannot be run with " + v["password"].(string)}
			}
			return &fake{}, nil
		},
	}
}

func TestHandlersCanDeclareTheirFieldsAtRunTime(t *testing.T) {
	var got Values
	o := Options{Handlers: map[string]Handler{"sql": declared(&got)}}
	parseGood(t, `
target "db" {
  probe "readiness" {
    sql {
      query   = 1
      ratio   = 0.5
      wait    = "2s"
      strict  = "true"
      hosts   = toset(["b", "a"])
      labels  = { a = 1 }
      headers = { a = "x", b = ["y", true] }
      retry   = { max = 3 }
      tls {}
    }
  }
}`, o)
	want := Values{
		"query": "1", "limit": int64(10), "ratio": 0.5, "wait": 2 * time.Second, "strict": true,
		"hosts": []string{"a", "b"}, "labels": map[string]string{"a": "1"},
		"headers": map[string][]string{"a": {"x"}, "b": {"y", "true"}},
		"retry":   Values{"max": int64(3)}, "tls": Values{"verify": true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the values are\n%#v, not\n%#v", got, want)
	}
}

func TestErrorsOfHandlersDoNotShowSensitiveValues(t *testing.T) {
	var got Values
	_, diags := parse(t, `
target "db" {
  probe "readiness" {
    sql {
      query    = "x"
      password = "hunter2"
    }
  }
}`, Options{Handlers: map[string]Handler{"sql": declared(&got)}})
	err := diags.Err()
	if err == nil || !strings.HasPrefix(err.Error(), "config.hcl:5:18: error: query is not valid") || strings.Contains(err.Error(), "hunter") {
		t.Errorf("the error is %v", err)
	}
}

func TestWarningsAreNotErrors(t *testing.T) {
	_, diags := parse(t, `target "x" {}`, Options{})
	if len(diags) != 1 || diags.HasErrors() || diags.Err() != nil {
		t.Errorf("the diagnostics are %v", diags)
	}
}
