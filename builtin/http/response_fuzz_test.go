package httpprobe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// model returns the result of Probe, by net/http, for a response at whose end the connection is closed.
func model(p *plan, response []byte) probe.Result {
	reader := bufio.NewReader(bytes.NewReader(response))
	request := &http.Request{Method: p.method, URL: &p.ref}
	for {
		r, err := http.ReadResponse(reader, request)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return dial.Result(dial.Classify(context.Background(), dial.Transferring, err))
		case err != nil:
			return (&attempt{ctx: context.Background(), responded: true}).headFailed(err)
		case r.StatusCode/100 != 1 || r.StatusCode == http.StatusSwitchingProtocols:
			return p.judge(context.Background(), func() {}, r)
		}
	}
}

// For any prefix of a response, the steps return the same result as net/http, or need more of the response, or leave the attempt to
// Probe.
func FuzzResponsesAreParsedAsByNetHTTP(f *testing.F) {
	const head, chunked = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, response := range []string{
		"",
		head + "Content-Length: 2\r\n\r\nok",
		head + "Content-Length: 9\r\nDate: now\r\n\r\nok",
		head + "\r\nok",
		head + "\r\n" + strings.Repeat("ok", 6000),
		"HTTP/1.0 500 No\n\nok",
		"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
		chunked + "2\r\nok\r\n0\r\n\r\n",
		chunked + "1\r\no\r\n01\r\nk\r\n0\r\n\r\n",
		chunked + "A\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
		chunked + "1;a=b\r\no\r\n1 \r\nk\r\n0\r\n\r\n",
		chunked + "2800\r\n" + strings.Repeat("x", probe.MaxDetail) + "\r\n0\r\n\r\n",
		chunked + "2801\r\n" + strings.Repeat("x", probe.MaxDetail+1) + "!",
		head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
		head + "Content-Length:\t2 \r\n: x\r\n\r\nok",
		head + " A: b\r\n\r\n",
		head + "A: b\r\n c\r\nTrailer: D\r\n\r\n",
		"HTTP/1.1 200 \r\nA:\r\n\r\n",
	} {
		for way := range byte(8) {
			f.Add([]byte(response), way)
		}
	}
	f.Fuzz(func(t *testing.T, response []byte, way byte) {
		p := planOf(t, way)
		headOnly := p.method == http.MethodHead
		want := model(p, response)
		got, progress := p.decide(parseResponse(bytes.Clone(response), true, headOnly), true)
		if progress == nonblock.StepWait || progress == nonblock.StepDone && plain(got) != plain(want) {
			t.Fatalf("in steps %d %+v, by net/http %+v", progress, got, want)
		}
		for n := 0; n < len(response); n += 1 + len(response)/256 {
			got, progress := p.decide(parseResponse(bytes.Clone(response[:n]), false, headOnly), false)
			if progress == nonblock.StepDone && plain(got) != plain(want) {
				t.Fatalf("after %d bytes in steps %+v, by net/http %+v", n, got, want)
			}
		}
	})
}

// plain returns a result without the excerpt from the body, of which only a part may have arrived.
func plain(r probe.Result) probe.Result {
	if r.Reason == probe.ReasonHTTPStatus {
		r.Detail, _, _ = strings.Cut(r.Detail, "200-399")
	}
	return r
}

// planOf returns one of eight plans.
func planOf(t *testing.T, way byte) *plan {
	c := Config{Port: "80"}
	if way&1 != 0 {
		c.Method = http.MethodHead
	} else if way&4 != 0 {
		c.BodyContains, c.BodyRegex = "ok", "o+k"
	}
	if way&2 != 0 {
		c.Compatibility = probe.Kubelet
	}
	p, err := newPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
