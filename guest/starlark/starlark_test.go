//go:build !wasip1

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

// settingsOf returns the settings of a handler block with a script, as JSON.
func settingsOf(t *testing.T, port, source string, args map[string]string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"port": port, "args": args,
		"script": map[string]any{"source": source, "file": "test.star", "max_steps": 10000},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// attemptAt makes an attempt at a local port.
func attemptAt(t *testing.T, port, source string, args map[string]string) guest.Result {
	t.Helper()
	trial, err := guest.NewTrial(attempt, "127.0.0.1", settingsOf(t, port, source, args))
	if err != nil {
		t.Fatal(err)
	}
	defer trial.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return trial.Attempt(ctx)
}

// compileError returns the error of an invalid script.
func compileError(t *testing.T, source string) string {
	t.Helper()
	_, err := guest.NewTrial(attempt, "127.0.0.1", settingsOf(t, "1", source, nil))
	var field *guest.FieldError
	if !errors.As(err, &field) || field.Field != "script.source" {
		t.Fatalf("the error is %v, must be one of script.source", err)
	}
	return field.Problem
}

// serveLines starts a server that replies to each line with the result of answer, and returns the
// port.
func serveLines(t *testing.T, answer func(line string) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprint(c, answer(lines.Text()))
				}
			}()
		}
	}()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

const greeting = `
def attempt(t):
    c = t.dial("tcp", t.port())
    c.write(t.args.get("say", "PING") + "\n")
    answer = c.read_line(max = 100)
    if answer != "PING":
        return t.fail("line.answer", "the answer is %r" % answer)
    return t.succeed(answer)
`

func TestAScriptProbesALineServer(t *testing.T) {
	port := serveLines(t, func(line string) string { return line + "\r\n" })
	if r := attemptAt(t, port, greeting, nil); r != guest.Succeed("PING") {
		t.Errorf("the result is %+v", r)
	}
	if r := attemptAt(t, port, greeting, map[string]string{"say": "HELO"}); r != guest.Fail("line.answer", `the answer is "HELO"`) {
		t.Errorf("the result with another word is %+v", r)
	}
}

func TestAnErrorOfTheConnectionIsTheResult(t *testing.T) {
	ends := serveLines(t, func(string) string { return strings.Repeat("x", 101) })
	for port, reason := range map[string]string{closedPort(t): "tcp.refused", ends: "script.length"} {
		if r := attemptAt(t, port, greeting, nil); r.Outcome != guest.Failure || r.Reason != reason {
			t.Errorf("the result is %+v, must be a failure with %s", r, reason)
		}
	}
	datagram := "def attempt(t):\n    c = t.dial('udp', t.port())\n    c.write('x')\n    c.read()\n"
	if r := attemptAt(t, closedPort(t), datagram, nil); r.Outcome != guest.Failure || r.Reason != "udp.refused" {
		t.Errorf("the result over UDP is %+v", r)
	}
	caught := `
def attempt(t):
    c, err = t.catch(t.dial, "tcp", t.port())
    if err:
        return t.warn("line.down", err[0])
    return t.succeed("up")
`
	if r := attemptAt(t, closedPort(t), caught, nil); r != guest.Warn("line.down", "tcp.refused") {
		t.Errorf("the result of the script that catches it is %+v", r)
	}
}

func TestAnErrorOfTheScriptIsUnknownWithItsPosition(t *testing.T) {
	for source, want := range map[string]string{
		"def attempt(t):\n    return [][3]\n":                                           "test.star:2:14: index 3 out of range: empty list",
		"def f(x):\n    return x.y\ndef attempt(t):\n    return f(1)\n":                 "test.star:2:13: int has no .y field or method",
		"def attempt(t):\n    return t.port('web')\n":                                   `test.star:2:18: target has no port "web": it names no ports`,
		"def attempt(t):\n    return 1\n":                                               "test.star:1:1: attempt returned int: return t.succeed(…), t.warn(…) or t.fail(…)",
		"def attempt(t):\n    for i in range(99999):\n        t.args.get('x')\n":        "test.star:3:19: script took more than 10000 steps, the limit max_steps",
		"def attempt(t):\n    return t.fail('no reason')\n":                             `test.star:2:18: fail: reason "no reason" is not valid: write a layer and a cause, such as "line.answer"`,
		"seen = []\ndef attempt(t):\n    seen.append(t.name)\n    return t.succeed()\n": "test.star:3:16: append: cannot append to frozen list",
	} {
		r := attemptAt(t, "1", source, nil)
		if r.Outcome != guest.Unknown || r.Reason != "script.error" || r.Detail != want {
			t.Errorf("%s: the result is %+v, want %s", source, r, want)
		}
	}
}

func TestAScriptThatCannotBeUsedIsRejectedWithItsPosition(t *testing.T) {
	for source, want := range map[string]string{
		"def attempt(t)\n    pass\n":               "test.star:1:15: got newline, want ':'",
		"def attempt(t):\n    return x\n":          "test.star:2:12: undefined: x",
		"x = 1\n":                                  "test.star:1:1: script has no function attempt: add def attempt(t): …",
		"def attempt():\n    pass\n":               "test.star:1:1: attempt must have one parameter: def attempt(t): …",
		"x = 1 // 0\ndef attempt(t):\n    pass\n":  "test.star:1:7: floored division by zero",
		"http.get('/')\ndef attempt(t):\n  pass\n": "test.star:1:9: get: requests can be made in attempt only",
		"def f():\n  f()\nf()\n":                   "test.star:2:3: function f called recursively",
		"while True:\n  len('')\n":                 "test.star:1:1: script took more than 10000 steps, the limit max_steps",
	} {
		if got := compileError(t, source); got != want {
			t.Errorf("%s: the error is\n%s, want\n%s", source, got, want)
		}
	}
}

// Mistakes in a branch that no attempt has reached are found when the configuration is checked.
func TestMistakesAreFoundWithoutAnAttempt(t *testing.T) {
	for body, want := range map[string]string{
		"t.sucess()":                                                         "3:5: t has no sucess: it has address, args,",
		"if False:\n    return t.succed('x')":                                "4:14: t has no succed:",
		"http.head('/')":                                                     "3:8: http has no head: it has get, post, request",
		"json.parse('1')":                                                    "3:8: json has no parse: it has decode,",
		"regexp.serch('a', 'b')":                                             "3:10: regexp has no serch:",
		"c = t.dial('tcp', 80)\n  c.readline()":                              "4:5: c has no readline:",
		"t.dial('tcp', 80).readline()":                                       "3:21: the connection has no readline:",
		"http.get('/', prot = 1)":                                            "3:17: http.get takes no argument prot: it takes url, port, headers, body, tls, server_name,",
		"t.fail('line.answer', text = 'x')":                                  "3:25: t.fail takes no argument text: it takes reason, detail",
		"c = t.dial('tcp', 80)\n  c.read_line(maxi = 3)":                     "4:15: c.read_line takes no argument maxi:",
		"t.dial(network = 'tcp', adress = 80)":                               "3:27: t.dial takes no argument adress: it takes ",
		"while True:\n    pass":                                              "3:3: endless loop:",
		"while 1:\n    t = 3":                                                "3:3: endless loop:",
		"t = 'x'\n  t.upper()":                                               "",
		"http = {}\n  http.clear()":                                          "",
		"c = t.dial('tcp', 80)\n  c = 'x'\n  c.upper()":                      "",
		"while True:\n    if t.remaining() == 0: break":                      "",
		"t.catch(http.get, '/', port = 80)":                                  "",
		"t.dial('tcp', 80, server_name = 'x').read_line()":                   "",
		"http.request('PUT', '/', headers = {}, tls = True, verify = False)": "",
	} {
		_, err := compile(&script{Source: "\ndef attempt(t):\n  " + body + "\n  return t.succeed()\n", File: "s", Line: 1, Column: 1, MaxSteps: 1000})
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), "s:"+want)) {
			t.Errorf("%s: the error is %v, want %s", body, err, want)
		}
	}
}

func TestAttemptsWithoutAResultAreWarnedOf(t *testing.T) {
	for body, want := range map[string]int{
		"return t.succeed()":                                                    0,
		"if t.name:\n    return t.succeed()":                                    3,
		"if t.name:\n    return t.succeed()\n  else:\n    t.fail('a.b')":        3,
		"if t.name:\n    return t.succeed()\n  else:\n    return t.fail('a.b')": 0,
		"t.succeed()": 3,
		"for i in range(3):\n    if i:\n      return t.warn()": 0,
		"x = 1\n  fail('x')": 0,
	} {
		f, err := dialect.Parse("s", "\ndef attempt(t):\n  "+body+"\n", 0)
		if err != nil {
			t.Fatal(err)
		}
		if at, isOpen := openEnd(f); isOpen != (want != 0) || isOpen && int(at.Line) != want {
			t.Errorf("%s: it may end at line %d, %v", body, at.Line, isOpen)
		}
	}
}

func TestPositionsAreThoseOfTheFileThatHasTheScript(t *testing.T) {
	_, err := compile(&script{Source: "\ndef attempt(t):\n    return x\n", File: "config.hcl", Line: 11, Column: 5, MaxSteps: 1})
	if err == nil || err.Error() != "config.hcl:13:16: undefined: x" {
		t.Errorf("the error is %v", err)
	}
}

func serveHTTP(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

func TestAScriptProbesAWebServer(t *testing.T) {
	port := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Key"))
		switch r.URL.Path {
		case "/chunked":
			w.Write([]byte("\ufeff" + `{"queue":`))
			w.(http.Flusher).Flush()
			w.Write([]byte(` 7}`))
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		default:
			fmt.Fprint(w, "plain")
		}
	})
	source := `
def attempt(t):
    r = http.get("/chunked", headers = {"x-key": "k"})
    if r.status != 200 or r.json()["queue"] != 7 or r.headers["x-path"] != "GET /chunked k":
        return t.fail("web.chunked", str(r))
    r = http.post("/plain", body = "b")
    if r.body != "plain" or not regexp.match("^POST ", r.headers["x-path"]):
        return t.fail("web.plain", str(r))
    r = http.request("HEAD", "http://127.0.0.1:%s/plain" % t.port())
    if r.status != 200 or r.body:
        return t.fail("web.head", str(r))
    r = http.get("/empty", port = int(t.args["port"]))
    return t.succeed(str(r.status))
`
	if r := attemptAt(t, port, source, map[string]string{"port": port}); r != guest.Succeed("204") {
		t.Errorf("the result is %+v", r)
	}
}

func TestAResponseThatIsNotHTTPIsAFailure(t *testing.T) {
	for answer, reason := range map[string]string{
		"220 mail ESMTP\r\n":                                                       "http.protocol",
		"HTTP/1.1 200 OK\r\nno colon\r\n":                                          "http.protocol",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.":                                     "http.protocol",
		"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort":                       "tcp.closed",
		"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n":                       "http.body",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n":                            "http.body",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n": "http.body",
		"HTTP/1.1 200 OK\r\n\r\nnot JSON":                                          "http.body",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			bufio.NewReader(c).ReadString('\n')
			c.Write([]byte(answer))
			c.(*net.TCPConn).CloseWrite()
		}()
		source := "def attempt(t):\n    return t.succeed(str(http.get('/').json()))\n"
		r := attemptAt(t, fmt.Sprint(l.Addr().(*net.TCPAddr).Port), source, nil)
		l.Close()
		want := reason
		if strings.HasSuffix(answer, "HTTP/1.") {
			want = "tcp.closed"
		}
		if r.Outcome != guest.Failure || r.Reason != want {
			t.Errorf("%q: the result is %+v, want %s", answer, r, want)
		}
	}
}

func TestACompressedBodyIsNotTakenForText(t *testing.T) {
	port := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", r.URL.Path[1:])
		if r.Method != "HEAD" {
			fmt.Fprint(w, `{"ok": 1}`)
		}
	})
	for call, want := range map[string]string{
		`http.get("/gzip").body`: `content encoding "gzip"`, `http.get("/br").json()`: `content encoding "br"`, `getattr(http.post("/GZIP"), "body")`: `content encoding "GZIP"`,
		`http.get("/gzip").status`: "", `http.get("/gzip").headers`: "", `http.get("/identity").body`: "", `http.request("HEAD", "/gzip").body`: "",
		`http.get("/gzip") == http.get("/gzip")`: "",
	} {
		r := attemptAt(t, port, "def attempt(t):\n    return t.succeed(str("+call+"))\n", nil)
		if isUnknown := r.Outcome == guest.Unknown && r.Reason == "script.error"; isUnknown != (want != "") || !strings.Contains(r.Detail, want) {
			t.Errorf("%s: the result is %+v", call, r)
		}
	}
}

func TestAScriptCannotSmuggleARequest(t *testing.T) {
	for _, call := range []string{
		`http.get("/ HTTP/1.1\r\nX: y")`, `http.get("/", headers = {"a": "b\r\nc: d"})`, `http.get("/", headers = {"a": "b\rc: d"})`, `http.request("GET /x", "/")`,
	} {
		r := attemptAt(t, "1", "def attempt(t):\n    "+call+"\n", nil)
		if r.Outcome != guest.Unknown || !strings.Contains(r.Detail, "must not contain white space or line ends") {
			t.Errorf("%s: the result is %+v", call, r)
		}
	}
}

func TestAScriptKeepsStateAndConnections(t *testing.T) {
	port := serveLines(t, func(line string) string { return line + "\n" })
	source := `
def attempt(t):
    n = int(t.state() or "0") + 1
    t.set_state(str(n))
    c = t.held("line")
    new = c == None
    if new:
        c = t.dial("tcp", t.port())
    c.write("n %d\n" % n)
    answer = c.read_line()
    t.hold("line", c)
    t.gauge("n", n)
    return t.succeed("%s %s" % (answer, new))
`
	trial, err := guest.NewTrial(attempt, "127.0.0.1", settingsOf(t, port, source, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer trial.Close()
	for _, want := range []string{"n 1 True", "n 2 False", "n 3 False"} {
		if r := trial.Attempt(t.Context()); r != guest.Succeed(want) {
			t.Errorf("the result is %+v, want %s", r, want)
		}
	}
	if n := trial.Metric("n"); n != 3 {
		t.Errorf("the metric is %v", n)
	}
}

func TestRegularExpressions(t *testing.T) {
	source := `
def attempt(t):
    found = regexp.search(r"(\w+)=(\d+)", "a b=12 c=3")
    all = regexp.find_all(r"\d+", "a b=12 c=3")
    none = regexp.search("x", "y")
    return t.succeed("%s %s %s %s" % (found, all, none, regexp.replace(r"(\d)", "1-2", "<$1>")))
`
	if r := attemptAt(t, "1", source, nil); r != guest.Succeed(`("b=12", "b", "12") ["12", "3"] None <1>-<2>`) {
		t.Errorf("the result is %+v", r)
	}
	r := attemptAt(t, "1", "def attempt(t):\n    regexp.match('(', '')\n", nil)
	if r.Reason != "script.error" || !strings.HasPrefix(r.Detail, "test.star:2:17: match: error parsing regexp") {
		t.Errorf("the result of an invalid pattern is %+v", r)
	}
}

// An attempt runs the script that was compiled when the configuration was checked. Errors have the
// same positions, and other settings are not kept.
func TestACompiledScriptIsKeptForAttempts(t *testing.T) {
	const source = "limit = 3\ndef attempt(t):\n    return t.succeed('%d' % (limit if t.port() == 0 else t.name.none))\n"
	block := script{Source: source, File: "a.hcl", Line: 10, Column: 5, MaxSteps: 1000}
	checked := settings{Port: "0", Args: map[string]string{"password": "secret"}, Script: &block}
	if err := checked.Prepare(); err != nil {
		t.Fatal(err)
	}
	kept := checked.Keep()
	if bytes.Contains(kept, []byte("secret")) {
		t.Error("an argument is kept")
	}
	for port, want := range map[string]guest.Result{
		"0": guest.Succeed("3"),
		"1": {Outcome: guest.Unknown, Reason: "script.error", Detail: "a.hcl:12:68: string has no .none field or method"},
	} {
		again := block
		again.program = nil
		s := settings{Port: port, Script: &again}
		if err := s.Restore(kept); err != nil {
			t.Fatal(err)
		}
		if got := attempt(t.Context(), guest.Target[settings]{Settings: &s}); got != want {
			t.Errorf("port %s: got %+v, want %+v", port, got, want)
		}
	}
}
