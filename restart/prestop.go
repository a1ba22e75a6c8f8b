package restart

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/probe"
)

// PreStop is the action before an instance is asked to exit, like preStop in Kubernetes. Gateways send the instance no
// requests in that time. Exactly one of Command, URL and Sleep is set. A failure is logged, and delays nothing.
type PreStop struct {
	Command []string          `hcl:"command,optional" doc:"program and arguments, with the environment (without env_file), the directory and the user of the process" default:"none" json:",omitempty"`
	URL     string            `hcl:"url,optional" doc:"URL that is requested by GET; certificates are not verified, and redirects not followed" default:"none" json:",omitempty"`
	Headers map[string]string `hcl:"headers,optional" doc:"headers of the request" default:"none" json:",omitempty"`
	Sleep   time.Duration     `hcl:"sleep,optional,nonzero" doc:"time to wait, such as until load balancers have noticed" default:"none" max:"8784h" json:",omitempty"`
}

// check validates the block and adds errors to wrong. The nil PreStop is valid.
func (p *PreStop) check(wrong *probe.FieldErrors) {
	if p == nil {
		return
	}
	checkDuration(wrong, "pre_stop.sleep", p.Sleep)
	switch n := one(len(p.Command) > 0) + one(p.URL != "") + one(p.Sleep != 0); {
	case n != 1:
		wrong.Add("pre_stop", "sets %d of command, url and sleep; set exactly one", n)
	case len(p.Command) > 0 && command.Command{Words: p.Command}.Check() != nil:
		wrong.Add("pre_stop.command", "must begin with the name of a program, and have no NUL bytes")
	case len(p.Headers) > 0 && p.URL == "":
		wrong.Add("pre_stop.headers", "has no effect without url")
	}
	if to, err := url.Parse(p.URL); p.URL != "" && (err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "") {
		wrong.Add("pre_stop.url", `is %q; write a URL, such as "http://127.0.0.1:8080/drain"`, p.URL)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		if err := httpauth.CheckHeader("pre_stop.headers", name, p.Headers[name]); err != nil {
			*wrong = append(*wrong, err)
		}
	}
}

// maxPreStopHeaders is the maximum size of the headers of a response, in bytes.
const maxPreStopHeaders = 4 << 10

// Request sends the request to URL, as the kubelet does. It is safe for concurrent use.
func (p *PreStop) Request(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return err
	}
	r.Close = true
	for name, value := range p.Headers {
		if r.Header.Set(name, value); strings.EqualFold(name, "Host") {
			r.Host = value
		}
	}
	client := http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxResponseHeaderBytes: maxPreStopHeaders},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answers %s", p.URL, response.Status)
	}
	return nil
}
