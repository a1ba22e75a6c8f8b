package config

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// FuzzParse checks for any text that Parse does not panic, also before a push, that it returns, that equal
// input gives equal output, and that diagnostics have no control characters.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*", "testdata/good/*", "testdata/pushed/*"} {
		for _, s := range configurations(f, pattern) {
			f.Add(s.Bytes, s.JSON())
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, isJSON bool) {
		if bytes.Count(b, []byte("for")) > 8 || bytes.Contains(b, []byte("file")) {
			t.Skip("nested loops take long, and no files must be read")
		}
		s := Source{Name: "fuzz.hcl", Bytes: b}
		if isJSON {
			s.Name = "fuzz.hcl.json"
		}
		begin := time.Now()
		push := toPush()
		push.IsPushed = func(string) bool { return true }
		Parse([]Source{s}, push)
		o := testOptions()
		c, diags := Parse([]Source{s}, o)
		again, diagsAgain := Parse([]Source{s}, o)
		if c == nil || len(again.Set) != len(c.Set) || len(again.Targets) != len(c.Targets) {
			t.Error("two runs give two configurations")
		}
		if text := written(t, diags, false); text != written(t, diagsAgain, false) || strings.ContainsRune(text, '\x1b') {
			t.Errorf("two runs differ, or a diagnostic has control characters:\n%s", text)
		}
		if took := time.Since(begin); took > testsync.Timeout {
			t.Errorf("it took %v", took)
		}
	})
}
