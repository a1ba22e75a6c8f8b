package beatprobe

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

const testToken = "correct-horse-battery"

func TestADatagramIsReadAsItIsWritten(t *testing.T) {
	at := time.Unix(1795435200, 0)
	for _, report := range []Report{{Status: OK}, {Status: Failed}, {Status: Started}, {Status: Failed, Exit: 255}} {
		for _, target := range []string{"shop/back up", `web["ä"]`, strings.Repeat("x", probe.MaxTargetName)} {
			b := AppendDatagram(nil, target, testToken, at, report)
			for _, b := range [][]byte{b, append(bytes.Clone(b), '\n')} {
				d, err := parseDatagram(b)
				if err != nil || d.target != target || d.report != report || d.time != uint64(at.UnixNano()) {
					t.Errorf("%q is %+v, %v", b, d, err)
				}
				if !d.isSignedWith(testToken) || d.isSignedWith(testToken+"x") || d.isSignedWith("") {
					t.Errorf("%q is not signed with its token alone", b)
				}
			}
		}
	}
}

func TestOtherDatagramsAreRejected(t *testing.T) {
	good := string(AppendDatagram(nil, "web", testToken, time.Unix(1795435200, 0), Report{Status: OK}))
	fields := strings.Split(good, " ")
	with := func(i int, text string) string {
		f := append([]string{}, fields...)
		f[i] = text
		return strings.Join(f, " ")
	}
	for name, b := range map[string]string{
		"empty": "", "another version": with(0, "sonde-beat/2"), "only a version": "sonde-beat/1 ",
		"a short MAC": with(1, fields[1][:62]), "a long MAC": with(1, fields[1]+"00"), "an upper-case MAC": with(1, strings.ToUpper(fields[1][:63])+"A"), "no MAC": with(1, ""),
		"no time": with(2, ""), "a negative time": with(2, "-1"), "a sign": with(2, "+1"), "a leading zero": with(2, "01"), "the time zero": with(2, "0"), "a large time": with(2, "9999999999999999999"),
		"no status": with(3, ""), "another status": with(3, "up"), "a large exit status": with(3, "256"), "a long exit status": with(3, "007"),
		"no target": with(4, ""), "a target of two lines": with(4, "a\nb"), "a target that is not UTF-8": with(4, "\xff"), "a long target": with(4, strings.Repeat("x", probe.MaxTargetName+1)),
		"two line feeds": good + "\n\n", "oversized": good + strings.Repeat("x", 2000), "binary": "\x00\x01\x02",
	} {
		if d, err := parseDatagram([]byte(b)); err == nil && d.isSignedWith(testToken) {
			t.Errorf("%s: %q is accepted as %+v", name, b, d)
		}
	}
	for n := range len(good) { // truncated
		if d, err := parseDatagram([]byte(good[:n])); err == nil && d.isSignedWith(testToken) {
			t.Errorf("the first %d bytes are accepted as %+v", n, d)
		}
	}
	for i := range len(good) { // forged
		b := []byte(good)
		b[i] ^= 1
		if d, err := parseDatagram(b); err == nil && d.isSignedWith(testToken) {
			t.Errorf("with another byte %d it is accepted as %+v", i, d)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add(AppendDatagram(nil, "shop/back up", testToken, time.Unix(1795435200, 0), Report{Status: Failed, Exit: 3}))
	f.Add([]byte("sonde-beat/1  1 ok x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		d, err := parseDatagram(b)
		if !bytes.Equal(b, before) {
			t.Error("the datagram was changed")
		}
		if err != nil {
			return
		}
		again := AppendDatagram(nil, d.target, testToken, time.Unix(0, int64(d.time)), d.report)
		e, err := parseDatagram(again)
		if err != nil || !e.isSignedWith(testToken) || e.target != d.target || e.time != d.time || e.report != d.report {
			t.Errorf("%+v is written as %q and read as %+v, %v", d, again, e, err)
		}
		if len(again) > maxDatagram {
			t.Errorf("it is written with %d bytes", len(again))
		}
	})
}

func TestTheExampleOfTheDocsIsADatagram(t *testing.T) {
	text, err := os.ReadFile("../../docs/beats.md")
	if err != nil {
		t.Fatal(err)
	}
	want := AppendDatagram(nil, "shop/back up", testToken, time.Unix(1795435200, 0), Report{Status: OK})
	if !bytes.Contains(text, append(want, '\n')) {
		t.Errorf("docs/beats.md lacks the datagram %s", want)
	}
	if !bytes.Contains(text, fmt.Appendf(nil, "at most %d bytes", maxDatagram)) {
		t.Errorf("docs/beats.md does not say that a datagram has at most %d bytes", maxDatagram)
	}
}

// BenchmarkDatagram measures the processing of a datagram, from its bytes to the last beat of its target.
func BenchmarkDatagram(b *testing.B) {
	r := NewRegistry()
	h, err := r.New(Config{Every: time.Minute, Token: testToken})
	if err != nil {
		b.Fatal(err)
	}
	r.Apply(probe.Set{{Target: "web", Kind: probe.Liveness}: {Handler: h}})
	at := time.Now().Add(time.Hour)
	for b.Loop() {
		b.StopTimer()
		at = at.Add(1)
		packet := AppendDatagram(nil, "web", testToken, at, Report{Status: OK})
		b.StartTimer()
		r.receive(packet)
	}
	if s := r.Stats(); s.UDP+s.TooMany != uint64(b.N) {
		b.Errorf("counted %+v of %d", s, b.N)
	}
}
