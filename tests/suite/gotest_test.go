package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatGoTestReportsIsPrintedByPackage(t *testing.T) {
	events := strings.Join([]string{
		`{"Action":"run","Package":"a","Test":"TestGood"}`,
		`{"Action":"output","Package":"a","Test":"TestGood","Output":"of a good test\n"}`,
		`{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":1}`,
		`{"Action":"output","Package":"a","Test":"TestSkipped","Output":"    a_test.go:1: needs root\n"}`,
		`{"Action":"skip","Package":"a","Test":"TestSkipped"}`,
		`{"Action":"output","Package":"a","Test":"TestOfCI","Output":"    a_test.go:2: runs only in .ci/run\n"}`,
		`{"Action":"skip","Package":"a","Test":"TestOfCI"}`,
		`{"Action":"output","Package":"a","Output":"ok  \ta\t1.500s\n"}`,
		`{"Action":"pass","Package":"a","Elapsed":1.5}`,
		`{"Action":"output","Package":"b","Test":"TestBad","Output":"    b_test.go:3: wrong\n"}`,
		`{"Action":"fail","Package":"b","Test":"TestBad","Elapsed":1}`,
		`{"Action":"output","Package":"b","Test":"TestScripts/a","Output":"    testscript.go:4: # starts\n    > exec a\n    FAIL: a.txtar:5: no match\n"}`,
		`{"Action":"fail","Package":"b","Test":"TestScripts/a","Elapsed":1}`,
		`{"Action":"output","Package":"b","Test":"TestRuns","Output":"panic: while it ran\n"}`,
		`{"Action":"output","Package":"b","Output":"FAIL\tb\t2.000s\n"}`,
		`{"Action":"fail","Package":"b","Elapsed":2}`,
		`{"ImportPath":"c","Action":"build-output","Output":"c.go:1: does not compile\n"}`,
		`{"Action":"output","Package":"d","Test":"TestLast","Output":"panic: of a test that hangs\n"}`,
		`{"Action":"pass","Package":"d","Test":"TestLast"}`,
		`{"Action":"fail","Package":"d","Elapsed":0}`,
		`{"Action":"pass","Package":"e","Elapsed":0}`,
		"no event",
	}, "\n")
	var out strings.Builder
	r := report{w: &out}
	ended := r.read(strings.NewReader(events), "")
	r.sumUp()
	if !slices.Equal(ended.failed, []string{"b", "d"}) || ended.crashed != nil {
		t.Errorf("failed and crashed: %v", ended)
	}
	want := "ok  \ta\t1.500s\n" +
		"--- b\n    b_test.go:3: wrong\n" +
		"--- b\n    testscript.go:4: # starts\n    > exec a\n    FAIL: a.txtar:5: no match\n" +
		"--- b\npanic: while it ran\n" +
		"FAIL\tb\t2.000s\n" +
		"c.go:1: does not compile\n" +
		"--- d\npanic: of a test that hangs\n" +
		"no event\n" +
		"skipped 1: needs root\n" +
		"--- 1 packages have passed; the slowest:\n" +
		"ok  \ta\t1.500s\n" +
		"--- 1 packages have failed:\n" +
		"FAIL\tb\tTestBad: b_test.go:3: wrong\n" +
		"FAIL\tb\tTestScripts/a: a.txtar:5: no match\n" +
		"FAIL\tb\t2.000s\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A crash of the race detector is distinguished from a crash of the tests, and from a data race.
func TestACrashOfTheRaceDetectorIsRecognized(t *testing.T) {
	for text, want := range map[string]bool{
		"SIGSEGV: segmentation violation\nPC=0x41cb09 m=0\ngoroutine 7 [select (durable), synctest bubble 9]:":               true,
		"ThreadSanitizer: CHECK failed: tsan_rtl.cpp:94\ngoroutine 7 [synctest.Run]:":                                        true,
		"SIGSEGV: segmentation violation\ngoroutine 7 [running]:":                                                            false,
		"WARNING: DATA RACE\nunexpected fault address 0x6e5\ngoroutine 7 [synctest.Run]:":                                    false,
		"panic: runtime error\n[signal SIGSEGV: segmentation violation code=0x1]\ngoroutine 7 [running, synctest bubble 9]:": false,
		"panic: index out of range\ngoroutine 7 [select, synctest bubble 9]:":                                                false,
	} {
		events := fmt.Sprintf(`{"Action":"output","Package":"a","Test":"TestA","Output":%q}
{"Action":"fail","Package":"a"}`, text)
		r := report{w: io.Discard}
		if ended := r.read(strings.NewReader(events), ""); (ended.crashed != nil) != want || len(ended.failed) != 1 {
			t.Errorf("%q: failed and crashed: %v", text, ended)
		}
	}
}

// Packages whose race detector has crashed are tested once more, and pass if their tests do.
func TestPackagesWhoseRaceDetectorCrashesAreTestedAgain(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := `#!/bin/sh
echo "$*" >>calls
if [ -e crashed ]; then
	echo '{"Action":"pass","Package":"a"}'
else
	touch crashed
	echo '{"Action":"output","Package":"a","Test":"TestA","Output":"ThreadSanitizer: CHECK failed\\nsynctest.Run\\n"}
{"Action":"fail","Package":"a"}'
	exit 1
fi
`
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := report{w: io.Discard}
	step{name: "racing", dir: dir, argv: []string{"go", "test", "-race", "./..."}}.run(t.Context(), &r)
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if want := "test -json -race ./...\ntest -json -race a\n"; err != nil || string(calls) != want || r.failed != nil {
		t.Errorf("called %q, %v, want %q; failed: %v", calls, err, want, r.failed)
	}
}

func TestGoroutinesAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"\tgo func() {":           true,
		"\tgo s.run(ctx)":         true,
		"\trunning.Go(func() {":   true,
		"// it may go on":         false,
		"import \"go/ast\"":       false,
		"\tgofmt(x)":              false,
		"case x := <-going.Goal:": false,
	} {
		if got := concurrent.MatchString(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestTestsWithoutTheRaceDetectorAreFound(t *testing.T) {
	text := "func TestA(t *testing.T) {\n\ttier.NoRace(t)\n}\n\nfunc TestB(t *testing.T) {\n\ttier.CI(t)\n\ttier.NoRace(t)\n}\n\n" +
		"func TestC(t *testing.T) {\n\ttier.CI(t)\n}\n"
	var found []string
	for _, m := range noRace.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	if got := strings.Join(found, " "); got != "TestA TestB" {
		t.Errorf("found %s", got)
	}
}
