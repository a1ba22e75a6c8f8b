package guest

import (
	"context"
	"net"
	"net/netip"
	"strconv"
)

// Target is the probed target. It gives one attempt access to the network and the host. Its methods
// may be called until the attempt ends.
type Target[S any] struct {
	Name     string            // a unique path, "shop/web"
	Address  string            // IP address or host name; empty if the target has none
	Ports    map[string]uint16 // named ports; read-only
	Settings *S                // of the probe; read-only

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

// Maximum lengths, in bytes.
const (
	MaxState = 4 << 10 // of SetState
	MaxKey   = 63      // of Hold's key
)

// Dial connects to an address. The network is tcp, tls, udp or unix. The address is host:port or,
// for unix, a path. An empty host is the target's own address; the port is a number or the name of
// one of the target's ports: ":6379", ":redis". Dial returns at ctx's deadline at the latest.
// Errors are of type *Error.
//
// The Conn can be passed to libraries that use a net.Conn, including those that read in a separate
// goroutine. A read is cheapest while the attempt has one goroutine and no timer.
func (t Target[S]) Dial(ctx context.Context, network, address string) (*Conn, error) {
	return t.connection().dial(ctx, network, address, TLS{})
}

// DialTLS is like Dial over tcp followed by a TLS handshake as the client. The host performs the
// handshake, which is much faster than crypto/tls in a plugin.
func (t Target[S]) DialTLS(ctx context.Context, address string, c TLS) (*Conn, error) {
	return t.connection().dial(ctx, "tls", address, c)
}

// DialPort connects to a port of the target, given as a number or a name, over tcp or udp, or over TLS if
// secure is not nil. Protocols in alpn replace those of secure. Reads and writes fail after ctx's deadline.
func (t Target[S]) DialPort(ctx context.Context, network, port string, secure *TLS, alpn ...string) (*Conn, error) {
	var config TLS
	if secure != nil {
		network, config = "tls", *secure
	}
	if len(alpn) > 0 {
		config.ALPN = alpn
	}
	c, err := t.connection().dial(ctx, network, ":"+port, config)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline) // the first read returns the same error
	}
	return c, nil
}

// HostPort returns the target's address with a port, given as a number or a name: "10.0.0.7:8080".
func (t Target[S]) HostPort(port string) string {
	if n, ok := t.Ports[port]; ok {
		port = strconv.Itoa(int(n))
	}
	return net.JoinHostPort(t.Address, port)
}

// DialContext is Dial with the signature of net.Dialer.DialContext. It can be used as http.Transport.DialContext, as
// the Dialer of go-redis, as the DialFunc of pgx and, with a fixed network, in the hooks of go-sql-driver/mysql and
// grpc-go.
func (t Target[S]) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := t.Dial(ctx, network, address)
	if err != nil {
		return nil, err // not a net.Conn with a nil *Conn
	}
	return c, nil
}

// Resolve looks up a host name. It needs a grant. Dial does not need it: it looks up names itself.
func (t Target[S]) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	return t.connection().resolve(ctx, name)
}

// Hold passes c to the host, which keeps it open for the probe's next attempt under a key of 1 to
// MaxKey bytes: see Held. This attempt can no longer use c. Any other connection that was held
// under key is closed. No unprocessed bytes of c should be left in buffers. If the peer closes the
// connection, the host starts the next attempt at once. Held connections are closed when the probe
// is changed or removed, and when an attempt panics.
func (t Target[S]) Hold(key string, c *Conn) error { return t.connection().hold(key, c) }

// Held returns the connection that an earlier attempt passed to Hold under key, and whether there
// is one. The connection is closed when the attempt ends, unless it is passed to Hold again.
func (t Target[S]) Held(key string) (*Conn, bool) { return t.connection().held(key) }

// State returns the bytes that the previous attempt of this probe passed to SetState. It is empty
// in the first attempt, and in the first attempt after a restart of the engine.
func (t Target[S]) State() []byte { return t.connection().state() }

// SetState keeps a copy of at most MaxState bytes for the probe's next attempt.
func (t Target[S]) SetState(b []byte) error { return t.connection().setState(b) }

// Log writes one log record of at most 4 KiB. It can also be called while settings are checked.
func Log(l Level, text string) { new(host).log(l, text) }

// Log writes one log record of at most 4 KiB. The host drops records above its limits.
func (t Target[S]) Log(l Level, text string) { t.connection().log(l, text) }

// Gauge sets a metric of the plugin as a whole. A name is a letter a-z followed by up to
// 62 letters, digits or underscores; the host limits the number of names.
func (t Target[S]) Gauge(name string, value float64) {
	t.connection().metric(gauge, name, value)
}

// Count adds a value of 0 or more to a metric of the plugin as a whole.
func (t Target[S]) Count(name string, value float64) {
	t.connection().metric(counter, name, value)
}

// Measure reports a number about this attempt, such as the number of records in a response. Clients
// that request a single attempt receive it, such as Prometheus by /probe; earlier hosts ignore it.
// Names are as in Gauge.
func (t Target[S]) Measure(name string, value float64) {
	t.connection().metric(attempt, name, value)
}

// connection returns the host. For a Target that was created as a literal, it returns a new host
// without state.
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
	attempt = 3
)

// Level is the level of a log record.
type Level int32

// The levels.
const (
	LogDebug Level = iota + 1
	LogInfo
	LogWarn
	LogError
)

// TLS configures a TLS client. The zero value is safe: it requires a certificate for the dialled
// host, from an authority that the engine's machine trusts. A *TLS can be a block of a plugin's
// settings.
type TLS struct {
	ServerName string   `sonde:"server_name" doc:"host name that the certificate must have; default: the host that is dialled"`
	Verify     *bool    `sonde:"verify" default:"true" doc:"whether the certificate must be valid; false accepts any"`
	CA         string   `sonde:"ca_pem" doc:"certificate authorities to trust, as PEM; default: those of the engine's machine"`
	Cert       string   `sonde:"cert_pem" doc:"client certificate, as PEM"`
	Key        string   `sonde:"key_pem,sensitive" doc:"key of the client certificate, as PEM"`
	ALPN       []string // protocols to offer, in order of preference
}

// options returns c as lines, in the format that the host reads.
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

// Info identifies a property of a connection, such as its local address, for
// Conn.Info.
type Info uint32

// The properties that Conn.Info returns.
const (
	InfoRemote      Info = iota + 1 // the peer's address, "10.0.0.7:8080", or a path
	InfoLocal                       // the local address
	InfoALPN                        // the protocol negotiated by TLS, "h2"
	InfoTLS                         // the TLS version, "1.3"
	InfoCertificate                 // the peer's certificate, as lines: sha256=, not_before= and not_after= (seconds since 1970), subject=, issuer=, dns=
)
