// Package alertmanager notifies Prometheus' Alertmanager, by version 2 of its API. Each server of a cluster is a
// separate receiver: Alertmanager deduplicates alerts, and its servers do not forward alerts to each other.
package alertmanager

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures the receivers.
type Config struct {
	URLs            []string            `hcl:"urls" doc:"URLs of all servers of the cluster, such as http://am-1:9093, with the path below which the API is, if there is one. Each of them is told"`
	ResendEvery     time.Duration       `hcl:"resend_every,optional,nonzero" doc:"how often an alert is sent again while it lasts; Alertmanager takes it for resolved after four times that" default:"1m" min:"10s" max:"1h"`
	Timeout         time.Duration       `hcl:"timeout,optional,nonzero" doc:"time for a request" default:"10s" min:"1s" max:"1m"`
	MaxAlerts       int                 `hcl:"max_alerts,optional,nonzero" doc:"how many alerts a request has at most" default:"200" min:"1" max:"5000"`
	Token           string              `hcl:"token,optional,sensitive" doc:"bearer token to send" default:"none"`
	Headers         map[string][]string `hcl:"headers,optional,sensitive" doc:"headers of each request" default:"none"`
	BasicAuth       *httpauth.Basic     `hcl:"basic_auth,block" doc:"authenticates with a name and a password. Not with token"`
	BearerTokenFile string              `hcl:"bearer_token_file,optional,path" doc:"file with a bearer token, which is read for each request: it may be replaced at any time. Not with token or basic_auth" default:"none"`
	TLS             *notify.TLS         `hcl:"tls,block" doc:"how to verify the servers, and which client certificate to present"`
}

// Limits and defaults of a Config.
const (
	maxURLs        = 20
	defaultResend  = time.Minute
	defaultTimeout = 10 * time.Second
	defaultAlerts  = 200
)

// path is the path of the API method, relative to a URL.
const path = "/api/v2/alerts"

// Check returns the error of an invalid configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	if err := limits.Check(c, "").Err(); err != nil {
		return err
	}
	if len(c.URLs) == 0 || len(c.URLs) > maxURLs {
		return probe.FieldErrorf("urls", "has %d elements; it must have 1 to %d", len(c.URLs), maxURLs)
	}
	seen := map[string]bool{}
	for i, text := range c.URLs {
		h := c.http(text)
		if err := h.Check("urls"); err != nil {
			return err
		}
		if strings.HasSuffix(strings.TrimSuffix(text, "/"), path) {
			return &probe.FieldError{Field: "urls", Problem: fmt.Sprintf("has the path %s in element %d", path, i+1), Hint: "leave it out: it is added"}
		}
		if seen[h.ID()] {
			return probe.FieldErrorf("urls", "has %q twice", h.Name())
		}
		seen[h.ID()] = true
	}
	return nil
}

func (c Config) http(text string) notify.HTTP {
	return notify.HTTP{URL: strings.TrimSuffix(text, "/"), Token: c.Token, Headers: c.Headers, TLS: c.TLS, Auth: httpauth.Auth{Basic: c.BasicAuth, BearerTokenFile: c.BearerTokenFile}}
}

// Fill sets the parts of a notifier that depend on the output. The configuration must have passed Check.
func (c Config) Fill(spec *notify.Spec) {
	spec.Resend, spec.Timeout, spec.Batch = cmp.Or(c.ResendEvery, defaultResend), cmp.Or(c.Timeout, defaultTimeout), cmp.Or(c.MaxAlerts, defaultAlerts)
	spec.Files = c.http("").Files() // the same for all URLs
	for _, text := range c.URLs {
		h, resend := c.http(text), spec.Resend
		spec.Receivers = append(spec.Receivers, notify.Receiver{Name: h.Name(), New: func(redact func(string) string) (notify.Sender, error) {
			h := h
			h.URL += path
			client, err := h.Client(redact)
			return &sender{client, resend}, err
		}})
	}
}

// sender sends alerts to one server.
type sender struct {
	client *notify.Client
	resend time.Duration
}

// Close implements io.Closer.
func (s *sender) Close() error { return s.client.Close() }

// Send implements notify.Sender.
func (s *sender) Send(ctx context.Context, notices []notify.Notice) error {
	alerts := make([]alert, 0, len(notices))
	now := time.Now()
	for i := range notices {
		alerts = append(alerts, alertsOf(&notices[i], now, s.resend)...)
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return err
	}
	return s.client.Post(ctx, body, nil)
}

// alert is a postableAlert of the API.
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// lifetimes is the number of Spec.Resend intervals after which Alertmanager considers an alert resolved if it is not
// sent again, as with Prometheus.
const lifetimes = 4

// alertsOf returns the alert of a notice, preceded by the end of the alert with the previous labels if these have
// changed.
func alertsOf(n *notify.Notice, now time.Time, resend time.Duration) (all []alert) {
	a := alert{Labels: labelsOf(n, notify.Identity{Labels: n.Labels, Severity: n.Severity}), Annotations: annotationsOf(n), StartsAt: n.StartsAt, GeneratorURL: n.Link}
	if n.Firing {
		a.EndsAt = now.Add(lifetimes * resend)
		a.StartsAt = earlier(a.StartsAt, now)
	} else {
		a.end(n.EndsAt, now)
	}
	if n.Before != nil {
		before := a
		before.Labels = labelsOf(n, *n.Before)
		before.end(n.At, now)
		all = append(all, before)
	}
	return append(all, a)
}

// end sets the end of an alert, which must be after its start. If the clock was set back and the end would be in the
// future, the alert ends now, since otherwise Alertmanager would consider it firing until then.
func (a *alert) end(at, now time.Time) {
	if least := a.StartsAt.Add(time.Millisecond); at.Before(least) {
		at = least
	}
	a.EndsAt = earlier(at, now)
	a.StartsAt = earlier(a.StartsAt, a.EndsAt.Add(-time.Millisecond))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// labelsOf returns the labels of an alert, by which Alertmanager identifies it: they stay the same until the trouble has
// ended. alertname and severity may be overridden by the subject or the notifier.
func labelsOf(n *notify.Notice, as notify.Identity) map[string]string {
	labels := map[string]string{"alertname": "SondeTargetInTrouble", "severity": as.Severity.String()}
	switch {
	case n.Test:
		labels["alertname"] = "SondeTest"
	case n.Kind == notify.KindGroup:
		labels["alertname"] = "SondeGroupDown"
	}
	maps.Copy(labels, as.Labels)
	labels[string(n.Kind)] = n.Name
	return labels
}

// annotationsOf returns the texts of an alert for people.
func annotationsOf(n *notify.Notice) map[string]string {
	all := map[string]string{"summary": n.Summary(), "state": n.State}
	for name, value := range map[string]string{"reason": string(n.Reason), "description": n.Detail, "probe": n.Probe} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}
