package blackbox

import (
	"cmp"
	"hash/fnv"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/sonde-probe/sonde/probe"
)

// helps are the descriptions of the metrics, taken from blackbox_exporter 0.23.
var helps = map[string]string{
	"probe_success":                                 "Displays whether or not the probe was a success",
	"probe_duration_seconds":                        "Returns how long the probe took to complete in seconds",
	"probe_dns_lookup_time_seconds":                 "Returns the time taken for probe dns lookup in seconds",
	"probe_ip_protocol":                             "Specifies whether probe ip protocol is IP4 or IP6",
	"probe_ip_addr_hash":                            "Specifies the hash of IP address. It's useful to detect if the IP address changes.",
	"probe_failed_due_to_regex":                     "Indicates if probe failed due to regex",
	"probe_http_duration_seconds":                   "Duration of http request by phase, summed over all redirects",
	"probe_http_content_length":                     "Length of http content response",
	"probe_http_uncompressed_body_length":           "Length of uncompressed response body",
	"probe_http_redirects":                          "The number of redirects",
	"probe_http_ssl":                                "Indicates if SSL was used for the final redirect",
	"probe_http_status_code":                        "Response HTTP status code",
	"probe_http_version":                            "Returns the version of HTTP of the probe response",
	"probe_http_last_modified_timestamp_seconds":    "Returns the Last-Modified HTTP response header in unixtime",
	"probe_ssl_earliest_cert_expiry":                "Returns last SSL chain expiry in unixtime",
	"probe_ssl_last_chain_expiry_timestamp_seconds": "Returns last SSL chain expiry in timestamp",
	"probe_ssl_last_chain_info":                     "Contains SSL leaf certificate information",
	"probe_tls_version_info":                        "Returns the TLS version used or NaN when unknown",
	"probe_icmp_duration_seconds":                   "Duration of icmp request by phase",
	"probe_icmp_reply_hop_limit":                    "Replied packet hop limit (TTL for ipv4)",
	"probe_dns_duration_seconds":                    "Duration of DNS request by phase",
	"probe_dns_answer_rrs":                          "Returns number of entries in the answer resource record list",
	"probe_dns_authority_rrs":                       "Returns number of entries in the authority resource record list",
	"probe_dns_additional_rrs":                      "Returns number of entries in the additional resource record list",
	"probe_dns_query_succeeded":                     "Displays whether or not the query was executed successfully",
	"probe_dns_serial":                              "Returns the serial number of the zone",
	"probe_grpc_duration_seconds":                   "Duration of gRPC request by phase",
	"probe_grpc_healthcheck_response":               "Response HealthCheck response",
	"probe_grpc_ssl":                                "Indicates if SSL was used for the connection",
	"probe_grpc_status_code":                        "Response gRPC status code",
}

// gauges are the metrics of an attempt.
type gauges struct{ *prometheus.Registry }

// add adds a series, unless there is another metric with its name. Labels are alternating names and values.
func (g gauges) add(name string, value float64, labels ...string) {
	constant := prometheus.Labels{}
	for pair := range slices.Chunk(labels, 2) {
		constant[pair[0]] = strings.ToValidUTF8(pair[1], "\uFFFD")
	}
	one := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: cmp.Or(helps[name], "Measured by the plugin"), ConstLabels: constant})
	one.Set(value)
	_ = g.Register(one) // fails if the name is taken or invalid
}

// text returns the metrics in Prometheus' text format, version 0.0.4.
func (g gauges) text() string {
	var s strings.Builder
	families, _ := g.Gather() // cannot fail for gauges
	for _, f := range families {
		_, _ = expfmt.MetricFamilyToText(&s, f) // a Builder returns no error
	}
	return s.String()
}

// phase adds the duration of a phase of an attempt.
func (g gauges) phase(name, phase string, d time.Duration) {
	g.add(name, d.Seconds(), "phase", phase)
}

// metrics returns the metrics of an attempt.
func metrics(m *module, r *probe.Result, t *probe.Trace) gauges {
	g := gauges{prometheus.NewRegistry()}
	g.add("probe_success", number(r.Outcome == probe.Success || r.Outcome == probe.Warning))
	g.add("probe_duration_seconds", r.Took.Seconds())
	g.add("probe_dns_lookup_time_seconds", r.Timings.Resolve.Seconds())
	g.add("probe_ip_protocol", protocol(t.Peer))
	g.add("probe_ip_addr_hash", addressHash(t.Peer))
	switch m.HandlerName {
	case "http":
		g.http(r, t)
	case "tcp":
		g.add("probe_failed_due_to_regex", number(r.Reason == probe.ReasonTCPExpect || r.Reason == probe.ReasonTCPClosed))
		g.tls(t.TLS)
	case "icmp":
		g.icmp(r, t)
	default:
		g.plugin(r, t)
	}
	return g
}

func (g gauges) http(r *probe.Result, t *probe.Trace) {
	facts, response := r.Facts(), t.HTTP
	if response == nil {
		response = &probe.HTTPTrace{}
	}
	const durations = "probe_http_duration_seconds"
	g.phase(durations, "connect", r.Timings.Connect)
	g.phase(durations, "processing", r.Timings.FirstByte)
	g.phase(durations, "resolve", r.Timings.Resolve)
	g.phase(durations, "tls", r.Timings.TLS)
	g.phase(durations, "transfer", response.Transfer)
	version, _ := strconv.ParseFloat(strings.TrimPrefix(facts.Protocol, "HTTP/"), 64) // 0 without a response
	g.add("probe_http_version", version)
	g.add("probe_http_status_code", float64(r.HTTPStatus))
	g.add("probe_http_redirects", float64(facts.Redirects)+number(isRedirect(r.HTTPStatus)))
	g.add("probe_http_content_length", float64(response.ContentLength))
	g.add("probe_http_uncompressed_body_length", float64(response.BodyLength))
	g.time("probe_http_last_modified_timestamp_seconds", response.LastModified)
	g.add("probe_failed_due_to_regex", number(r.Reason == probe.ReasonHTTPAssert))
	g.add("probe_http_ssl", number(t.TLS != nil && r.HTTPStatus != 0))
	if r.HTTPStatus != 0 {
		g.tls(t.TLS)
	}
}

func (g gauges) icmp(r *probe.Result, t *probe.Trace) {
	const durations = "probe_icmp_duration_seconds"
	g.phase(durations, "resolve", r.Timings.Resolve)
	g.phase(durations, "rtt", r.Timings.FirstByte)
	g.phase(durations, "setup", r.Timings.Connect)
	if t.HopLimit > 0 {
		g.add("probe_icmp_reply_hop_limit", float64(t.HopLimit))
	}
}

// isRedirect reports whether a status is that of a redirect that was not followed, which blackbox_exporter counts as
// well.
func isRedirect(status uint16) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// tls adds the results of a handshake, if there was one.
func (g gauges) tls(t *probe.TLSTrace) {
	if t == nil {
		return
	}
	g.time("probe_ssl_last_chain_expiry_timestamp_seconds", t.LastChainExpiry)
	g.certificate(t)
}

// certificate adds the server's certificate and the version of TLS.
func (g gauges) certificate(t *probe.TLSTrace) {
	g.time("probe_ssl_earliest_cert_expiry", t.FirstExpiry)
	g.add("probe_ssl_last_chain_info", 1,
		"fingerprint_sha256", t.SHA256, "issuer", t.Issuer, "subject", t.Subject, "subjectalternative", strings.Join(t.DNSNames, ","))
	g.add("probe_tls_version_info", 1, "version", t.Version)
}

// time adds a time, unless it is unknown: a number in its place would be a time long ago, and an alert on early expiry
// would fire, as it does with blackbox_exporter.
func (g gauges) time(name string, at time.Time) {
	if !at.IsZero() {
		g.add(name, float64(at.Unix()))
	}
}

// servingStatuses are the names of the serving statuses of grpc.health.v1, by number.
var servingStatuses = [...]string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// Names of measurements of the example plugins dns and grpc, from which further metrics are derived.
const (
	measuredDNS  = "dns_query_succeeded"
	measuredGRPC = "grpc_serving_status"
)

// plugin adds the measurements of a plugin. The metrics of blackbox_exporter's probers dns and grpc have phases and
// labels, which the numbers of a plugin do not have.
func (g gauges) plugin(r *probe.Result, t *probe.Trace) {
	status, isGRPC := t.Measured[measuredGRPC]
	for name, v := range t.Measured {
		if name != measuredGRPC {
			g.add("probe_"+name, v)
		}
	}
	switch _, isDNS := t.Measured[measuredDNS]; {
	case isDNS:
		g.phase("probe_dns_duration_seconds", "connect", r.Timings.Connect+r.Timings.TLS)
		g.phase("probe_dns_duration_seconds", "request", r.Timings.FirstByte)
		g.phase("probe_dns_duration_seconds", "resolve", r.Timings.Resolve)
	case isGRPC:
		g.phase("probe_grpc_duration_seconds", "check", r.Took-r.Timings.Resolve)
		g.phase("probe_grpc_duration_seconds", "resolve", r.Timings.Resolve)
		for i, name := range servingStatuses {
			g.add("probe_grpc_healthcheck_response", number(status == float64(i)), "serving_status", name)
		}
		g.add("probe_grpc_ssl", number(t.TLS != nil))
		if t.TLS != nil {
			g.certificate(t.TLS)
		}
	default:
		g.tls(t.TLS)
	}
}

// protocol returns the IP version of an address; 0 for none.
func protocol(ip netip.Addr) float64 {
	switch {
	case !ip.IsValid():
		return 0
	case ip.Is4():
		return 4
	}
	return 6
}

// addressHash returns a number that differs for different addresses; 0 for none.
func addressHash(ip netip.Addr) float64 {
	if !ip.IsValid() {
		return 0
	}
	h := fnv.New32a()
	h.Write(ip.AsSlice())
	return float64(h.Sum32())
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
