package httpprobe_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// inUTF16 encodes a text in UTF-16, little-endian.
func inUTF16(s string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(s)) {
		b.WriteByte(byte(unit))
		b.WriteByte(byte(unit >> 8))
	}
	return b.String()
}

// swapped swaps the byte order of a text in UTF-16.
func swapped(s string) string {
	b := []byte(s)
	for i := 0; i+1 < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	return string(b)
}

// Assertions apply to the decoded text of a body, whatever its charset.
func TestABodyIsJudgedInItsCharset(t *testing.T) {
	const says = `{"state": "ERROR: gestört – 😀"}`
	japanese := "\x83G\x83\x89\x81[ ERROR" // エラー ERROR in Shift_JIS
	type texts = map[string]string
	for name, c := range map[string]struct {
		contentType, body string
		config            httpprobe.Config
		want              probe.Outcome
		detail            string
	}{
		"UTF-16 by its mark":             {"text/html", "\xff\xfe" + inUTF16(says), httpprobe.Config{BodyNotContains: "ERROR"}, probe.Failure, "contains the text"},
		"UTF-16 by the other mark":       {"text/html", "\xfe\xff" + swapped(inUTF16(says)), httpprobe.Config{BodyNotRegex: "gest.rt"}, probe.Failure, "matches"},
		"UTF-16 as declared":             {"text/html; charset=utf-16", inUTF16(says), httpprobe.Config{BodyNotContains: "ERROR"}, probe.Failure, "contains the text"},
		"UTF-16LE":                       {`text/html;x=y; Charset="UTF-16LE"`, inUTF16(says), httpprobe.Config{BodyContains: "– 😀"}, probe.Success, ""},
		"UTF-16BE":                       {"text/html; charset = utf-16be ; x", swapped(inUTF16(says)), httpprobe.Config{BodyContains: "– 😀"}, probe.Success, ""},
		"a mark that contradicts":        {"text/html; charset=iso-8859-1", "\xff\xfe" + inUTF16(says), httpprobe.Config{BodyContains: "gestört"}, probe.Success, ""},
		"JSON in UTF-16":                 {"application/json", "\xff\xfe" + inUTF16(says), httpprobe.Config{JSONRegex: texts{"state": "gestört"}}, probe.Success, ""},
		"half a character":               {"text/html; charset=utf-16", inUTF16("ok") + "x", httpprobe.Config{BodyRegex: "^ok\ufffd$"}, probe.Success, ""},
		"a long body in UTF-16":          {"text/html; charset=utf-16", inUTF16(strings.Repeat("x", 511) + "😀ERROR"), httpprobe.Config{MaxBody: 1 << 10, BodyContains: "x\ufffd"}, probe.Unknown, "longer than 1024 bytes"},
		"ISO-8859-1":                     {"text/html; charset=iso-8859-1", "gest\xf6rt", httpprobe.Config{BodyNotContains: "gestört"}, probe.Failure, "contains the text"},
		"JSON in ISO-8859-1":             {"application/json; charset=latin1", "{\"state\": \"gest\xf6rt\"}", httpprobe.Config{JSONEquals: texts{"state": "gestört"}}, probe.Success, ""},
		"windows-1252":                   {"text/html; charset=windows-1252", "5 \x80 \x96 \xff\x81", httpprobe.Config{BodyContains: "5 € – ÿ\u0081"}, probe.Success, ""},
		"ISO-8859-1 that is UTF-8":       {"text/html; charset=ISO-8859-1", "gestört", httpprobe.Config{BodyContains: "gestört"}, probe.Success, ""},
		"another charset":                {"text/html; charset=Shift_JIS", japanese, httpprobe.Config{BodyNotContains: "エラー"}, probe.Unknown, `charset of the body is "shift_jis", in which body_not_contains cannot be checked`},
		"another charset by its classes": {"text/html; charset=Shift_JIS", japanese, httpprobe.Config{BodyNotRegex: `\p{Katakana}`}, probe.Unknown, "cannot be checked"},
		"another charset in JSON":        {"text/html; charset=koi8-r", `{"a": 1}`, httpprobe.Config{JSONEquals: texts{"a": "да"}}, probe.Unknown, "json_equals cannot be checked"},
		"ASCII in another charset":       {"text/html; charset=Shift_JIS", japanese, httpprobe.Config{BodyNotContains: "ERROR"}, probe.Failure, "contains the text"},
		"ASCII, and other characters":    {"text/html; charset=Shift_JIS", japanese, httpprobe.Config{BodyNotContains: "エラー", BodyContains: "x"}, probe.Failure, "does not contain"},
		"ASCII that is none":             {"text/html; charset=utf-32", "E\x00\x00\x00", httpprobe.Config{BodyNotContains: "E"}, probe.Unknown, "utf-32"},
		"UTF-8":                          {"text/html; charset=utf-8", "gestört", httpprobe.Config{BodyNotContains: "gestört"}, probe.Failure, "contains the text"},
	} {
		t.Run(name, func(t *testing.T) {
			target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				_, _ = io.WriteString(w, c.body)
			})
			c.config.Port = "web"
			if got := attempt(t, c.config, target, plenty); got.Outcome != c.want || !strings.Contains(got.Detail, c.detail) {
				t.Errorf("got %+v, want %v and %q", got, c.want, c.detail)
			}
		})
	}
}
