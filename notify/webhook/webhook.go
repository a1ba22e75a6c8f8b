// Package webhook notifies a receiver by HTTP requests with JSON, one for each notice, signed according to Standard
// Webhooks (https://www.standardwebhooks.com).
//
//	webhook.go  Config, and the requests
//	body.go     the body of a request
package webhook

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures the receiver.
type Config struct {
	URL             string              `hcl:"url" doc:"URL to which requests are made, by POST. Logs, metrics and the API show the scheme and the host only"`
	Body            string              `hcl:"body,optional" doc:"JSON to send. In its texts $(NAME) stands for a variable: summary, kind, name, status (firing or resolved), state, severity, reason, detail, probe, startsAt, endsAt, link, test, and labels.NAME; $$ is one $" default:"an object with all of them"`
	Secret          string              `hcl:"secret,optional,sensitive" doc:"key by which requests are signed, at least 16 bytes; one that begins with whsec_ is base64 after that, as receivers hand it out" default:"none; requests are not signed"`
	Token           string              `hcl:"token,optional,sensitive" doc:"bearer token to send" default:"none"`
	Headers         map[string][]string `hcl:"headers,optional,sensitive" doc:"headers of each request" default:"none"`
	ResendEvery     time.Duration       `hcl:"resend_every,optional,nonzero" doc:"how often a notice is sent again while the trouble lasts" default:"never" min:"10s" max:"168h"`
	Timeout         time.Duration       `hcl:"timeout,optional,nonzero" doc:"time for a request" default:"10s" min:"1s" max:"1m"`
	BasicAuth       *httpauth.Basic     `hcl:"basic_auth,block" doc:"authenticates with a name and a password. Not with token"`
	BearerTokenFile string              `hcl:"bearer_token_file,optional,path" doc:"file with a bearer token, which is read for each request: it may be replaced at any time. Not with token or basic_auth" default:"none"`
	TLS             *notify.TLS         `hcl:"tls,block" doc:"how to verify the receiver, and which client certificate to present"`
}

// Limits and defaults of a Config.
const (
	defaultTimeout = 10 * time.Second
	minSecret      = 16 // bytes
	maxBody        = 16 << 10
)

// Check returns the error of an invalid configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	if err := limits.Check(c, "").Err(); err != nil {
		return err
	}
	if _, err := c.key(); err != nil {
		return err
	}
	if _, err := parseBody(c.Body); err != nil {
		return err
	}
	return c.http().Check("url")
}

// key returns the signing key, or nil.
func (c Config) key() ([]byte, error) {
	if c.Secret == "" {
		return nil, nil
	}
	key := []byte(c.Secret)
	if text, ok := strings.CutPrefix(c.Secret, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, &probe.FieldError{Field: "secret", Problem: "is not base64 after whsec_", Hint: "write it as the receiver shows it", Plain: true}
		}
	}
	if len(key) < minSecret {
		return nil, &probe.FieldError{Field: "secret", Problem: fmt.Sprintf("has fewer than %d bytes", minSecret), Hint: "make one: openssl rand -base64 32; or write that of the receiver, which begins with whsec_", Plain: true}
	}
	return key, nil
}

func (c Config) http() notify.HTTP {
	return notify.HTTP{URL: c.URL, Token: c.Token, Headers: c.Headers, TLS: c.TLS, Auth: httpauth.Auth{Basic: c.BasicAuth, BearerTokenFile: c.BearerTokenFile}}
}

// Fill sets the parts of a notifier that depend on the output. The configuration must have passed Check.
func (c Config) Fill(spec *notify.Spec) {
	spec.Resend, spec.Timeout, spec.Batch = c.ResendEvery, cmp.Or(c.Timeout, defaultTimeout), 1
	spec.Files = c.http().Files()
	spec.Receivers = []notify.Receiver{{Name: c.http().Server(), Identity: c.URL, New: func(redact func(string) string) (notify.Sender, error) {
		s := &sender{resend: c.ResendEvery}
		var err error
		if s.key, err = c.key(); err == nil {
			s.body, err = parseBody(c.Body)
		}
		if err == nil {
			s.client, err = c.http().Client(redact)
		}
		return s, err
	}}}
}

// sender makes the requests.
type sender struct {
	client *notify.Client
	resend time.Duration
	key    []byte // nil: requests are not signed
	body   any    // a JSON value with variables; nil for an object of all of them
}

// Close implements io.Closer.
func (s *sender) Close() error { return s.client.Close() }

// Send implements notify.Sender.
func (s *sender) Send(ctx context.Context, notices []notify.Notice) error {
	for i := range notices {
		body, err := render(s.body, &notices[i])
		if err != nil {
			return errors.Join(notify.ErrRejected, err)
		}
		if err := s.client.Post(ctx, body, s.headers(&notices[i], body, time.Now())); err != nil {
			return err
		}
	}
	return nil
}

// headers returns the headers with which a receiver can identify and verify requests.
func (s *sender) headers(n *notify.Notice, body []byte, now time.Time) http.Header {
	id, at := s.noticeID(n, now), strconv.FormatInt(now.Unix(), 10)
	h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}}
	if s.key != nil {
		mac := hmac.New(sha256.New, s.key)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return h
}

// noticeID returns an ID that is the same for all attempts to send a notice, and unique otherwise: a repetition of the
// notice, or one with other labels, has a different ID.
func (s *sender) noticeID(n *notify.Notice, now time.Time) string {
	var repetition int64
	if n.Repeated {
		repetition = now.Truncate(s.resend).Unix()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %s %v %d %d %v %d %v %q", n.Kind, n.Name, n.State, n.Firing, n.StartsAt.UnixNano(), n.At.UnixNano(), n.Test, repetition, n.Severity, n.Labels))
	return "msg_" + hex.EncodeToString(sum[:16])
}
