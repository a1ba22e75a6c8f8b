package command

import (
	"strings"
	"testing"
)

func TestHeadKeepsTheFirstBytes(t *testing.T) {
	h := Output{Max: 5}
	for _, s := range []string{"", "abc", "defg", "h"} {
		if n, err := h.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("Write(%q) = %d, %v", s, n, err)
		}
	}
	if got := h.String(); got != "abcde" {
		t.Errorf("kept %q", got)
	}
}

func TestTailKeepsTheLastBytes(t *testing.T) {
	all := ""
	tail := Output{Max: 5, Last: true}
	for _, s := range []string{"", "ab", "cdefghij", "k", "l", "mnopqrstuvw", "x", "yz"} {
		if n, err := tail.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("Write(%q) = %d, %v", s, n, err)
		}
		all += s
		if got, want := tail.String(), all[max(len(all)-5, 0):]; got != want {
			t.Errorf("after %q: kept %q, want %q", s, got, want)
		}
	}
}

func TestTailIsBounded(t *testing.T) {
	tail := Output{Max: 100, Last: true}
	for range 1000 {
		tail.Write([]byte(strings.Repeat("x", 37)))
	}
	if len(tail.kept) > 200 || cap(tail.kept) > 512 {
		t.Errorf("keeps %d bytes in %d", len(tail.kept), cap(tail.kept))
	}
}

func TestZeroBuffersKeepNothing(t *testing.T) {
	var head Output
	tail := Output{Last: true}
	head.Write([]byte("x"))
	tail.Write([]byte("x"))
	if head.String() != "" || tail.String() != "" {
		t.Errorf("kept %q and %q", head.String(), tail.String())
	}
}

func TestTheEndOfAnOutput(t *testing.T) {
	const limit = 300
	long := strings.Repeat("ä", limit)
	for output, want := range map[string]string{
		"":                   "",
		"one\ntwo\n":         "one\ntwo",
		long:                 "… " + long[:limit],
		"x" + long:           "… " + long[:limit],
		long + "y":           "… " + long[:limit-2] + "y",
		long + "\nlast\n\n":  "… last",
		long + "\n" + long:   "… " + long[:limit],
		"first\n" + long[:2]: "first\nä",
	} {
		if got := LastLines(output, limit); got != want {
			t.Errorf("LastLines(%.20q…) = %q, want %q", output, got, want)
		}
	}
}
