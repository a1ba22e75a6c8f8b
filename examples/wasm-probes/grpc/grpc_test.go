package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

func TestGRPC(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("Etcd", func(t *testing.T) { etcd(t, way) })
		t.Run("TheDemoService", func(t *testing.T) { demo(t, way) })
		t.Run("Requests", func(t *testing.T) { asked(t, way) })
		t.Run("TLS", func(t *testing.T) { overTLS(t, way) })
		t.Run("InvalidAnswers", func(t *testing.T) { oddAnswers(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { wrongSettings(t, way) })
	})
}

// etcd probes a real server that is frozen, killed and restarted.
func etcd(t *testing.T, way lab.Way) {
	client, peer := gatewaytest.FreePort(t), gatewaytest.FreePort(t)
	at, between := "http://127.0.0.1:"+client, "http://127.0.0.1:"+peer
	server := lab.Start(t, &lab.Server{Name: "etcd", Dir: t.TempDir(), Args: []string{
		"--data-dir", "data", "--listen-client-urls", at, "--advertise-client-urls", at,
		"--listen-peer-urls", between, "--initial-advertise-peer-urls", between,
		"--initial-cluster", "default=" + between,
	}})
	server.Turns(t, way.Must(t, fmt.Sprintf(`{"port": %q}`, client)))
	lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, "service": "shop"}`, client)), guest.Failure, "grpc.service_unknown")
}

func demo(t *testing.T, way lab.Way) {
	port := gatewaytest.FreePort(t)
	server := lab.Demo(t, "-listen", "127.0.0.1:"+port, "-slow-start", "200ms")
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "service": "demo"}`, port))
	server.Turns(t, a)
	answer, err := http.Post("http://127.0.0.1:"+port+"/break", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	lab.Expect(t, a, guest.Failure, "grpc.not_serving")
}

// asked checks the call as received by the server.
func asked(t *testing.T, way lab.Way) {
	calls := make(chan *http.Request, 1)
	port := serveHealth(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(message))
		calls <- r
		health{state: serving}.ServeHTTP(w, r)
	}), true)
	long := strings.Repeat("shop.", 100)
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "service": %q, "authority": "shop.test", "metadata": {"x-key": "geheim", "id-bin": "AQ=="}}`, port, long))
	lab.Expect(t, a, guest.Success, "")
	r := <-calls
	body, _ := io.ReadAll(r.Body)
	for what, pair := range map[string][2]string{
		"method":       {r.Method, "POST"},
		"path":         {r.URL.Path, "/grpc.health.v1.Health/Check"},
		"authority":    {r.Host, "shop.test"},
		"content type": {r.Header.Get("Content-Type"), "application/grpc"},
		"te":           {r.Header.Get("Te"), "trailers"},
		"metadata":     {r.Header.Get("X-Key") + r.Header.Get("Id-Bin"), "geheimAQ=="},
		"message":      {string(body), "\x00\x00\x00\x01\xf7\x0a\xf4\x03" + long},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
	if left, err := time.ParseDuration(r.Header.Get("Grpc-Timeout") + "s"); err != nil || left <= 0 || left > lab.Timeout {
		t.Errorf("grpc-timeout: %q", r.Header.Get("Grpc-Timeout"))
	}
	lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q}`, port)), guest.Success, "")
	if r = <-calls; r.Host != "127.0.0.1:"+port || r.ContentLength == 0 {
		t.Errorf("by default: %s, %d bytes", r.Host, r.ContentLength)
	}
}

func overTLS(t *testing.T, way lab.Way) {
	certificate, authority := lab.Certificate(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	server := &http.Server{Handler: health{state: serving}, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-served })
	with := func(tls string) lab.Attempt { return way.Must(t, fmt.Sprintf(`{"port": %q, "tls": {%s}}`, port, tls)) }
	lab.Expect(t, with(fmt.Sprintf(`"ca_pem": %q`, authority)), guest.Success, "")
	lab.Expect(t, with(`"verify": false`), guest.Success, "")
	lab.Expect(t, with(""), guest.Failure, "tls.untrusted")
	lab.Expect(t, with(fmt.Sprintf(`"ca_pem": %q, "server_name": "shop.test"`, authority)), guest.Failure, "tls.name")
}

// hello is the first frame of a server: an empty SETTINGS frame.
const hello = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// frameOf returns a frame of the call's stream.
func frameOf(kind, flags byte, payload string) string {
	return string(appendFrame(nil, kind, flags, callStream, []byte(payload)))
}

// fields returns a header block, given pairs of names and values.
func fields(pairs ...string) string {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		b = appendField(b, pairs[i], pairs[i+1])
	}
	return string(b)
}

var (
	head    = fields(":status", "200", "content-type", "application/grpc+proto")
	body    = "\x00\x00\x00\x00\x02\x08\x01"
	trailer = fields("grpc-status", "0")
)

// answers has responses of a server and the expected results.
var answers = map[string]struct {
	says   string
	reason string // empty for success
	detail string // text in the detail
}{
	"a plain answer": {hello + frameOf(frameHeaders, 4, head) + frameOf(frameData, 0, body) + frameOf(frameHeaders, 5, trailer), "", "SERVING"},
	"an answer in pieces": {hello + frameOf(frameHeaders, 0, head[:3]) + frameOf(frameContinuation, 0, head[3:9]) + frameOf(frameContinuation, 4, head[9:]) +
		frameOf(frameData, 0, body[:1]) + frameOf(frameData, 0, "") + frameOf(frameData, 0, body[1:]) + frameOf(frameHeaders, 5, trailer), "", "SERVING"},
	"padding and priority": {hello + frameOf(frameHeaders, 4|8|0x20, "\x02\x00\x00\x00\x00\x00"+head+"\x00\x00") +
		frameOf(frameData, 8, "\x03"+body+"\x00\x00\x00") + frameOf(frameHeaders, 5, trailer), "", "SERVING"},
	"frames in between": {hello + string(appendFrame(nil, framePing, 0, 0, []byte("12345678"))) + frameOf(frameWindow, 0, "\x00\x00\x00\x01") + frameOf(0x42, 0xff, "grease") +
		string(appendFrame(nil, frameGoAway, 0, 0, []byte("\x00\x00\x00\x01\x00\x00\x00\x00"))) + // the call may still finish
		frameOf(frameHeaders, 4, head) + frameOf(frameData, 0, body) + frameOf(frameHeaders, 5, trailer), "", "SERVING"},
	"fields of a later version": {hello + frameOf(frameHeaders, 4, head) + frameOf(frameData, 0, "\x00\x00\x00\x00\x07\x12\x01x\x18\x05\x08\x01") +
		frameOf(frameHeaders, 5, trailer), "", "SERVING"},
	"a message that breaks off": {hello + frameOf(frameHeaders, 4, head) + frameOf(frameData, 0, "\x00\x00\x00\x00\x03\x08\x01\x18") +
		frameOf(frameHeaders, 5, trailer), "grpc.protocol", "not a health status"},
	"no state, which is the state 0": {hello + frameOf(frameHeaders, 4, head) + frameOf(frameData, 0, "\x00\x00\x00\x00\x00") + frameOf(frameHeaders, 5, trailer), "grpc.not_serving", "UNKNOWN"},
	"a state of a later version":     {hello + frameOf(frameHeaders, 4, head) + frameOf(frameData, 0, "\x00\x00\x00\x00\x02\x08\x07") + frameOf(frameHeaders, 5, trailer), "grpc.not_serving", "7"},
	"a compressed message":           {hello + frameOf(frameHeaders, 4, head) + frameOf(frameData, 0, "\x01\x00\x00\x00\x02\x08\x01") + frameOf(frameHeaders, 5, trailer), "grpc.protocol", "not a health status"},
	"no message":                     {hello + frameOf(frameHeaders, 4, head) + frameOf(frameHeaders, 5, trailer), "grpc.protocol", "not a health status"},
	"no trailers":                    {hello + frameOf(frameHeaders, 4, head) + frameOf(frameData, 1, body), "grpc.protocol", "no grpc-status"},
	"a message that was escaped": {hello + frameOf(frameHeaders, 5, fields(":status", "200", "content-type", "application/grpc", "grpc-status", "14", "grpc-message", "too%20busy%E2%80%A6")),
		"grpc.status", "status 14: too busy…"},
	"another status of HTTP":   {hello + frameOf(frameHeaders, 5, fields(":status", "503", "content-type", "text/html")), "grpc.http", "503"},
	"another type":             {hello + frameOf(frameHeaders, 5, fields(":status", "200", "content-type", "text/html", "grpc-status", "0")), "grpc.protocol", "text/html"},
	"nothing":                  {"", "tcp.closed", ""},
	"only settings":            {hello, "tcp.closed", ""},
	"half a frame":             {hello + frameOf(frameHeaders, 5, head)[:12], "tcp.closed", ""},
	"another protocol":         {"220 mail.test ESMTP\r\n", "grpc.protocol", "does not speak HTTP/2"},
	"HTTP/1":                   {"HTTP/1.1 400 Bad Request\r\n\r\n", "grpc.protocol", "HTTP/1"},
	"no settings first":        {frameOf(frameHeaders, 4, head), "grpc.protocol", "does not speak HTTP/2"},
	"a frame that is large":    {hello + "\x00\x40\x01\x00\x00\x00\x00\x00\x01", "grpc.protocol", "larger than 16 KiB"},
	"frames without end":       {hello + strings.Repeat(frameOf(frameWindow, 0, "\x00\x00\x00\x01"), 2*maxFrames), "grpc.protocol", "too many frames"},
	"headers without end":      {hello + frameOf(frameHeaders, 0, "") + strings.Repeat(frameOf(frameContinuation, 0, strings.Repeat("\x00", 1000)), 20), "grpc.protocol", "too many headers"},
	"a header bomb":            {hello + frameOf(frameHeaders, 5, "\x40\x01x\x7f\x81\x3e"+strings.Repeat("y", 8000)+strings.Repeat("\xbe", 100)), "grpc.", ""},
	"a message without end":    {hello + frameOf(frameHeaders, 4, head) + strings.Repeat(frameOf(frameData, 0, strings.Repeat("\x00", 500)), 20), "grpc.protocol", "longer"},
	"a block that is broken":   {hello + frameOf(frameHeaders, 5, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "grpc.protocol", ""},
	"a block left off":         {hello + frameOf(frameHeaders, 0, head) + frameOf(frameData, 1, body), "grpc.protocol", "not continued"},
	"a continuation of none":   {hello + frameOf(frameContinuation, 4, head), "grpc.protocol", "not continued"},
	"another stream":           {hello + string(appendFrame(nil, frameData, 0, 3, []byte(body))), "grpc.protocol", "stream 3"},
	"a push":                   {hello + frameOf(framePush, 4, "\x00\x00\x00\x02"), "grpc.protocol", "pushes"},
	"a reset":                  {hello + frameOf(frameReset, 0, "\x00\x00\x00\x07"), "grpc.protocol", "REFUSED_STREAM"},
	"a reset of a later code":  {hello + frameOf(frameReset, 0, "\x00\x00\x01\x07"), "grpc.protocol", "code 263"},
	"a reset without a code":   {hello + frameOf(frameReset, 0, "\x00"), "grpc.protocol", "no code"},
	"padding that is too long": {hello + frameOf(frameHeaders, 4|8, "\x7f"+head), "grpc.protocol", "padding"},
	"a server that goes away":  {hello + string(appendFrame(nil, frameGoAway, 0, 0, []byte("\x00\x00\x00\x00\x00\x00\x00\x0btoo many pings"))), "grpc.protocol", "ENHANCE_YOUR_CALM"},
}

func oddAnswers(t *testing.T, way lab.Way) {
	for name, test := range answers {
		port := lab.Serve(t, func(c net.Conn) {
			if _, err := io.ReadFull(c, make([]byte, len(preface))); err != nil {
				return
			}
			_, _ = io.WriteString(c, test.says)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		})
		want := guest.Failure
		if test.reason == "" {
			want = guest.Success
		}
		r := way.Must(t, fmt.Sprintf(`{"port": %q}`, port))(lab.Timeout)
		if r.Outcome != want || !strings.HasPrefix(r.Reason, test.reason) || !strings.Contains(r.Detail, test.detail) {
			t.Errorf("%s: %+v, want %v, %q and %q", name, r, want, test.reason, test.detail)
		}
	}
	mute := way.Must(t, fmt.Sprintf(`{"port": %q}`, lab.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })))
	lab.TimesOut(t, mute, 200*time.Millisecond, "tcp.timeout")
}

func wrongSettings(t *testing.T, way lab.Way) {
	for settings, field := range map[string]string{
		`{}`: "port",
		`{"port": "1", "service": "` + strings.Repeat("x", maxService+1) + `"}`: "service",
		`{"port": "1", "metadata": {"": "x"}}`:                                  "metadata",
		`{"port": "1", "metadata": {"X-Key": "x"}}`:                             "metadata",
		`{"port": "1", "metadata": {":path": "/"}}`:                             "metadata",
		`{"port": "1", "metadata": {"grpc-timeout": "1S"}}`:                     "metadata",
		`{"port": "1", "metadata": {"te": "x"}}`:                                "metadata",
		`{"port": "1", "metadata": {"x-key": "a\r\nb"}}`:                        "metadata",
		`{"port": "1", "servce": "x"}`:                                          "servce",
		`{"port": "1", "tls": {"verfy": false}}`:                                "tls.verfy",
	} {
		lab.Refused(t, way, settings, field)
	}
}

// Each fault has its own text, which contains no part of the value.
func TestWrongMetadataIsNamed(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"x-key", "geheim", ""},
		{"id-bin", "AQ==", ""},
		{"id-bin", "AQ", ""},
		{"", "geheim", "has a field without a name"},
		{"X-Key", "geheim", "write x-key"},
		{"x key", "geheim", `has the name "x key"`},
		{"te", "geheim", "must not have te"},
		{"x-key", "geheim\n", "line break at the end of x-key"},
		{"id-bin", "AQ==\n", "line break at the end of id-bin"},
		{"x-key", "ge\theim", "control character in x-key, as its byte 3"},
		{"x-key", "gehäim", "not ASCII, as its byte 4: encode it, and name it x-key-bin"},
		{"id-bin", "geheim!", "has no base64 in id-bin"},
	} {
		got := wrongField(c.name, c.value)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Contains(got, "geh") {
			t.Errorf("%s = %q: %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	lab.Conforms(t, lab.Build(t, "."), serveHealth(t, health{state: serving}, true), "{}")
}

// says is a connection on which a server sends a fixed text, regardless of its input.
type says struct {
	io.Reader
	io.Writer
}

// FuzzAnswer verifies that parsing ends, whatever a server sends.
func FuzzAnswer(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(a.says))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := call(says{bytes.NewReader(text), io.Discard}, requestHead(context.Background(), false, "a", nil), message(""))
		r := got.result()
		if err == nil && r.Outcome == guest.Unknown || len(got.message) > 5+maxMessage || len(r.Detail) > 2*maxHeaders {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	})
}
