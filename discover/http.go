package discover

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// HTTP finds elements by querying an HTTP server.
type HTTP struct {
	URL             string              `hcl:"url" doc:"URL that answers in the format of Prometheus' http_sd_config: status 200 and a list in JSON"`
	Refresh         time.Duration       `hcl:"refresh,optional,nonzero" doc:"time between two requests" default:"1m" min:"1s" max:"24h"`
	Headers         map[string][]string `hcl:"headers,optional,sensitive" doc:"headers of each request" default:"none"`
	BasicAuth       *httpauth.Basic     `hcl:"basic_auth,block" doc:"authenticates with a name and a password"`
	BearerTokenFile string              `hcl:"bearer_token_file,optional,path" doc:"file with a bearer token, which is read for each request. Not with basic_auth" default:"none"`
	TLS             *dial.TLS           `hcl:"tls,block" doc:"how to verify the server, and which client certificate to present"`
}

const (
	defaultRefresh = time.Minute
	requestTimeout = 30 * time.Second
)

// Check validates the configuration. It returns a *probe.FieldError, or nil.
func (h HTTP) Check() error {
	if err := limits.Check(h, "").Err(); err != nil {
		return err
	}
	if err := checkURL("url", h.URL); err != nil {
		return err
	}
	for name, values := range h.Headers {
		if err := httpauth.CheckHeader("headers", name, values...); err != nil {
			return err
		}
	}
	return h.auth().Check(h.Headers)
}

func checkURL(field, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return &probe.FieldError{Field: field, Problem: "must be a URL with http or https and a host, without a password", Plain: true}
	}
	return nil
}

func (h HTTP) auth() httpauth.Auth {
	return httpauth.Auth{Basic: h.BasicAuth, BearerTokenFile: h.BearerTokenFile}
}

// Run implements Source.
func (h HTTP) Run(ctx context.Context, found func(Elements, error)) {
	c := client{tls: h.TLS}
	defer c.close()
	repeat(ctx, func() time.Duration {
		if all, err := h.ask(ctx, &c); ctx.Err() == nil {
			found(all, err)
		}
		return cmp.Or(h.Refresh, defaultRefresh)
	})
}

// client makes requests over one connection. The first request reads the TLS files; if that fails, the next one retries.
type client struct {
	tls  *dial.TLS
	http *http.Client // nil before the first request
}

func (c *client) open() error {
	if c.http != nil {
		return nil
	}
	config := (*tls.Config)(nil)
	if c.tls != nil {
		var err error
		if config, err = c.tls.Load(); err != nil {
			return err
		}
	}
	c.http = &http.Client{Transport: &http.Transport{TLSClientConfig: config, MaxConnsPerHost: 1}}
	return nil
}

func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// ask makes one request and parses the response.
func (h HTTP) ask(ctx context.Context, c *client) (Elements, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	authorization, err := h.auth().Header()
	if err != nil {
		return nil, err
	}
	header := http.Header(h.Headers).Clone()
	if header == nil {
		header = http.Header{}
	}
	if authorization != "" {
		header.Set("Authorization", authorization)
	}
	body, _, err := c.get(ctx, h.URL, header)
	if err != nil {
		return nil, err
	}
	return parseGroups(body, false)
}

// get returns the body and the header of a response with status 200.
func (c *client) get(ctx context.Context, address string, header http.Header) ([]byte, http.Header, error) {
	if err := c.open(); err != nil {
		return nil, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header = header
	r.Header.Set("Accept", "application/json")
	response, err := c.http.Do(r)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // the URL may contain a secret
		}
		return nil, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the server returned status %d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the response has more than %d bytes", maxAnswer)
	}
	return body, response.Header, err
}
