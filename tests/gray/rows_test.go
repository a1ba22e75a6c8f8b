//go:build linux

package gray

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/dialtest"
)

// row is a fault of docs/gray.md. Its target has the address 127.1.number.1, and the healthy twin 127.1.number.2.
type row struct {
	number int
	what   string
	short  bool          // also played in .ci/run
	within time.Duration // how soon it must be named
	named  string        // regular expression for the reason and detail that name the fault
	probe  string        // the probe of target and twin
	host   string        // the address of both, with N for the last number; replaces its IP address

	serve  func(t *testing.T, ip string) (fail func()) // starts a healthy server
	fail   func()                                      // injects the fault into the target's server
	result result
}

// soon is how soon most faults must be named.
const soon = 7 * time.Second

// maxLines is the maximum number of lines in the configuration of a target.
const maxLines = 10

// allRows returns the faults, in the order of docs/gray.md.
func allRows(root *dialtest.Authority, silence func()) []*row {
	rows := append(ofServers(), ofNetworks(root, silence)...)
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.number, b.number) })
	return rows
}

// ofServers returns the faults of servers with their own program: wrong or late responses.
func ofServers() []*row {
	return []*row{
		{
			number: 1, what: "connections are accepted, and workers hang", within: soon,
			named: `^http\.timeout: .`,
			probe: "http { port = 80 }",
			serve: web(ok, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		},
		{
			number: 2, what: "`/health` says 200, and the data path 500", within: soon,
			named: `^http\.status: .*500.*/api/items/1.*no connection to the store`,
			probe: "http {\n port = 80\n path = \"/api/items/1\"\n}",
			serve: web(ok, pathFails),
		},
		{
			number: 3, what: "three of ten requests fail", within: 10 * time.Second, short: true,
			named: `^http\.status: \d+ of the last \d+ attempts failed.*500`,
			probe: "http { port = 80 }\npolicy = \"evidence\"\nfailing_period = \"100ms\"",
			serve: web(ok, someFail()),
		},
		{
			number: 4, what: "ten times slower, inside the timeout", within: soon, short: true,
			named: `^target\.slow: .*took \d+(\.\d+)?ms`,
			probe: "http { port = 80 }\nwarn_after = \"25ms\"",
			serve: web(slow(5*time.Millisecond), slow(50*time.Millisecond)),
		},
		{
			number: 7, what: "reads work, writes fail (Redis)", within: soon,
			named: `^tcp\.expect: the response of \d+ bytes is not what was expected`,
			probe: "tcp {\n port = 6379\n send = \"SET sonde:probe 1 EX 60\\r\\nQUIT\\r\\n\"\n expect_regex = \"^\\\\+OK\"\n}",
			serve: redis,
		},
		{
			number: 11, what: "a crash every 20 seconds, between two attempts (from the second one on)", within: soon,
			named: `^tcp\.closed: .*ended \d+ times`,
			probe: "tcp {\n port = 80\n max_ends = 1\n keepalive {}\n}",
			serve: crashing,
		},
		{
			number: 13, what: "wrong content, with the status 200", within: soon, short: true,
			named: `^http\.assert: .*status = maintenance`,
			probe: "http {\n port = 80\n json_equals = { \"status\" = \"ok\" }\n}",
			serve: web(ok, body(`{"status": "maintenance"}`)),
		},
		{
			number: 14, what: "replication falls behind, by 10 seconds each second", within: soon,
			named: `^http\.assert: .*lag_seconds = \d+`,
			probe: "http {\n port = 80\n json_max = { \"lag_seconds\" = 10 }\n}",
			serve: web(ok, behind()),
		},
		{
			number: 15, what: "the clock of the target is an hour off", within: soon,
			named: `^http\.clock_skew: .*(1h|59m\d+s) behind`,
			probe: "http {\n port = 80\n max_clock_skew = \"1m\"\n}",
			serve: web(ok, late),
		},
	}
}

// ofNetworks returns the faults of the path to a server, and of its certificate.
func ofNetworks(root *dialtest.Authority, silence func()) []*row {
	return []*row{
		{
			number: 5, what: "one of two addresses of a name is dead", within: soon, host: "twoN.test",
			named: `127\.1\.5\.11`,
			probe: "http {\n port = 80\n addresses = \"some\"\n}",
			serve: twoAddresses,
		},
		{
			number: 6, what: "IPv6 is dead, IPv4 is well", within: soon, host: "bothN.test",
			named: `^tcp\.timeout: .*fd00::6:1`,
			probe: "tcp {\n port = 80\n ip_family = \"6\"\n}\neffect = \"warn\"",
			serve: bothFamilies,
		},
		{
			number: 8, what: "the certificate of an authority ends in 20 hours", within: soon,
			named: `^tls\.expiring: certificate 2 of \d.*R3`,
			probe: "http {\n scheme = \"https\"\n port = 443\n tls { min_validity = \"7d\" }\n}",
			serve: func(t *testing.T, ip string) func() { return encrypted(t, ip, root) },
		},
		{
			number: 9, what: "30 % of packets are lost on the way there", within: 10 * time.Second,
			named: `^icmp\.loss: .*\d of 10 requests`,
			probe: "icmp { count = 10 }",
			serve: dropping("icmp type echo-request numgen random mod 100 < 30"),
		},
		{
			number: 10, what: "one of two name servers is silent", within: soon, host: "namesN.test",
			named: `^name server 127\.1\.10\.11:53 has not answered \d+ queries`,
			probe: "http { port = 80 }",
			serve: func(t *testing.T, ip string) func() { plain(t, ip); return silence },
		},
		{
			number: 12, what: "reachable from one network only", within: soon,
			named: `^tcp\.timeout: .`,
			probe: "tcp {\n port = 80\n source_address = \"127.1.12.9\"\n}\neffect = \"warn\"",
			serve: dropping("ip saddr 127.1.12.9"),
		},
	}
}

// target returns the configuration of a target.
func (r *row) target(name, ip string) string {
	return fmt.Sprintf("target %q {\n  address = %q\n  probe \"readiness\" {\n%s\n  }\n}\n", name, ip, r.probe)
}
