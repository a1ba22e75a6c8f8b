package document_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/probe"
)

func Example() {
	d := document.New()
	d.Comment("A worker, which a file shows to be alive.")
	target := d.Block("target", "worker")
	target.BlockOf("process", document.Argument{Name: "command", Value: []string{"./worker", "-v"}})
	target.Newline()
	probe := target.Block("probe", "liveness")
	probe.BlockOf("exec", document.Argument{Name: "command", Value: []string{"cat", "/tmp/healthy"}})
	probe.SetWithComment("period", "5s", "half the default")
	fmt.Printf("%s", d.Bytes())
	// Output:
	// # A worker, which a file shows to be alive.
	// target "worker" {
	//   process { command = ["./worker", "-v"] }
	//
	//   probe "liveness" {
	//     exec { command = ["cat", "/tmp/healthy"] }
	//     period = "5s" # half the default
	//   }
	// }
}

// readBack writes an exec block with a command and variables, and returns them as a
// configuration reads them.
func readBack(t *testing.T, words []string, env map[string]string) execprobe.Config {
	t.Helper()
	d := document.New()
	readiness := d.Block("target", "t").Block("probe", "readiness")
	readiness.Comment("%s", strings.Join(words, " "))
	readiness.BlockOf("exec", document.Argument{Name: "command", Value: words}, document.Argument{Name: "env", Value: env})
	var got execprobe.Config
	build := func(c execprobe.Config) (probe.Handler, error) {
		got = c
		return execprobe.New(execprobe.Config{Command: []string{"true"}})
	}
	source := config.Source{Name: "t.hcl", Bytes: d.Bytes()}
	_, diags := config.Parse([]config.Source{source}, config.Options{Handlers: map[string]config.Handler{"exec": config.Of(build)}})
	if err := diags.Err(); err != nil {
		t.Fatalf("%v in\n%s", err, source.Bytes)
	}
	if formatted, _ := document.Format(source); string(formatted) != string(source.Bytes) {
		t.Errorf("not in the canonical style:\n%s", source.Bytes)
	}
	return got
}

var hostileTexts = []string{
	"", "plain", `"quoted" \ 'text'`, "${a}", "$${a}", "$$${a}", "%{if}", "%%{x}", "$", "$$", "%", "a${", "x%{", "${${%{",
	"\n", "a\nb\n", "a\n\nb\n", "\n\n\n", "  indented\n  script\n", "EOT\nEOT\n", "a\nEOT\n", "a\n EOT \n", "a\n${b}\n%{c}\n", "a\n$${b}\n\n",
	"tab\tand\rreturn\r\n", "\x00\x01\x1b[31m\x7f", "\u2028\u202e\ufeff", "Grüße, 世界 🌍", "\U000e0001", "*/ # //",
}

func TestEveryTextIsReadBackUnchanged(t *testing.T) {
	for _, s := range hostileTexts {
		words, env := []string{"sh", s, s}, map[string]string{"A": s, "b-c": s, "for": s, "a b": s, "x" + s: "", "true": s}
		got := readBack(t, words, env)
		if !slices.Equal(got.Command, words) {
			t.Errorf("the words %q are read back as %q", words, got.Command)
		}
		if !maps.Equal(got.Env, env) {
			t.Errorf("the variables with %q are read back as %q", s, got.Env)
		}
	}
}

func FuzzTextIsReadBackUnchanged(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) || !isASCII(a+b) {
			t.Skip("HCL takes UTF-8 in the normal form NFC; manifests are UTF-8")
		}
		if got := readBack(t, []string{a, b}, map[string]string{"k" + a: b}); !slices.Equal(got.Command, []string{a, b}) || got.Env["k"+a] != b {
			t.Errorf("%q, %q are read back as %+q", a, b, got)
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

func TestLongCommentsAreBrokenBetweenWords(t *testing.T) {
	d := document.New()
	d.Comment("%s\nand\x1b[31m more", strings.Repeat("word ", 40))
	text := string(d.Bytes())
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "# ") || len(line) > 97 || strings.Contains(line, "\x1b") {
			t.Errorf("a line is %q", line)
		}
	}
	if n := strings.Count(text, "\n"); n != 3 {
		t.Errorf("there are %d lines in\n%s", n, text)
	}
}

func TestAnotherDocumentCanBeCommentedOut(t *testing.T) {
	unused := document.New()
	unused.Block("probe", "liveness").Set("command", []string{"sh", "-c", "a\nb\n"})
	d := document.New()
	d.CommentOut(unused)
	want := "# probe \"liveness\" {\n#   command = [\n#     \"sh\",\n#     \"-c\",\n#     <<EOT\n# a\n# b\n# EOT\n#   ]\n# }\n"
	if got := string(d.Bytes()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
