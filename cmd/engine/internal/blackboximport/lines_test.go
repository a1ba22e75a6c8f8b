package blackboximport_test

import (
	"bufio"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/cmd/engine/internal/blackboximport"
)

// matchesLine reports whether an expression matches a line of a stream, like blackbox_exporter.
func matchesLine(re *regexp.Regexp, stream string) bool {
	for lines := bufio.NewScanner(strings.NewReader(stream)); lines.Scan(); {
		if re.MatchString(lines.Text()) {
			return true
		}
	}
	return false
}

// matchesSoFar reports whether an expression matches a stream at any point while it arrives, like the handler tcp.
func matchesSoFar(re *regexp.Regexp, stream string) bool {
	for i := 1; i <= len(stream); i++ {
		if re.MatchString(stream[:i]) {
			return true
		}
	}
	return false
}

func TestAnExpressionOfLinesMatchesInAStream(t *testing.T) {
	for text, want := range map[string]string{
		"^220":            "(?m)^220",
		"^SSH-2.0-":       "(?m)^SSH-2.0-",
		"^220 .":          `(?m:^220 [^\n\r])`,
		"^220.*ESMTP$":    `(?m)^220.*ESMTP\r?\n`,
		`^220 \S+ ESMTP$`: `(?m)^220 \S+ ESMTP\r?\n`,
		"^[^5]+$":         `(?m:^[^\n\r5]+\r?\n)`,
		`^OK\s+READY`:     `(?m:^OK[\t\f ]+READY)`,
		"(?s)^OK.*READY$": `(?m-s:^OK.*READY\r?\n)`,
		"foo$|bar":        `(?m:(?:foo\r?$|bar)[^\n]*\n)`,
		`load [0-9]\b`:    `load [0-9]\b[^\n]*\n`,
	} {
		if got, err := blackboximport.OfLine(text); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	if got, err := blackboximport.OfLine("(?!a)"); err == nil {
		t.Errorf("got %s for an expression that is none", got)
	}
}

func TestAnExpressionOfLinesMatchesWhatBlackboxExporterMatches(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "1", "^", "$", `\A`, `\z`, `\b`, ".", ".*", ".+", `\s`, `\W`, "[^a]", "[^b]*", "(?s)", "(?s:.)", "(?m)", "|", `\r?`, "\n", "(a|b$)", "(^a|1)", "a?", "(?i)", `\D+?`, `(?:1$)?`}
	pieces := []string{"a", "b", "1", " ", "A", "\r\n", "\n"}
	const expressions, streams = 100, 10
	empty := regexp.MustCompile(`[$z].*[\^Ab]`) // such as $^ and $\b, which can match at the end of a line but never in a stream
	for range expressions {
		text := ""
		for range 1 + random.IntN(5) {
			text += parts[random.IntN(len(parts))]
		}
		of, err := regexp.Compile(text)
		if err != nil {
			continue
		}
		rewritten, err := blackboximport.OfLine(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		in, err := regexp.Compile(rewritten)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, rewritten, err)
		}
		for range streams {
			stream := ""
			for range random.IntN(6) {
				stream += pieces[random.IntN(len(pieces))]
			}
			if want, got := matchesLine(of, stream+"\r\n"), matchesSoFar(in, stream+"\r\n"); got && !want || want && !got && !empty.MatchString(text) {
				t.Fatalf("%q became %q: in %q it matches: %v, want %v", text, rewritten, stream+"\r\n", got, want)
			}
			broken := strings.ReplaceAll(stream, " ", "\r") // and with a line end that has not arrived
			if !matchesLine(of, broken) && matchesSoFar(in, broken) {
				t.Fatalf("%q became %q: it matches in %q, where it does not by lines", text, rewritten, broken)
			}
		}
	}
}
