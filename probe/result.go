package probe

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unique"
)

// Outcome is the outcome of one attempt. The zero Outcome is Unknown, so that a forgotten assignment never means healthy.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // the attempt could not be made, for a reason other than the target
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

// Verdict is the published state of a probe after thresholds. The zero Verdict is Undecided.
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

// Result is the record of one attempt. A handler fills in Outcome, Reason, Detail and the Timings that it measured; the engine
// fills in Took and Tries.
type Result struct {
	Outcome Outcome
	Tries   uint8 // 1, or up to 3 when a try's outcome was Unknown
	NoRetry bool  // an immediate retry would fail as well, so the engine makes none

	// Denied reports that this machine denied processes, memory or descriptors to the command or plugin that the handler ran. A
	// failure then becomes Unknown, with ReasonResources.
	//
	// Because of Lost and Denied, at most eight consecutive failures of a probe become unknown. They are not retried immediately,
	// and each extends the next timeout by Rule.Timeout, up to 7/8 of Rule.Period. Every later failure counts until an attempt
	// passes, or fails without such a claim. These attempts do not affect the engine's health.
	Denied bool

	HTTPStatus uint16        // status code of an HTTP response; 0 if there was none
	Reason     Reason        // the cause as a stable code; empty for a plain success
	Detail     string        // the cause in words, at most MaxDetail bytes
	Took       time.Duration // duration of the whole attempt, including all tries

	CertificateExpiry int64 // when the server's first certificate to expire does so, in seconds since 1970; 0 if there is none
	Timings           Timings
	facts             unique.Handle[Facts]

	// Lost is the part of a try that its handler knows to be lost for a reason of this machine, such as an exhausted CPU quota.
	// If it exceeds a quarter of the timeout, a failure becomes Unknown, with the reason engine.stalled. If the failure is a
	// response, such as an exit status, the limit is half of the timeout.
	Lost time.Duration
}

// Timings has the duration of each step of an attempt over the network, and whether it connected. A step that was not reached, or
// not needed, is zero.
type Timings struct {
	Resolve   time.Duration // until a name server responded, if the host's name had to be resolved
	Connect   time.Duration // until the transport was connected, or failed without a response; 0 if it was refused
	TLS       time.Duration // the TLS handshake
	FirstByte time.Duration // from the end of the request to the first byte of the response

	Connected bool // a TCP or unix socket connection was established
}

// MaxDetail bounds Result.Detail, and the part of a body or output that a handler reads, in bytes. The kubelet has the same limit
// (maxReadLength in k8s.io/kubernetes/pkg/kubelet/prober).
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

// Broken returns a Result with Outcome Unknown: the attempt could not be made, for a reason other than the target.
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

// isPlain reports whether s is printable ASCII and does not end with a space, as most texts do.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return !strings.HasSuffix(s, " ")
}

// OneLine returns untrusted text as a single line, sanitized by CleanText, with each run of white space replaced by one space.
func OneLine(s string, limit int) string {
	return CleanText(strings.Join(strings.Fields(s), " "), limit)
}

// Brief formats a duration for people, with two or three digits, or two units: 1.2ms, 3.2s, 42s, 3m12s, 5m, 5h3m, 3d4h.
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

// withoutZero returns the text of a duration without trailing units that are 0: 5m for 5m0s.
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
