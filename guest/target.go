package guest

import (
	"context"
	"net"
	"net/netip"
)

// Target is what is probed in one attempt, and the attempt's way to the outside. Its
// methods may be called until the attempt ends.
type Target[S any] struct {
	Name     string            // a unique path, "shop/web"
	Address  string            // IP address or host name; empty when it has none
	Ports    map[string]uint16 // named ports; not to be written
	Settings *S                // of the probe; shared by its attempts, not to be written

	host *host
}

func targetOf[S any](h *host, settings *S) Target[S] {
	return Target[S]{Name: h.name, Address: h.address, Ports: h.ports, Settings: settings, host: h}
}

// endpoint is a Target without the type of its settings.
type endpoint struct {
	name, address string
	ports         map[string]uint16
}

// Bounds, in bytes.
const (
	MaxState = 4 << 10 // of SetState
	MaxKey   = 63      // of Hold's key
)

// Dial connects. The network is tcp, tls, udp or unix, and the address host:port or,
// for unix, a path. An empty host is the target's own address, and the port a
// number or the name of one of the target's ports: ":6379", ":redis". It returns
// at ctx's deadline at the latest. An error is an *Error.
//
// While a Conn waits, the whole plugin waits: it is for those who write and read in
// one goroutine. See DialContext for libraries.
func (t Target[S]) Dial(ctx context.Context, network, address string) (*Conn, error) {
	return t.connection().dial(ctx, network, address, "", false)
}

// DialTLS is Dial over tcp with the handshake of a TLS client, which the host makes:
// that is much faster than crypto/tls in a plugin.
func (t Target[S]) DialTLS(ctx context.Context, address string, c TLS) (*Conn, error) {
	return t.connection().dial(ctx, "tls", address, c.options(), false)
}

// DialContext is Dial for libraries: while its connections wait, other goroutines
// run. It fits http.Transport.DialContext, the Dialer of go-redis, the DialFunc of
// pgx and, with a network, the hooks of go-sql-driver/mysql and grpc-go.
func (t Target[S]) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := t.connection().dial(ctx, network, address, "", true)
	if err != nil {
		return nil, err
	}
	return c.NetConn()
}

// Resolve looks a host name up. It needs a grant; Dial looks names up by itself.
func (t Target[S]) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	return t.connection().resolve(ctx, name)
}

// Hold gives a connection to the host, which keeps it for the probe's next attempt
// under a key of 1 to MaxKey bytes. It cannot be used any more in this attempt. What
// was held under the key before is closed. Nothing that was read from the
// connection should be left in a buffer. When it ends meanwhile, that attempt is made
// at once. Held connections are closed when the probe is changed or removed, and when
// an attempt panics.
func (t Target[S]) Hold(key string, c *Conn) error { return t.connection().hold(key, c) }

// Held takes back what was held under a key. It returns false when there is nothing.
// The connection is closed at the end of the attempt unless it is held again.
func (t Target[S]) Held(key string) (*Conn, bool) { return t.connection().held(key) }

// State returns what the probe's last attempt gave to SetState. It is empty for the
// first attempt, and after a restart.
func (t Target[S]) State() []byte { return t.connection().state() }

// SetState keeps at most MaxState bytes for the probe's next attempt. They are
// copied.
func (t Target[S]) SetState(b []byte) error { return t.connection().setState(b) }

// Log writes one record, at most 4 KiB. The host bounds how much is logged.
func (t Target[S]) Log(l Level, text string) { t.connection().log(l, text) }

// Gauge sets a metric of the plugin as a whole. A name is a letter a-z, then up to
// 62 letters, digits or underscores; the number of names is bounded by the host.
func (t Target[S]) Gauge(name string, value float64) {
	t.connection().metric(gauge, name, value)
}

// Count adds to a metric of the plugin as a whole. The value is 0 or more.
func (t Target[S]) Count(name string, value float64) {
	t.connection().metric(counter, name, value)
}

// connection returns the way to the outside. A Target that was made by hand has one
// that remembers nothing.
func (t Target[S]) connection() *host {
	if t.host != nil {
		return t.host
	}
	return &host{endpoint: endpoint{t.Name, t.Address, t.Ports}}
}

// The kinds of metrics.
const (
	gauge   = 1
	counter = 2
)

// Level is how much a log record matters.
type Level int32

// The levels.
const (
	LogDebug Level = iota + 1
	LogInfo
	LogWarn
	LogError
)

// TLS is what to demand of a server and what to show to it. The zero value is safe:
// it demands a certificate for the host that was dialled, of an authority that the
// host's machine knows. A *TLS can be a block of a plugin's settings.
type TLS struct {
	ServerName string   `sonde:"server_name" doc:"what the certificate must be for; default: the host that is dialled"`
	Verify     *bool    `sonde:"verify" default:"true" doc:"whether the certificate must be valid; false takes any"`
	CA         string   `sonde:"ca_pem" doc:"the authorities to trust, as PEM; default: those of the engine's machine"`
	Cert       string   `sonde:"cert_pem" doc:"a certificate to show, as PEM"`
	Key        string   `sonde:"key_pem,sensitive" doc:"its key, as PEM"`
	ALPN       []string // protocols to offer, the best first
}

// options returns c as lines, as the host reads them.
func (c TLS) options() string {
	var b []byte
	b = appendLine(b, "server_name", c.ServerName)
	for _, protocol := range c.ALPN {
		b = appendLine(b, "alpn", protocol)
	}
	if c.Verify != nil && !*c.Verify {
		b = appendLine(b, "verify", "none")
	}
	b = appendLine(b, "ca_pem", c.CA)
	b = appendLine(b, "cert_pem", c.Cert)
	b = appendLine(b, "key_pem", c.Key)
	return string(b)
}

// Info is something that is known of a connection.
type Info uint32

// What Conn.Info can tell.
const (
	InfoRemote      Info = iota + 1 // the peer's address, "10.0.0.7:8080", or a path
	InfoLocal                       // this side's
	InfoALPN                        // the protocol that TLS agreed on, "h2"
	InfoTLS                         // the version of TLS, "1.3"
	InfoCertificate                 // of the peer, as lines: sha256=, not_before= and not_after= (seconds since 1970), subject=, issuer=, dns=
)
