package tier

import "testing"

func TestTheReasonOfASkippedTestIsFound(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestA\n    a_test.go:1: a log\n    a_test.go:2: needs root\n--- SKIP: TestA (0.00s)\n":          "needs root",
		"    testscript.go:584: WORK=$WORK\n        > [!starlark] skip 'it has not been built'\n--- SKIP: TestA\n": "it has not been built",
		"--- SKIP: TestA (0.00s)\n": "",
	} {
		if got := Reason(output); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
		}
	}
}
