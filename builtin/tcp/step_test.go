package tcpprobe_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Handler is the type of the handlers that New returns.
type Handler interface {
	nonblock.Stepper
	probe.EndpointHandler
	Check(probe.Target) error
}

// prober is a handler whose attempts are made either in steps or by Probe.
type prober struct {
	Handler
	steps bool
}

func (p prober) Probe(ctx context.Context, target probe.Target) probe.Result {
	if !p.steps {
		return p.Handler.Probe(ctx, target)
	}
	result, _ := nonblocktest.Probe(ctx, p.Handler, target)
	return result
}

// inSteps reports whether a test must make its attempts in steps.
func inSteps(t testing.TB) bool {
	return strings.HasPrefix(t.Name(), "TestTheTestsOfProbeHoldForSteps/")
}

// The tests of Probe also pass with attempts in steps.
func TestTheTestsOfProbeHoldForSteps(t *testing.T) {
	tier.Slow(t)
	for name, test := range map[string]func(*testing.T){
		"a connection":       TestAConnectionIsEnough,
		"plain":              TestAPlainAttemptSendsNothingAndCloses,
		"a closed port":      TestAClosedPortIsRefused,
		"source":             TestASourceAddressIsUsed,
		"this machine":       TestWhatThisMachineCannotDoIsUnknown,
		"lacks":              TestWhatTheTargetLacksIsUnknown,
		"cancelled":          TestACancelledAttemptIsUnknown,
		"unix":               TestAUnixSocketIsProbed,
		"IPv6":               TestAnIPv6AddressIsProbed,
		"tls":                TestTLSIsUsedIfConfigured,
		"client certificate": TestARejectedClientCertificateIsNoticedIfAResponseIsExpected,
		"half open":          TestAHalfOpenAttemptIsNeverAccepted,
		"half open, refused": TestAHalfOpenAttemptIsRefusedAtAClosedPort,
		"expected":           TestTheResponseMustMatch,
		"late":               TestALateResponseIsATimeout,
		"sent":               TestTheConfiguredBytesAreSent,
		"stuck":              TestSendingThatBlocksIsATimeout,
		"secret":             TestNoResultContainsTheResponse,
	} {
		t.Run(name, test)
	}
}
