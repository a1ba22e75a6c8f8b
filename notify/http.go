package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/probe"
)

// TLS is the tls block of an output that makes requests by HTTPS.
type TLS struct {
	Verify     *bool  `hcl:"verify,optional" doc:"whether the certificate of the receiver must be valid, match its name, and be signed by a trusted authority" default:"true"`
	CAFile     string `hcl:"ca_file,optional,path" doc:"PEM file with the authorities to trust; not with verify = false" default:"those of the system"`
	CertFile   string `hcl:"cert_file,optional,path" doc:"PEM file with the client certificate, for a receiver that asks for one; needs key_file" default:"none"`
	KeyFile    string `hcl:"key_file,optional,path" doc:"PEM file with the private key of the client certificate" default:"none"`
	ServerName string `hcl:"server_name,optional" doc:"name that is sent to the receiver (SNI) and must match its certificate" default:"the host of the URL"`
}

// HTTP is the configuration of a sender's requests.
type HTTP struct {
	URL     string
	Token   string              // sent as Authorization: Bearer; empty for none
	Headers map[string][]string // of each request
	TLS     *TLS
	Auth    httpauth.Auth
}

// Limits of a request.
const (
	maxURL      = 2000
	maxHeaders  = 50
	maxResponse = 4 << 10 // bytes of a response body that are read
	maxText     = 200     // bytes of it that an error includes
)

// Check returns the error of an invalid configuration: a *probe.FieldError, or nil. It reads the files of the tls block.
// argument is the name of the argument with the URL.
func (h HTTP) Check(argument string) error {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(h.URL) > maxURL:
		return &probe.FieldError{Field: argument, Problem: "must be the URL of a receiver, by http or https", Hint: "for example http://127.0.0.1:9093"}
	case u.User != nil:
		return &probe.FieldError{Field: argument, Problem: "must not have a user name or a password, which would be shown", Hint: "set username and password in a basic_auth block"}
	case u.Fragment != "":
		return &probe.FieldError{Field: argument, Problem: "must not have a fragment"}
	case h.TLS != nil && u.Scheme != "https":
		return probe.FieldErrorf("tls", "needs a URL with https")
	}
	if problem := dial.HostProblem(dial.CanonicalHost(u.Hostname())); problem != "" {
		return probe.FieldErrorf(argument, "has the host %.80q%s", u.Hostname(), problem)
	}
	if n, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || n < 1 || n > 65535) {
		return probe.FieldErrorf(argument, "has the port %.20q; it must be from 1 to 65535", u.Port())
	}
	if err := h.checkHeaders(); err != nil {
		return err
	}
	if h.Token != "" && h.Auth != (httpauth.Auth{}) {
		return &probe.FieldError{Field: "token", Problem: "cannot be combined with basic_auth or bearer_token_file: a request has one Authorization", Plain: true}
	}
	for name := range h.Headers {
		if h.Token != "" && strings.EqualFold(name, "Authorization") {
			return probe.FieldErrorf("token", "cannot be combined with the header Authorization, which it sets")
		}
	}
	_, err = h.TLS.dial().Load()
	return cmp.Or(h.Auth.Check(h.Headers), err)
}

func (h HTTP) checkHeaders() error {
	if len(h.Headers) > maxHeaders {
		return probe.FieldErrorf("headers", "has %d elements, at most %d are allowed", len(h.Headers), maxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		if err := httpauth.CheckHeader("headers", name, h.Headers[name]...); err != nil {
			return err
		}
	}
	if strings.ContainsAny(h.Token, "\r\n\x00") {
		return &probe.FieldError{Field: "token", Problem: "has a line break", Hint: `write trimspace(file("…"))`, Plain: true}
	}
	return nil
}

// dial returns the block for package dial. A nil t means the defaults.
func (t *TLS) dial() *dial.TLS {
	if t == nil {
		return new(dial.TLS)
	}
	return &dial.TLS{Verify: t.Verify, CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
}

// Files returns a digest of the files of the tls block, which changes when a certificate is renewed. A file that cannot
// be read counts as empty.
func (h HTTP) Files() [sha256.Size]byte {
	if h.TLS == nil {
		return [sha256.Size]byte{}
	}
	all := sha256.New()
	for _, name := range []string{h.TLS.CAFile, h.TLS.CertFile, h.TLS.KeyFile} {
		var text []byte
		if name != "" {
			text, _ = files.Read(name, dial.MaxFile) // Client returns its error
		}
		sum := sha256.Sum256(text)
		all.Write(sum[:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// Name returns the URL without its query, which may be secret.
func (h HTTP) Name() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return "?"
	}
	dial.CanonicalURL(u)
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// Server returns the scheme and the host of the URL, for services such as chats whose URL path is secret as well.
func (h HTTP) Server() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return "?"
	}
	dial.CanonicalURL(u)
	return u.Scheme + "://" + u.Host
}

// ID returns a form of the URL that is equal for different spellings of its host, port and scheme.
func (h HTTP) ID() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return h.URL
	}
	port := u.Port()
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n)
	} else if port = "80"; u.Scheme == "https" {
		port = "443"
	}
	u.Host = net.JoinHostPort(dial.HostID(u.Hostname()), port)
	return u.String()
}

// Client makes requests as an HTTP configures them.
type Client struct {
	http   HTTP
	client *http.Client
	redact func(text string) string
}

// idleTimeout is how long an idle connection is kept.
const idleTimeout = 90 * time.Second

// Client returns a client. It uses no proxy and follows no redirects. See Receiver.New for redact.
func (h HTTP) Client(redact func(text string) string) (*Client, error) {
	config, err := h.TLS.dial().Load()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext: (&net.Dialer{KeepAlive: idleTimeout / 3}).DialContext, TLSClientConfig: config, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 1, MaxConnsPerHost: 2, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: 64 << 10,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Client{h, client, redact}, nil
}

// Close closes idle connections. It returns nil.
func (c *Client) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

// Post sends a JSON body, with the headers of more, and returns nil if the status is from 200 to 299. Otherwise the
// error includes the status and the beginning of the response. It is ErrRejected if the status means that this body will
// never be accepted, and a *RetryError if the receiver asks for a pause.
func (c *Client) Post(ctx context.Context, body []byte, more http.Header) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.http.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "sonde")
	if c.http.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.http.Token)
	}
	credentials, err := c.http.Auth.Header()
	if err != nil {
		return err
	}
	if credentials != "" {
		request.Header.Set("Authorization", credentials)
	}
	for name, values := range c.http.Headers {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	for name, values := range more {
		request.Header[name] = values
	}
	response, err := c.client.Do(request)
	if err != nil {
		if of := (*url.Error)(nil); errors.As(err, &of) { // its text repeats the URL
			err = of.Err
		}
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	status := response.StatusCode
	if status/100 == 2 {
		return nil
	}
	err = fmt.Errorf("status %d: %s", status, probe.CleanText(strings.TrimSpace(c.redact(httpauth.Hide(string(text), credentials))), maxText))
	if status/100 == 3 {
		err = fmt.Errorf("status %d: redirects are not followed; configure the URL that it redirects to", status)
	}
	if isRejection(status) {
		return errors.Join(ErrRejected, err)
	}
	if seconds, bad := strconv.Atoi(response.Header.Get("Retry-After")); bad == nil && seconds > 0 {
		err = &RetryError{err, min(time.Duration(seconds), time.Hour/time.Second) * time.Second}
	}
	return err
}

// isRejection reports whether a status is about the request body. Other statuses are about the receiver or its
// configuration, such as a wrong token or path, which people can correct meanwhile.
func isRejection(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}
