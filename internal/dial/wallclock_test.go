package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestTimesThatItMayBeAfterTheClockWasSet(t *testing.T) {
	const year = 365 * 24 * time.Hour
	type reading struct {
		elapsed, ahead          time.Duration
		beforeNow, afterNowMost time.Duration // distance of the earliest and the latest time from the clock's time
	}
	tests := map[string][]reading{
		"never set":            {{0, 0, 0, 0}, {time.Hour, 0, 0, 0}, {year, 0, 0, 0}},
		"set ahead":            {{time.Minute, 0, 0, 0}, {2 * time.Minute, year, year, 0}, {61 * time.Minute, year, year, 0}, {62 * time.Minute, year, 0, 0}},
		"set back":             {{time.Hour, -year, 0, year}, {2*time.Hour - 1, -year, 0, year}, {2 * time.Hour, -year, 0, 0}},
		"set and corrected":    {{time.Hour, year, year, 0}, {90 * time.Minute, 0, 0, year}, {2 * time.Hour, 0, 0, year}, {150 * time.Minute, 0, 0, 0}},
		"set by a few seconds": {{2 * time.Hour, 5 * time.Second, 0, 0}, {4 * time.Hour, 65*time.Second - 1, 0, 0}},
	}
	for name, readings := range tests {
		t.Run(name, func(t *testing.T) {
			var c wallClock
			began := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
			for _, r := range readings {
				shown := r.elapsed + r.ahead
				now := began.Add(shown)
				earliest, latest := c.observe(now, r.elapsed, shown)
				if got, want := now.Sub(earliest), r.beforeNow; got != want {
					t.Errorf("after %v it may be %v earlier, want %v", r.elapsed, got, want)
				}
				if got, want := latest.Sub(now), r.afterNowMost; got != want {
					t.Errorf("after %v it may be %v later, want %v", r.elapsed, got, want)
				}
			}
		})
	}
}

// setClock makes the clock appear to have been set by a duration, for the test.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	clock.mu.Lock()
	defer clock.mu.Unlock()
	clock.ahead, clock.low, clock.high, clock.lastAt = -by, -by, -by, 0
	t.Cleanup(func() {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		clock.ahead, clock.low, clock.high, clock.lastAt = 0, 0, 0, 0
	})
}

func TestAnExpiredCertificateIsNoFailureIfTheClockWasSet(t *testing.T) {
	expired := func(before time.Duration) error {
		now := time.Now()
		c := &x509.Certificate{NotBefore: now.Add(-1000 * time.Hour), NotAfter: now.Add(-before)}
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Cert: c}}
	}
	for name, test := range map[string]struct {
		set, before time.Duration
		outcome     probe.Outcome
		reason      probe.Reason
	}{
		"never set":                    {0, time.Hour, probe.Failure, probe.ReasonTLSExpired},
		"set ahead by a day":           {24 * time.Hour, time.Hour, probe.Unknown, probe.ReasonClock},
		"expired before it was set":    {24 * time.Hour, 25 * time.Hour, probe.Failure, probe.ReasonTLSExpired},
		"set back, and expired anyway": {-24 * time.Hour, time.Hour, probe.Failure, probe.ReasonTLSExpired},
	} {
		t.Run(name, func(t *testing.T) {
			setClock(t, test.set)
			got := Classify(context.Background(), Handshaking, expired(test.before))
			if got.Outcome != test.outcome || got.Reason != test.reason {
				t.Errorf("got %v %v: %v, want %v %v", got.Outcome, got.Reason, got, test.outcome, test.reason)
			}
		})
	}
}

func TestACertificateThatIsNotValidYetIsNoFailureIfTheClockWasSetBack(t *testing.T) {
	c := &x509.Certificate{NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	if mayBeValid(c) {
		t.Error("the certificate may be valid, although the clock was not set")
	}
	if setClock(t, -24*time.Hour); !mayBeValid(c) {
		t.Error("the certificate cannot be valid, although the clock was a day ahead before")
	}
}

func TestValidityIsJudgedByTheEarliestTimeThatItMayBe(t *testing.T) {
	v := &TLS{MinValidity: 24 * time.Hour}
	until := Validity{Until: time.Now().Add(23 * time.Hour)}
	if got := v.Judge(probe.Succeed(""), until); got.Reason != probe.ReasonTLSExpiring {
		t.Errorf("got %v %v", got.Outcome, got.Reason)
	}
	if setClock(t, 2*time.Hour); v.Judge(probe.Succeed(""), until).Outcome != probe.Success {
		t.Error("a clock that was set ahead by 2h makes the validity too short")
	}
	if failure := probe.Fail(probe.ReasonHTTPStatus, "status 500"); v.Judge(failure, Validity{Until: time.Now()}).Reason != probe.ReasonHTTPStatus {
		t.Error("a failure got another reason")
	}
}
