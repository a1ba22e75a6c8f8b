package cli

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestExitCodeIsThatOfTheWorstOutcome(t *testing.T) {
	for _, test := range []struct {
		found []probe.Outcome
		code  int
	}{
		{[]probe.Outcome{probe.Success, probe.Success}, exitSuccess},
		{[]probe.Outcome{probe.Success, probe.Warning}, exitWarning},
		{[]probe.Outcome{probe.Unknown, probe.Warning}, exitUnknown},
		{[]probe.Outcome{probe.Failure, probe.Unknown}, exitFailure},
	} {
		var reports []Report
		for _, o := range test.found {
			reports = append(reports, Report{Result: probe.Result{Outcome: o}})
		}
		code := exitSuccess
		if err := worst(reports); err != nil {
			code = err.(*ExitError).Code
		}
		if code != test.code {
			t.Errorf("exit code of %v is %d, want %d", test.found, code, test.code)
		}
	}
}

func TestLogIsJSONWithoutATerminalAndHasDurationsAsText(t *testing.T) {
	var out bytes.Buffer
	level := &slog.LevelVar{}
	log := NewLogger(&out, "auto", level)
	log.Debug("hidden")
	level.Set(slog.LevelDebug)
	log.Debug("shown", "took", 1500*time.Millisecond)
	if got := out.String(); !strings.Contains(got, `"msg":"shown","took":"1.5s"}`) || strings.Contains(got, "hidden") {
		t.Errorf("the log is %s", got)
	}
}

func TestTokenIsTrimmedAndNotEmpty(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{" abc \n": "abc", "\n": "", "": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadToken(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("token of %q is %q, %v, want %q", text, got, err, want)
		}
	}
}
