package probe

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unique"
)

// Outcome is what one attempt found. The zero Outcome is Unknown, so that a forgotten
// assignment never means healthy.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // the attempt could not be made, for a reason that is not the target's
	Success
	Warning // counts as Success; the result's Detail says what is wrong
	Failure
)

var outcomeNames = names[Outcome]{"unknown", "success", "warning", "failure"}

// String returns the outcome as it is written in JSON and metrics, such as
// "success".
func (o Outcome) String() string { return outcomeNames.text(o) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Outcome) UnmarshalText(b []byte) error { return outcomeNames.parse(o, "outcome", b) }

// Verdict is what is published about a probe once a run of equal outcomes has reached
// its threshold. The zero Verdict is Undecided.
type Verdict uint8

// The verdicts.
const (
	Undecided Verdict = iota
	Passing
	Failing
)

var verdictNames = names[Verdict]{"undecided", "passing", "failing"}

// String returns the verdict as it is written in JSON and metrics, such as
// "passing".
func (v Verdict) String() string { return verdictNames.text(v) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Verdict) UnmarshalText(b []byte) error { return verdictNames.parse(v, "verdict", b) }

// Result is the record of one attempt. A handler fills in Outcome, Reason,
// Detail and the Timings it knows; the engine fills in Took and Tries.
type Result struct {
	Outcome Outcome
	Tries   uint8 // 1, or up to 3 when a try's outcome was Unknown
	NoRetry bool  // another try at once would fail likewise, so the engine makes none

	// Denied says that this machine has denied processes, memory or descriptors to what the
	// handler has run. The outcome of a failure is Unknown then, for ReasonResources.
	//
	// Because of Lost and Denied eight failures of a probe in a row are unknown. They are not
	// tried again at once, and each makes the next timeout longer by Rule.Timeout, up to
	// 7/8 of Rule.Period. Every failure after them counts, until an attempt passes, or fails without
	// such a claim. The engine's health does not depend on these attempts.
	Denied bool

	HTTPStatus uint16        // status code of an HTTP response; 0 without one
	Reason     Reason        // the cause as a stable code; empty for a plain success
	Detail     string        // the cause in words, at most MaxDetail bytes
	Took       time.Duration // the whole attempt, all its tries

	CertificateExpiry int64 // when the first of the server's certificates expires, in seconds since 1970; 0 without one
	Timings           Timings
	facts             unique.Handle[Facts]

	// Lost is how much of the time of a try its handler knows to be lost for a reason of
	// this machine, such as a quota of processor time that is used up. If it is more than a quarter
	// of the timeout, the outcome of a failure is Unknown, for engine.stalled; if the failure is an answer,
	// such as an exit status, it is so from half of the timeout.
	Lost time.Duration
}

// Timings says how long each step of an attempt over the network took, and whether it has
// connected. A step that was not reached, or not needed, is zero.
type Timings struct {
	Resolve   time.Duration // until a name server answered, if the host's name needed one
	Connect   time.Duration // until the transport was connected, or without an answer; 0 if that was refused
	TLS       time.Duration // the TLS handshake
	FirstByte time.Duration // from the request's end to the answer's first byte

	Connected bool // a connection was accepted, over TCP or a unix socket
}

// MaxDetail bounds Result.Detail, and what a handler reads of a body or an
// output, in bytes. The kubelet's limit is the same (maxReadLength in
// k8s.io/kubernetes/pkg/kubelet/prober).
const MaxDetail = 10 << 10

// Succeed returns a Result with Outcome Success.
func Succeed(detail string) Result { return Result{Outcome: Success, Detail: detail} }

// Warn returns a Result with Outcome Warning.
func Warn(why Reason, format string, a ...any) Result {
	return Result{Outcome: Warning, Reason: why, Detail: fmt.Sprintf(format, a...)}
}

// Fail returns a Result with Outcome Failure.
func Fail(why Reason, format string, a ...any) Result {
	return Result{Outcome: Failure, Reason: why, Detail: fmt.Sprintf(format, a...)}
}

// Broken returns a Result with Outcome Unknown: the attempt could not be made, for a
// reason that is not the target's.
func Broken(why Reason, format string, a ...any) Result {
	return Result{Reason: why, Detail: fmt.Sprintf(format, a...)}
}

// CleanText makes untrusted text safe to log and to print to a terminal. It
// replaces invalid UTF-8, control characters other than newline and tab, and
// bidirectional controls with U+FFFD, removes trailing white space, and truncates
// the text to at most limit bytes without splitting a character.
func CleanText(s string, limit int) string {
	if len(s) <= limit && isPlain(s) {
		return s
	}
	s = clean(strings.TrimRightFunc(s, unicode.IsSpace), true)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.TrimRightFunc(s[:limit], unicode.IsSpace)
}

// isPlain reports whether s is printable ASCII, and does not end with a space: most texts are.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return !strings.HasSuffix(s, " ")
}

// OneLine returns untrusted text in one line, made safe by CleanText: each run of white space
// is one space.
func OneLine(s string, limit int) string {
	return CleanText(strings.Join(strings.Fields(s), " "), limit)
}

// Brief returns a duration for people, with two or three digits, or two units: 1.2ms, 3.2s, 42s, 3m12s, 5m, 5h3m, 3d4h.
func Brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0s"
	case d < time.Millisecond:
		d = d.Round(time.Microsecond)
	case d < 100*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	case d < time.Second:
		d = d.Round(time.Millisecond)
	case d < 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d < time.Hour:
		d = d.Round(time.Second)
	case d < day:
		d = d.Truncate(time.Minute)
	default:
		return withoutZero(fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour))
	}
	return withoutZero(d.String())
}

// withoutZero returns a duration without its last units that are 0: 5m for 5m0s.
func withoutZero(text string) string {
	for _, zero := range []string{"m0s", "h0m", "d0h"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func clean(s string, lines bool) string {
	return strings.Map(func(r rune) rune {
		if (r == '\n' || r == '\t') && lines {
			return r
		}
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}
