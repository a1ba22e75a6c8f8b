package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestHeartbeats(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("ARealServer", func(t *testing.T) { realServer(t, way) })
		t.Run("Protocols", func(t *testing.T) { protocols(t, way) })
		t.Run("LateAnswersAreWarningsUntilTooManyAreMissed", func(t *testing.T) { lateAnswers(t, way) })
		t.Run("TheFirstBeatMustBeAnswered", func(t *testing.T) { firstBeat(t, way) })
		t.Run("HalfAnAnswerIsKept", func(t *testing.T) { halfAnswer(t, way) })
		t.Run("SlowAnswersAreWarnings", func(t *testing.T) { slowAnswers(t, way) })
		t.Run("WrongAnswersFail", func(t *testing.T) { wrongAnswers(t, way) })
		t.Run("ALostDatagramIsNotADeadService", func(t *testing.T) { lostDatagrams(t, way) })
		t.Run("WrongDatagramsFail", func(t *testing.T) { wrongDatagrams(t, way) })
		t.Run("OverTLS", func(t *testing.T) { overTLS(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { wrongSettings(t, way) })
	})
}

// realServer probes the demo service, which is frozen, killed and restarted.
func realServer(t *testing.T, way lab.Way) {
	port := gatewaytest.FreePort(t)
	demo := lab.Demo(t, "-listen", "127.0.0.1:0", "-slow-start", "0s", "-heartbeat", "127.0.0.1:"+port)
	a := way.Must(t, fmt.Sprintf(`{"port": %q}`, port))
	lab.Until(t, a, guest.Success)
	for n := 2; n <= 4; n++ {
		beaten(t, a, n)
	}
	demo.Freeze()
	lab.TimesOut(t, a, 200*time.Millisecond, "heartbeat.missed")
	demo.Thaw()
	if r := lab.Until(t, a, guest.Success); strings.HasPrefix(r.Detail, "beat 1 ") {
		t.Errorf("the connection was not kept: %s", r.Detail)
	}
	demo.Kill()
	if r := a(lab.Timeout); r.Outcome != guest.Failure || r.Reason != "tcp.closed" && r.Reason != "tcp.reset" {
		t.Errorf("killed: %+v", r)
	}
	lab.Expect(t, a, guest.Failure, "tcp.refused")
	demo.Restart()
	if r := lab.Until(t, a, guest.Success); !strings.HasPrefix(r.Detail, "beat 1 ") {
		t.Errorf("restarted: %+v", r)
	}
}

// beaten makes an attempt whose beat must be answered.
func beaten(t *testing.T, a lab.Attempt, n int) {
	t.Helper()
	if r := lab.Expect(t, a, guest.Success, ""); !strings.HasPrefix(r.Detail, fmt.Sprintf("beat %d was answered in ", n)) {
		t.Errorf("beat %d: %s", n, r.Detail)
	}
}

func protocols(t *testing.T, way lab.Way) {
	tests := map[string]struct {
		settings string
		size     int // of a beat
		answer   func(beat string, n int) string
	}{
		"the defaults": {``, 0, func(beat string, n int) string { return fmt.Sprintf("PONG %d\n", n) }},
		"no numbers":   {`, "send": "hi", "expect": "ho"`, 2, func(string, int) string { return "ho" }},
		"four bytes": {`, "format": "hex", "send": "01 {seq32} ff", "expect": "02{seq32}"`, 6,
			func(beat string, n int) string { return "\x02" + beat[1:5] }},
		"eight bytes": {`, "format": "hex", "send": "{seq64}", "expect": "{seq64}"`, 8,
			func(beat string, n int) string { return beat }},
		"greetings": {`, "hello": "PING 0\n", "welcome": "PONG 1\n"`, 0,
			func(beat string, n int) string { return fmt.Sprintf("PONG %d\n", max(n-1, 1)) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			port := lab.Serve(t, func(c net.Conn) { answerBeats(c, test.size, test.answer) })
			a := way.Must(t, fmt.Sprintf(`{"port": %q%s}`, port, test.settings))
			for n := 1; n <= 5; n++ {
				beaten(t, a, n)
			}
		})
	}
}

// answerBeats replies to beats of a fixed size, or to lines.
func answerBeats(c net.Conn, size int, answer func(beat string, n int) string) {
	in := bufio.NewReader(c)
	for n := 1; ; n++ {
		beat, err := readBeat(in, size)
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, answer(beat, n)); err != nil {
			return
		}
	}
}

func readBeat(in *bufio.Reader, size int) (string, error) {
	if size == 0 {
		return in.ReadString('\n')
	}
	b := make([]byte, size)
	_, err := io.ReadFull(in, b)
	return string(b), err
}

// onlyAnswers starts a server that sends one of answers for each beat, and closes the connection
// after the last.
func onlyAnswers(t *testing.T, answers ...string) (port string) {
	return lab.Serve(t, func(c net.Conn) {
		answerBeats(c, 0, func(_ string, n int) string {
			if n > len(answers) {
				c.Close()
				return ""
			}
			return answers[n-1]
		})
	})
}

func lateAnswers(t *testing.T, way lab.Way) {
	testsync.Longer(t, "nine beats", 50*time.Millisecond, testsync.Timeout, func(wait time.Duration) bool {
		port := onlyAnswers(t, "PONG 1\n", "", "", "PONG 2\nPONG 4\n", "", "", "", "")
		a := way.Must(t, fmt.Sprintf(`{"port": %q, "missed": 3, "wait": %q}`, port, wait.String()))
		return beats(t, a, "", late, late, "", late, late, missed, missed, "tcp.closed")
	})
}

// The reasons of unanswered beats.
const late, missed = "heartbeat.late", "heartbeat.missed"

func isSilence(reason string) bool { return reason == late || reason == missed }

// beats makes an attempt for each wanted reason; "" means an answered beat. It returns false at the first response that
// did not arrive within the probe's wait, which may be too short on a busy machine.
func beats(t *testing.T, a lab.Attempt, want ...string) bool {
	t.Helper()
	for n, reason := range want {
		outcome := guest.Failure
		switch reason {
		case "":
			outcome = guest.Success
		case late:
			outcome = guest.Warning
		}
		r := a(lab.Timeout)
		if isSilence(r.Reason) && !isSilence(reason) {
			return false
		}
		answered := strings.HasPrefix(r.Detail, fmt.Sprintf("beat %d was answered in ", n+1))
		if r.Outcome != outcome || r.Reason != reason || reason == "" && !answered {
			t.Fatalf("beat %d: %+v, want %v %q", n+1, r, outcome, reason)
		}
	}
	return true
}

func firstBeat(t *testing.T, way lab.Way) {
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "missed": 3, "wait": "20ms"}`, onlyAnswers(t, "", "")))
	lab.Expect(t, a, guest.Failure, "heartbeat.missed")
	lab.Expect(t, a, guest.Failure, "heartbeat.missed")
}

func halfAnswer(t *testing.T, way lab.Way) {
	testsync.Longer(t, "three beats", 50*time.Millisecond, testsync.Timeout, func(wait time.Duration) bool {
		a := way.Must(t, fmt.Sprintf(`{"port": %q, "missed": 2, "wait": %q}`, onlyAnswers(t, "PONG 1\n", "PON", "G 2\nPONG 3\n"), wait.String()))
		return beats(t, a, "", late, "")
	})
}

func slowAnswers(t *testing.T, way lab.Way) {
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "slow": "1ns"}`, onlyAnswers(t, "PONG 1\n")))
	lab.Expect(t, a, guest.Warning, "heartbeat.slow")
}

func wrongAnswers(t *testing.T, way lab.Way) {
	for _, answer := range []string{
		"HTTP/1.1 400 Bad Request\r\n", "PONG x\n", "PONG 2\n", "PONG 0\n", "PONG 1\nPONG 1\n", "PONG -1\n",
		"PONG 99999999999999999999999999\n", strings.Repeat("x", 1<<20),
	} {
		a := way.Must(t, fmt.Sprintf(`{"port": %q}`, onlyAnswers(t, answer)))
		r := lab.Expect(t, a, guest.Failure, "heartbeat.garbage")
		if len(r.Detail) > 512 {
			t.Errorf("the detail has %d bytes", len(r.Detail))
		}
	}
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "hello": "x\n", "welcome": "hi"}`, onlyAnswers(t, "no")))
	lab.Expect(t, a, guest.Failure, "heartbeat.open")
}

// answersByUDP starts a server that sends the given datagrams for each beat. It stops when end is
// called, or when the test ends.
func answersByUDP(t *testing.T, answers ...[]string) (port string, end func()) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, 100)
		for n := 0; ; n++ {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			for _, datagram := range answers[min(n, len(answers)-1)] {
				_, _ = c.WriteTo([]byte(datagram), from)
			}
		}
	})
	end = sync.OnceFunc(func() { c.Close(); running.Wait() })
	t.Cleanup(end)
	return strconv.Itoa(c.LocalAddr().(*net.UDPAddr).Port), end
}

// lostDatagrams drops, repeats and delays datagrams, and then stops the service.
func lostDatagrams(t *testing.T, way lab.Way) {
	testsync.Longer(t, "seven beats", 100*time.Millisecond, testsync.Timeout, func(wait time.Duration) bool {
		port, end := answersByUDP(t,
			[]string{"PONG 1\n"}, nil, []string{"PONG 2\n", "PONG 3\n", "PONG 3\n"}, []string{"PONG 3\n", "PONG 4\n"}, nil)
		settings := fmt.Sprintf(`{"port": %q, "network": "udp", "missed": 3, "wait": %q}`, port, wait.String())
		a := way.Must(t, settings)
		if !beats(t, a, "", late, "", "", late, late, missed) {
			return false
		}
		beats(t, way.Must(t, settings), missed) // it never answered this probe
		end()
		lab.Expect(t, a, guest.Failure, "udp.refused")
		lab.Expect(t, a, guest.Failure, "udp.refused")
		return true
	})
}

func wrongDatagrams(t *testing.T, way lab.Way) {
	for _, answer := range []string{"", "PONG 1", "PONG 2\n", "PONG 0\n", "PONG 1\nPONG 1\n", "x", strings.Repeat("PONG 1\n", 1000)} {
		port, _ := answersByUDP(t, []string{answer})
		lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, "network": "udp"}`, port)), guest.Failure, "heartbeat.garbage")
	}
	port, _ := answersByUDP(t, []string{"PONG 1\n"}, slices.Repeat([]string{"PONG 1\n"}, 1000))
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "network": "udp"}`, port))
	beaten(t, a, 1)
	lab.Expect(t, a, guest.Failure, "heartbeat.garbage")
	testsync.Longer(t, "three beats", 100*time.Millisecond, testsync.Timeout, func(wait time.Duration) bool {
		port, _ := answersByUDP(t, []string{"ho"}, nil, []string{"ho"})
		a := way.Must(t, fmt.Sprintf(`{"port": %q, "network": "udp", "expect": "ho", "missed": 2, "wait": %q}`, port, wait.String()))
		return beats(t, a, "", late, "")
	})
}

func overTLS(t *testing.T, way lab.Way) {
	certificate, authority := lab.Certificate(t)
	port := lab.Serve(t, func(c net.Conn) {
		secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}})
		answerBeats(secure, 0, func(_ string, n int) string { return fmt.Sprintf("PONG %d\n", n) })
	})
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "tls": {"ca_pem": %q}}`, port, authority))
	beaten(t, a, 1)
	beaten(t, a, 2)
	lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, "tls": {}}`, port)), guest.Failure, "tls.untrusted")
	lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, "tls": {"verify": false}}`, port)), guest.Success, "")
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	tier.CI(t)
	port := lab.Serve(t, func(c net.Conn) {
		answerBeats(c, 0, func(_ string, n int) string { return fmt.Sprintf("PONG %d\n", n) })
	})
	lab.Conforms(t, lab.Build(t, "."), port, "{}")
}

func wrongSettings(t *testing.T, way lab.Way) {
	for settings, field := range map[string]string{
		`{}`:                                "port",
		`{"port": "1", "format": "base64"}`: "format",
		`{"port": "1", "format": "hex", "send": "0g"}`:                "send",
		`{"port": "1", "send": "{seq} {seq32}"}`:                      "send",
		`{"port": "1", "expect": ""}`:                                 "expect",
		`{"port": "1", "expect": "PONG {seq}"}`:                       "expect",
		`{"port": "1", "send": "PING\n"}`:                             "expect",
		`{"port": "1", "missed": 0}`:                                  "missed",
		`{"port": "1", "wait": "-1s"}`:                                "wait",
		`{"port": "1", "slow": "-1s"}`:                                "slow",
		`{"port": "1", "network": "sctp"}`:                            "network",
		`{"port": "1", "network": "udp", "tls": {}}`:                  "tls",
		`{"port": "1", "network": "udp", "hello": "x"}`:               "hello",
		`{"port": "1", "network": "udp", "welcome": "x"}`:             "welcome",
		`{"port": "1", "hello": "` + strings.Repeat("x", 1025) + `"}`: "hello",
		`{"port": "1", "tls": {"verfy": false}}`:                      "tls.verfy",
	} {
		lab.Refused(t, way, settings, field)
	}
}
