package redact_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/internal/redact"
)

func TestKnownValuesAreReplaced(t *testing.T) {
	var r redact.Redactor
	if got := r.Text("hunter22"); got != "hunter22" {
		t.Errorf("got %q from a redactor that knows nothing", got)
	}
	r.Add([]string{"hunter22", "short", "hunter22-and-more\n", "-----BEGIN KEY-----\nMIIabcdef\n-----END KEY-----"})
	r.Add([]string{"another value"})
	for text, want := range map[string]string{
		"password hunter22, hunter22!":   "password (sensitive), (sensitive)!",
		"xhunter22-and-morex":            "x(sensitive)x",
		"short":                          "short",
		"line MIIabcdef of a key":        "line (sensitive) of a key",
		"another value is another value": "(sensitive) is (sensitive)",
		"nothing to see":                 "nothing to see",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestValuesAreBounded(t *testing.T) {
	var r redact.Redactor
	var many []string
	for i := range redact.MaxValues + 1 {
		many = append(many, fmt.Sprintf("secret-%06d", i))
	}
	if r.Add(many) {
		t.Error("all values fit")
	}
	if got := r.Text(many[0]); got != redact.Mark {
		t.Errorf("got %q", got)
	}
	if !new(redact.Redactor).Add(many[:10]) || new(redact.Redactor).Add([]string{strings.Repeat("x", redact.MaxText+1)}) {
		t.Error("the size of the values is not bounded")
	}
}

func TestValuesThatAreAddedAtATimeAreAllKnown(t *testing.T) {
	var r redact.Redactor
	var adders sync.WaitGroup
	for i := range 100 {
		adders.Go(func() { r.Add([]string{fmt.Sprintf("secret-%03d", i)}) })
	}
	adders.Wait()
	for i := range 100 {
		if got := r.Text(fmt.Sprintf("secret-%03d", i)); got != redact.Mark {
			t.Errorf("got %q", got)
		}
	}
}
