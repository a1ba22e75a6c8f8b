package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

type settingsOf = map[string]any

// with returns settings as JSON.
func with(port string, more settingsOf) string {
	all := settingsOf{"port": port}
	for name, value := range more {
		all[name] = value
	}
	text, _ := json.Marshal(all) // never fails for strings and bools
	return string(text)
}

func TestThePlugin(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("ItAsksAndListens", func(t *testing.T) { talks(t, way) })
		t.Run("ItMakesTheHandshakeOverTLS", func(t *testing.T) { overTLS(t, way) })
		t.Run("ServerRestarts", func(t *testing.T) { restarts(t, way) })
		t.Run("ItTakesNoOtherHandshake", func(t *testing.T) { handshakes(t, way) })
		t.Run("ItTakesNoWrongFrames", func(t *testing.T) { frames(t, way) })
		t.Run("ItTellsASilentServerFromOneThatTalks", func(t *testing.T) { silence(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { checksSettings(t, way) })
	})
}

func talks(t *testing.T, way lab.Way) {
	port := start(t, nil)
	private := settingsOf{"path": "/private?a=b", "host": "lab.test", "headers": settingsOf{"Authorization": "Bearer x"}}
	cases := []struct {
		name    string
		more    settingsOf
		outcome guest.Outcome
		reason  string
		detail  string
	}{
		{"a ping", nil, guest.Success, "", "the ping"},
		{"only the handshake", settingsOf{"ping": false}, guest.Success, "", "the handshake was answered"},
		{"a message", settingsOf{"send": "hello", "expect": "hell"}, guest.Success, "", `"hello"`},
		{"a long message", settingsOf{"send": strings.Repeat("y", maxSend-1) + "z", "expect": "yz"}, guest.Success, "", ""},
		{"a message of 200 bytes", settingsOf{"send": strings.Repeat("y", 199) + "z", "expect": "yz"}, guest.Success, "", ""},
		{"a message among others", settingsOf{"path": "/feed", "expect": "two"}, guest.Success, "", `said "two"`},
		{"a message in parts", settingsOf{"path": "/parts", "expect": "998 999"}, guest.Success, "", ""},
		{"a message behind a long one", settingsOf{"path": "/large", "expect": "before"}, guest.Success, "", ""},
		{"a server that pings, too", settingsOf{"path": "/pings", "expect": "alive"}, guest.Success, "", ""},
		{"a subprotocol", settingsOf{"subprotocol": "chat.v1"}, guest.Success, "", ""},
		{"another subprotocol", settingsOf{"subprotocol": "chat.v2"}, guest.Failure, "websocket.subprotocol", `"", want "chat.v2"`},
		{"headers, host and query", private, guest.Success, "", ""},
		{"no headers", settingsOf{"path": "/private"}, guest.Failure, "websocket.status", "401 Unauthorized"},
		{"no such path", settingsOf{"path": "/nowhere"}, guest.Failure, "websocket.status", "404 Not Found"},
		{"a server that closes", settingsOf{"path": "/full"}, guest.Failure, "websocket.closed", `1013 "no room"`},
	}
	for _, c := range cases {
		got := lab.Expect(t, way.Must(t, with(port, c.more)), c.outcome, c.reason)
		if !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: the detail is %q, want %q", c.name, got.Detail, c.detail)
		}
	}
}

func overTLS(t *testing.T, way lab.Way) {
	certificate, authority := lab.Certificate(t)
	port := start(t, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
	lab.Expect(t, way.Must(t, with(port, settingsOf{"tls": settingsOf{"ca_pem": authority}})), guest.Success, "")
	lab.Expect(t, way.Must(t, with(port, settingsOf{"tls": settingsOf{}})), guest.Failure, "tls.untrusted")
}

func restarts(t *testing.T, way lab.Way) {
	port := gatewaytest.FreePort(t)
	server := lab.Start(t, &lab.Server{Name: os.Args[0], Args: []string{"serve", port}})
	server.Turns(t, way.Must(t, with(port, settingsOf{"send": "hello", "expect": "hello"})))
}

func handshakes(t *testing.T, way lab.Way) {
	const first = "HTTP/1.1 101 Switching Protocols\r\n"
	upgrade := "Upgrade: websocket\r\nConnection: Upgrade\r\n"
	accept := func(key string) string { return "Sec-WebSocket-Accept: " + acceptOf(key) + "\r\n" }
	cases := []struct {
		name   string
		answer func(key string) string
		reason string
	}{
		{"not HTTP", func(string) string { return "SSH-2.0-OpenSSH_9.2\r\n" }, "websocket.handshake"},
		{"an ordinary answer", func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" }, "websocket.status"},
		{"no upgrade", func(key string) string { return first + "Connection: Upgrade\r\n" + accept(key) + "\r\n" }, "websocket.handshake"},
		{"another upgrade", func(key string) string {
			return first + "Upgrade: h2c\r\nConnection: Upgrade\r\n" + accept(key) + "\r\n"
		}, "websocket.handshake"},
		{"no connection", func(key string) string { return first + "Upgrade: websocket\r\n" + accept(key) + "\r\n" }, "websocket.handshake"},
		{"no key", func(string) string { return first + upgrade + "\r\n" }, "websocket.handshake"},
		{"the key as it was", func(key string) string { return first + upgrade + "Sec-WebSocket-Accept: " + key + "\r\n\r\n" }, "websocket.handshake"},
		{"an extension", func(key string) string {
			return first + upgrade + accept(key) + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
		}, "websocket.handshake"},
		{"a subprotocol", func(key string) string {
			return first + upgrade + accept(key) + "Sec-WebSocket-Protocol: chat\r\n\r\n"
		}, "websocket.subprotocol"},
		{"a long line", func(string) string { return first + "X: " + strings.Repeat("x", maxHead) + "\r\n\r\n" }, "websocket.handshake"},
		{"a line without a name", func(string) string { return first + upgrade + "one\r\n\r\n" }, "websocket.handshake"},
		{"many lines", func(string) string { return first + strings.Repeat("X: "+strings.Repeat("x", 100)+"\r\n", 1000) }, "websocket.handshake"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			lab.Expect(t, way.Must(t, with(answering(t, c.answer), nil)), guest.Failure, c.reason)
		})
	}
}

func frames(t *testing.T, way lab.Way) {
	flood := strings.Repeat("\x82\x7e\xff\xff"+strings.Repeat("x", 0xffff), maxRead/0xffff)
	drops := strings.Repeat("\x82\x00", maxRead/perFrame+1)
	cases := []struct{ name, bytes, reason, detail string }{
		{"reserved bits", "\xc1\x00", "websocket.protocol", "reserved"},
		{"a mask", "\x81\x81\x00\x00\x00\x00x", "websocket.protocol", "masked"},
		{"an unknown kind", "\x83\x00", "websocket.protocol", "unknown kind 3"},
		{"an unknown kind of control", "\x8b\x00", "websocket.protocol", "unknown kind 11"},
		{"a ping in parts", "\x09\x00", "websocket.protocol", "in parts"},
		{"a long ping", "\x89\x7e\x00\x80" + strings.Repeat("x", 128), "websocket.protocol", "longer"},
		{"a part of nothing", "\x80\x00", "websocket.protocol", "mixed"},
		{"a message in a message", "\x01\x01a\x81\x01b", "websocket.protocol", "mixed"},
		{"a length that is too long for itself", "\x82\x7e\x00\x05hello", "websocket.protocol", "0x5"},
		{"a length that is much too long for itself", "\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x05hello", "websocket.protocol", "0x5"},
		{"a negative length", "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "websocket.protocol", "0xffffffffffffffff"},
		{"a huge length", "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", "websocket.pong", "came"},
		{"a flood", flood, "websocket.pong", "came"},
		{"a flood of nothing", drops, "websocket.pong", "came"},
		{"a close without a word", "\x88\x00", "websocket.closed", "closes"},
		{"a close with half a code", "\x88\x01\x03", "websocket.closed", "closes"},
		{"another's pong", "\x8a\x01x\x88\x02\x03\xe8", "websocket.closed", "1000"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := lab.Expect(t, way.Must(t, with(raw(t, c.bytes), nil)), guest.Failure, c.reason)
			if !strings.Contains(got.Detail, c.detail) {
				t.Errorf("the detail is %q, want %q", got.Detail, c.detail)
			}
		})
	}
}

func silence(t *testing.T, way lab.Way) {
	cases := []struct {
		name, bytes string
		more        settingsOf
		reason      string
	}{
		{"no word", "", nil, "tcp.timeout"},
		{"no answer", "", settingsOf{"ping": false, "expect": "up"}, "tcp.timeout"},
		{"another word", "\x81\x04down", settingsOf{"ping": false, "expect": "up"}, "websocket.expect"},
		{"a word and no pong", "\x81\x02up", settingsOf{"expect": "up"}, "websocket.pong"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			lab.TimesOut(t, way.Must(t, with(raw(t, c.bytes), c.more)), 300*time.Millisecond, c.reason)
		})
	}
}

func checksSettings(t *testing.T, way lab.Way) {
	cases := []struct {
		field string
		more  settingsOf
	}{
		{"path", settingsOf{"path": ""}},
		{"path", settingsOf{"path": "chat"}},
		{"path", settingsOf{"path": "/a b"}},
		{"path", settingsOf{"path": "/\r\nX: y"}},
		{"path", settingsOf{"path": "/" + strings.Repeat("x", maxPath)}},
		{"host", settingsOf{"host": "a\r\nX: y"}},
		{"subprotocol", settingsOf{"subprotocol": "a, b"}},
		{"send", settingsOf{"send": strings.Repeat("x", maxSend+1)}},
		{"headers", settingsOf{"headers": settingsOf{"X y": "z"}}},
		{"headers", settingsOf{"headers": settingsOf{"": "z"}}},
		{"headers", settingsOf{"headers": settingsOf{"X": "y\r\nZ: 1"}}},
		{"headers", settingsOf{"headers": settingsOf{"HOST": "x"}}},
		{"headers", settingsOf{"headers": settingsOf{"Sec-WebSocket-Key": "x"}}},
		{"headers", settingsOf{"headers": settingsOf{"connection": "close"}}},
	}
	for _, c := range cases {
		lab.Refused(t, way, with("80", c.more), c.field)
	}
	lab.Refused(t, way, `{}`, "port")
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	tier.CI(t)
	lab.Conforms(t, lab.Build(t, "."), start(t, nil), `{"send": "hello", "expect": "hello"}`)
}

func FuzzTheServersBytes(f *testing.F) {
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"))
	f.Add([]byte("\x81\x02up\x8a\x00"))
	f.Add([]byte("\x01\x01u\x80\x01p\x88\x02\x03\xe8"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		_, _, _ = readAnswer(bytes.NewReader(answer))
		v := &conversation{to: io.Discard, from: bufio.NewReader(bytes.NewReader(answer)), expect: "up", left: maxRead}
		err := v.await()
		if found := bytes.Contains(answer, []byte("p")) && strings.Contains(v.said, "up"); (err == nil) != found {
			t.Errorf("%q is judged as %v, it says %q", answer, err, v.said)
		}
	})
}
