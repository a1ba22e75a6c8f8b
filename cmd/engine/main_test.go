package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
)

func TestWorstOutcomeGivesTheExitCode(t *testing.T) {
	for _, test := range []struct {
		found []probe.Outcome
		code  int
	}{
		{[]probe.Outcome{probe.Success, probe.Success}, exitSuccess},
		{[]probe.Outcome{probe.Success, probe.Warning}, exitWarning},
		{[]probe.Outcome{probe.Unknown, probe.Warning}, exitUnknown},
		{[]probe.Outcome{probe.Failure, probe.Unknown}, exitFailure},
	} {
		var reports []report
		for _, o := range test.found {
			reports = append(reports, report{result: probe.Result{Outcome: o}})
		}
		code := exitSuccess
		if err := worst(reports); err != nil {
			code = err.(*exitError).code
		}
		if code != test.code {
			t.Errorf("exit code of %v is %d, want %d", test.found, code, test.code)
		}
	}
}

func TestASuggestionIsTheNameMostLikeTheWrongOne(t *testing.T) {
	known := []string{"shop/web", "shop/db", "worker"}
	for name, want := range map[string]string{
		"shop/wbe": `; did you mean "shop/web"?`,
		"wörker":   `; did you mean "worker"?`,
		"nothing":  `, only shop/web, shop/db, worker`,
	} {
		if got := didYouMean(name, known); got != want {
			t.Errorf("suggestion for %q is %q, want %q", name, got, want)
		}
	}
	if got := didYouMean("nothing", slices.Repeat(known, maxListed)); got != "" {
		t.Errorf("of many names %q is suggested", got)
	}
}

func TestDistanceCountsChangedCharacters(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"é", "e", 1}} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) is %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestSettingsThatNeedAnotherStartAreNamed(t *testing.T) {
	was := config.Engine{Listen: "a", RestartBudget: &config.Budget{Max: 3}, LogLevel: "info"}
	same := config.Engine{Listen: "a", RestartBudget: &config.Budget{Max: 3}, LogLevel: "debug"}
	if got := fixed(was, same); len(got) != 0 {
		t.Errorf("equal settings need another start: %q", got)
	}
	other := config.Engine{Listen: "b", RestartBudget: &config.Budget{Max: 4}, TLS: &config.TLS{}}
	if got, want := fixed(was, other), []string{"listen", "restart_budget", "tls"}; !slices.Equal(got, want) {
		t.Errorf("settings that need another start are %q, want %q", got, want)
	}
}

func TestReplacingAFileKeepsNothingOfTheOldOne(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	for _, text := range []string{"a long text", "short"} {
		if err := replaceFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("the file has %q, %v, want %q", got, err, text)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

func TestAFileThatCannotBeReplacedLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "sub")
	if err := os.MkdirAll(filepath.Join(name, "not empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(name, []byte("text"), 0o644); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

func TestALogThatIsNoTerminalIsJSONWithReadableDurations(t *testing.T) {
	var out bytes.Buffer
	level := &slog.LevelVar{}
	log := newLogger(&out, "auto", level)
	log.Debug("hidden")
	level.Set(logLevel("debug"))
	log.Debug("shown", "took", 1500*time.Millisecond)
	if got := out.String(); !strings.Contains(got, `"msg":"shown","took":"1.5s"}`) || strings.Contains(got, "hidden") {
		t.Errorf("the log is %s", got)
	}
}

func TestATokenIsAFilesTextWithoutTheSpaceAround(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{" abc \n": "abc", "\n": "", "": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readToken(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("token of %q is %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestValuesOfVariablesAreNotShown(t *testing.T) {
	var v variables
	for _, s := range []string{"a=secret", "b=x=y"} {
		if err := v.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if v.String() != "a,b" || v[1].Value != "x=y" {
		t.Errorf("variables are %q, %+v", v.String(), v)
	}
	if v.Set("=x") == nil {
		t.Error("a variable without a name was taken")
	}
}
