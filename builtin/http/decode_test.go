package httpprobe_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// compressed returns a text compressed by a writer.
func compressed(t testing.TB, text string, by func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := by(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gzipped(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
func zlibbed(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
func deflated(w io.Writer) io.WriteCloser {
	f, _ := flate.NewWriter(w, flate.BestCompression) // never returns an error: the level is valid
	return f
}

func TestACompressedBodyIsDecodedForWhatIsAssertedOfIt(t *testing.T) {
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	text := "<p>ready to serve</p>"
	long := text + hex.EncodeToString(random) // 2 MiB, and 1.1 MiB compressed
	empty := strings.Repeat("\x00\x00\x00\xff\xff", 1<<20)
	bomb := text + strings.Repeat("\x00", 16<<20)
	for name, c := range map[string]struct {
		coding, body string
		want         probe.Outcome
		detail       string
	}{
		"gzip":                        {"gzip", compressed(t, text, gzipped), probe.Success, ""},
		"its other name":              {"X-GZip", compressed(t, text, gzipped), probe.Success, ""},
		"two of its members":          {"gzip", compressed(t, "<p>ready to", gzipped) + compressed(t, " serve</p>", gzipped), probe.Success, ""},
		"deflate":                     {"deflate", compressed(t, text, zlibbed), probe.Success, ""},
		"deflate without its head":    {"deflate", compressed(t, text, deflated), probe.Success, ""},
		"identity":                    {"identity", text, probe.Success, ""},
		"without the text":            {"gzip", compressed(t, "out of order", gzipped), probe.Failure, "does not contain"},
		"a bomb":                      {"gzip", compressed(t, bomb, gzipped), probe.Success, ""},
		"a bomb without the text":     {"gzip", compressed(t, strings.Repeat("\x00", 8<<20), gzipped), probe.Unknown, "longer than 1048576 bytes"},
		"a long one":                  {"gzip", compressed(t, long, gzipped), probe.Success, ""},
		"blocks of nothing":           {"deflate", empty, probe.Unknown, "longer than the limit"},
		"brotli":                      {"br", "\x0b\x02\x80ready\x03", probe.Unknown, `compressed with "br", which is not supported`},
		"twice":                       {"gzip, gzip", "x", probe.Unknown, "which is not supported"},
		"not gzip":                    {"gzip", text, probe.Failure, "does not match its Content-Encoding"},
		"not deflate":                 {"deflate", text, probe.Failure, "does not match its Content-Encoding"},
		"gzip with a wrong checksum":  {"gzip", strings.Replace(compressed(t, text, gzipped), "\x15\x00\x00\x00", "\x16\x00\x00\x00", 1), probe.Failure, "checksum"},
		"gzip that breaks off":        {"gzip", compressed(t, text, gzipped)[:20], probe.Failure, "broke off"},
		"nothing, which has no codes": {"gzip", "", probe.Failure, "does not contain"},
	} {
		t.Run(name, func(t *testing.T) {
			target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", c.coding)
				_, _ = io.WriteString(w, c.body)
			})
			got := attempt(t, httpprobe.Config{Port: "web", BodyContains: "ready to serve"}, target, plenty)
			if got.Outcome != c.want || !strings.Contains(got.Detail, c.detail) || strings.Contains(got.Detail, "ready to serve</p>") {
				t.Errorf("got %+v, want %v and %q", got, c.want, c.detail)
			}
			if other := attempt(t, httpprobe.Config{Port: "web"}, target, plenty); other.Outcome != probe.Success { // no assertions
				t.Errorf("without an assertion: %+v", other)
			}
		})
	}
}

// An absent text must be absent from the decoded text, not from its compressed form.
func TestAnAbsentTextIsAbsentFromTheDecodedBody(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, compressed(t, `{"status": "error"}`, gzipped))
	})
	for _, c := range []httpprobe.Config{{BodyNotContains: "error"}, {BodyNotRegex: "err.r"}, {JSONEquals: map[string]string{"status": "ok"}}} {
		c.Port = "web"
		wantResult(t, attempt(t, c, target, plenty), probe.Failure, probe.ReasonHTTPAssert)
	}
}
