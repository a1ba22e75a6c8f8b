package discover

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// Consul finds elements in the catalog of Consul. It ignores the results of Consul's own checks.
type Consul struct {
	Service    string    `hcl:"service" doc:"name of the service"`
	Tags       []string  `hcl:"tags,optional" doc:"tags that an instance of the service must have, all of them" default:"none"`
	URL        string    `hcl:"url,optional" doc:"URL of the agent of Consul" default:"http://127.0.0.1:8500"`
	Datacenter string    `hcl:"datacenter,optional" doc:"datacenter to ask" default:"that of the agent"`
	TokenFile  string    `hcl:"token_file,optional,path" doc:"file with the token, which is read for each request" default:"none"`
	TLS        *dial.TLS `hcl:"tls,block" doc:"how to verify the agent, and which client certificate to present"`
}

const (
	defaultConsul  = "http://127.0.0.1:8500"
	maxWait        = 30 * time.Second // of a blocking query
	maxConsulToken = 4 << 10
	retryConsul    = 5 * time.Second
)

// Check validates the configuration. It returns a *probe.FieldError, or nil.
func (c Consul) Check() error {
	if err := limits.Check(c, "").Err(); err != nil {
		return err
	}
	if c.Service == "" {
		return probe.FieldErrorf("service", "must not be empty")
	}
	return checkURL("url", cmp.Or(c.URL, defaultConsul))
}

// Run implements Source. It waits for changes with blocking queries.
func (c Consul) Run(ctx context.Context, found func(Elements, error)) {
	client, index := client{tls: c.TLS}, uint64(0)
	defer client.close()
	repeat(ctx, func() time.Duration {
		all, next, err := c.ask(ctx, &client, index)
		if ctx.Err() == nil {
			found(all, err)
		}
		if index = next; index == 0 {
			return retryConsul
		}
		return time.Second // limits the rate of queries if the catalog changes constantly
	})
}

// catalogService is an instance of a service in a response of the catalog.
type catalogService struct {
	Node, Address, ServiceAddress, ServiceID string

	ServicePort int
	ServiceTags []string
	ServiceMeta map[string]string
}

// ask returns the instances once the index of the catalog differs from index, or after maxWait.
func (c Consul) ask(ctx context.Context, client *client, index uint64) (Elements, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait+requestTimeout)
	defer cancel()
	header := http.Header{}
	if c.TokenFile != "" {
		token, err := files.Read(c.TokenFile, maxConsulToken)
		if err != nil {
			return nil, 0, err
		}
		header.Set("X-Consul-Token", strings.TrimSpace(string(token)))
	}
	query := url.Values{"wait": {maxWait.String()}, "index": {strconv.FormatUint(index, 10)}}
	if c.Datacenter != "" {
		query.Set("dc", c.Datacenter)
	}
	for _, tag := range c.Tags {
		query.Add("tag", tag)
	}
	address := strings.TrimRight(cmp.Or(c.URL, defaultConsul), "/") + "/v1/catalog/service/" + url.PathEscape(c.Service) + "?" + query.Encode()
	body, answered, err := client.get(ctx, address, header)
	if err != nil {
		return nil, 0, err
	}
	next, err := strconv.ParseUint(answered.Get("X-Consul-Index"), 10, 64)
	if err != nil || next < index {
		next = 0 // start again, as Consul's documentation requires
	}
	all, err := parseCatalog(body)
	if all == nil {
		next = 0
	}
	return all, next, err
}

func parseCatalog(body []byte) (Elements, error) {
	var services []catalogService
	if err := json.Unmarshal(body, &services); err != nil {
		return nil, fmt.Errorf("the response is not a list of services: %w", err)
	}
	a := &answer{Elements: Elements{}}
	for _, s := range services {
		if s.ServicePort < 0 || s.ServicePort > 65535 {
			a.leaveOut("the port of %.80q is %d", s.ServiceID, s.ServicePort)
			continue
		}
		e := Element{
			Address: cmp.Or(s.ServiceAddress, s.Address), Port: uint16(s.ServicePort), Labels: s.ServiceMeta,
			Meta: map[string]string{"node": s.Node, "id": s.ServiceID, "tags": strings.Join(s.ServiceTags, ",")},
		}
		if err := a.add(e); err != nil {
			return nil, err
		}
	}
	return a.Elements, a.err()
}
