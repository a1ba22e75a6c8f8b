package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFewTestsThatFailAreRunOnceMoreAlone(t *testing.T) {
	const (
		bad  = `{"Action":"output","Package":"./a","Test":"TestA","Output":"    a_test.go:1: late\n"}{"Action":"fail","Package":"./a","Test":"TestA"}`
		ends = `{"Action":"output","Package":"./a","Output":"FAIL\t./a\t1.0s\n"}{"Action":"fail","Package":"./a"}`
		good = `{"Action":"output","Package":"./a","Output":"ok  \t./a\t1.0s\n"}{"Action":"pass","Package":"./a","Elapsed":1}`
	)
	failed := func(test string) string { return strings.ReplaceAll(bad, "TestA", test) }
	for name, c := range map[string]struct {
		first, second string // output of go test
		calls, err    string
		prints        []string
	}{
		"passes": {bad + ends, good, "-race ./a ./b; -race -count=1 -run ^(TestA)$ ./a", "",
			[]string{"| --- ./a\n|     a_test.go:1: late\n| FAIL\t./a", "\nok  \t./a", "1 tests have failed beside others, and passed alone; mend them: ./a TestA"}},
		"fails again": {bad + ends, bad + ends, "-race ./a ./b; -race -count=1 -run ^(TestA)$ ./a", "has failed",
			[]string{"\n--- ./a\n    a_test.go:1: late\nFAIL\t./a", "--- 1 packages have failed:\nFAIL\t./a\tTestA: a_test.go:1: late\nFAIL\t./a\t1.0s\n"}},
		"with a subtest":          {failed("TestA/b") + bad + failed("TestB") + ends, good, "-race ./a ./b; -race -count=1 -run ^(TestA|TestB)$ ./a", "", nil},
		"too many":                {strings.Repeat(bad, maxRetries+1) + ends, "", "-race ./a ./b", "11 tests have failed", []string{"--- 1 packages have failed:"}},
		"data race":               {strings.Replace(bad, "    a_test", "WARNING: DATA RACE", 1) + ends, "", "-race ./a ./b", "has failed", nil},
		"panic while a test runs": {bad + `{"Action":"output","Package":"./a","Test":"TestB","Output":"panic: of another test\n"}` + ends, "", "-race ./a ./b", "has failed", nil},
		"no test":                 {`{"Action":"output","Package":"./a","Output":"FAIL\t./a [build failed]\n"}{"Action":"fail","Package":"./a"}`, "", "-race ./a ./b", "has failed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			lines := func(s string) string { return strings.ReplaceAll(s, "}{", "}\n{") + "\n" }
			for file, text := range map[string]string{
				"go":    "#!/bin/sh\necho \"$*\" >>calls\nmv first now 2>/dev/null || mv second now\ncat now\n! grep -q '\"fail\"' now\n",
				"first": lines(c.first), "second": lines(c.second),
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			tiers["planted"] = func() ([]step, error) {
				return []step{{name: "packages", dir: dir, argv: []string{"go", "test", "-race", "./a", "./b"}, retries: true}}, nil
			}
			defer delete(tiers, "planted")
			var out strings.Builder
			err := run(t.Context(), &out, "planted")
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			got := strings.ReplaceAll(strings.TrimSpace(string(calls)), "\n", "; ")
			if got = strings.ReplaceAll(got, "test -json ", ""); got != c.calls {
				t.Errorf("called %s\nwant %s", got, c.calls)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error()+out.String(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			for _, want := range c.prints {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
		})
	}
}
