package kubeimport

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/config"
)

// readBack returns the command and the variables of an exec block, as a
// configuration has them.
func readBack(t *testing.T, words []string, env map[string]string) execprobe.Config {
	t.Helper()
	var out hclText
	out.open("target", "t")
	out.open("probe", "readiness")
	out.comment("%s", strings.Join(words, " "))
	out.block("exec", []argument{{"command", list(words)}, {"env", object(quoted(env))}})
	out.close()
	out.close()
	var got execprobe.Config
	build := func(c execprobe.Config) (*execprobe.Handler, error) {
		got = c
		return execprobe.New(execprobe.Config{Command: []string{"true"}})
	}
	text := []byte(out.String())
	_, diags := config.Parse([]config.Source{{Name: "t.hcl", Bytes: text}}, config.Options{Handlers: map[string]config.Handler{"exec": config.Of(build)}})
	if err := diags.Err(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return got
}

var hostileTexts = []string{
	"", "plain", `"quoted" \ 'text'`, "${a}", "$${a}", "$$${a}", "%{if}", "%%{x}", "$", "$$", "%", "a${", "x%{", "${${%{",
	"\n", "a\nb\n", "a\n\nb\n", "\n\n\n", "  indented\n  script\n", "EOT\nEOT\n", "a\nEOT\n", "a\n EOT \n", "a\n${b}\n%{c}\n", "a\n$${b}\n\n",
	"tab\tand\rreturn\r\n", "\x00\x01\x1b[31m\x7f", "\u2028\u202e\ufeff", "Grüße, 世界 🌍", "\U000e0001", "*/ # //",
}

func TestEveryTextIsReadBackAsItWas(t *testing.T) {
	for _, s := range hostileTexts {
		want := []string{"sh", s, s}
		got := readBack(t, want, map[string]string{"A": s, "b-c": s, "for": s, "a b": s, "x" + s: "", "true": s})
		if !slices.Equal(got.Command, want) {
			t.Errorf("the words %q are read back as %q", want, got.Command)
		}
		if !maps.Equal(got.Env, map[string]string{"A": s, "b-c": s, "for": s, "a b": s, "x" + s: "", "true": s}) {
			t.Errorf("the variables with %q are read back as %q", s, got.Env)
		}
	}
}

func FuzzTextIsReadBack(f *testing.F) {
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
	var out hclText
	out.comment("%s\nand\x1b[31m more", strings.Repeat("word ", 40))
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "# ") || len(line) > commentWidth+1 || strings.Contains(line, "\x1b") {
			t.Errorf("a line is %q", line)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("there are %d lines in\n%s", n, out.String())
	}
}
