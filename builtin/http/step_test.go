package httpprobe_test

import (
	"context"
	"io"
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
	io.Closer
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

// The tests of Probe also pass with attempts in steps, except those that count the requests before a redirect: the first of these
// is sent twice.
func TestTheTestsOfProbeHoldForSteps(t *testing.T) {
	tier.Slow(t)
	for name, test := range map[string]func(*testing.T){
		"success":              TestAnAcceptedStatusIsSuccess,
		"broken bodies":        TestABrokenBodyIsAFailureExceptInKubeletCompatibility,
		"no body to wait for":  TestAnUnacceptedStatusDoesNotWaitForTheBody,
		"large bodies":         TestTheBodyIsReadUpToItsMaximum,
		"assertions":           TestAssertionsAreAboutTheWholeBody,
		"more assertions":      TestHeadersAndBodiesMustBeAsConfigured,
		"charsets":             TestABodyIsJudgedInItsCharset,
		"secret":               TestAFailureShowsTheBodyWithoutSecrets,
		"cancelled":            TestACancelledAttemptIsUnknown,
		"trouble":              TestInvalidResponsesHaveReasons,
		"speaks first":         TestBytesBeforeTheRequestAreJudgedAndNotLogged,
		"late":                 TestATimeoutIsAFailure,
		"a closed port":        TestAClosedPortIsRefused,
		"lacks":                TestWhatTheTargetLacksIsUnknown,
		"source":               TestASourceAddressIsUsed,
		"unix":                 TestAUnixSocketIsProbed,
		"IPv6":                 TestAnIPv6AddressIsProbed,
		"without time":         TestAnAttemptAfterItsDeadlineIsATimeout,
		"redirects":            TestRedirectsAreFollowedAsConfigured,
		"redirects' hosts":     TestARedirectThatIsNotFollowedNamesTheHost,
		"headers of redirects": TestAnotherHostDoesNotGetTheHeaders,
		"bodies of redirects":  TestABodyIsSentAgainAfterATemporaryRedirect,
		"paths":                TestPathsAreParsedAsLinks,
		"userinfo":             TestUserinfoInThePathBecomesBasicAuth,
		"headers":              TestHeadersAreTheKubelets,
		"method and body":      TestMethodAndBodyAreSent,
		"head":                 TestAHeadRequestHasNoBodyToWaitFor,
		"many at once":         TestAHandlerServesManyTargetsAtOnce,
		"kept":                 TestAConnectionIsReusedOnlyIfConfigured,
		"kept and closed":      TestAKeptConnectionThatTheServerClosedIsNoFailure,
		"goroutines":           TestAttemptsLeaveNoGoroutineBehind,
		"statuses":             TestStatusesAreAcceptedByRange,
		"a switch":             TestASwitchOfProtocolsCanBeAccepted,
		"certificates":         TestCertificatesAreVerified,
		"HTTP/2":               TestHTTP2IsUsedIfTheServerOffersIt,
		"upgrade":              TestAnUpgradeHeaderDisablesHTTP2,
		"client certificates":  TestTheClientCertificateIsSent,
		"wrong scheme":         TestTheWrongSchemeIsReported,
		"broken HTTP/2":        TestBrokenHTTP2IsNotHTTP,
		"upstream":             TestUpstreamHTTPProbeChecker,
		"upstream's headers":   TestUpstreamHTTPProbeCheckerSendsHeaders,
		"upstream's redirects": TestUpstreamHTTPProbeCheckerNonLocalRedirects,
		"upstream's payload":   TestUpstreamHTTPProbeCheckerPayload,
	} {
		t.Run(name, test)
	}
}
