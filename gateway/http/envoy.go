package httpgateway

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// Envoy is the output for Envoy's endpoint discovery service (EDS): as REST with JSON, and as files.
type Envoy struct {
	Listen         string        `hcl:"listen,optional" doc:"address and port for endpoint discovery by REST, such as 127.0.0.1:9781. Port 0 lets the system choose one" default:"none; envoy needs listen or directory"`
	Token          string        `hcl:"token,optional,sensitive" doc:"bearer token that clients must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
	Wait           time.Duration `hcl:"wait,optional,nonzero" doc:"how long a request waits for a change, if Envoy has the present endpoints. It must be less than request_timeout of Envoy" default:"500ms" min:"10ms" max:"10m"`
	Directory      string        `hcl:"directory,optional" doc:"absolute path of a directory with a file for each group, such as web.json, for path_config_source of Envoy. A file is written beside itself and renamed, which Envoy notices" default:"none"`
	DegradedStatus bool          `hcl:"degraded_status,optional" doc:"whether degraded members have the status DEGRADED: Envoy sends them requests only if too few are healthy, and gRPC's clients none. Otherwise they are HEALTHY, and have the weight that degraded_weight of the group says" default:"false"`
}

// defaultWait is the default of Envoy.Wait: half of Envoy's default of request_timeout.
const defaultWait = 500 * time.Millisecond

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (e Envoy) Check() error {
	wrong := limits.Check(e, "").Err()
	switch {
	case wrong != nil:
		return wrong
	case e.Listen == "" && e.Directory == "":
		return &probe.FieldError{Field: "listen", Problem: "and directory are both missing", Hint: `write listen = "127.0.0.1:9781", or directory = "/run/sonde-eds"`}
	case e.Directory != "" && (!filepath.IsAbs(e.Directory) || filepath.Clean(e.Directory) != e.Directory):
		return probe.FieldErrorf("directory", "must be an absolute path, without a slash at its end")
	case e.Listen == "" && e.Token != "":
		return &probe.FieldError{Field: "token", Problem: "has no effect without listen", Plain: true}
	case e.Listen == "" && e.Wait != 0:
		return probe.FieldErrorf("wait", "has no effect without listen")
	case e.Listen == "":
		return nil
	}
	return access{e.Listen, e.Token}.check()
}

// FileOf returns the path of the file of a group, with a Directory.
func (e Envoy) FileOf(group string) string {
	return filepath.Join(e.Directory, url.PathEscape(group)+".json")
}

// Output returns the output. The configuration must have passed Check.
func (e Envoy) Output() gateway.Output {
	s := newServer(access{e.Listen, e.Token}, func(s *server) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{"POST /v3/discovery:endpoints": s.handler(func(r *http.Request) (query, error) { return e.discover(s, r) })}
	})
	if e.Directory != "" {
		s.files = &directory{file: e.FileOf, about: e.about}
	}
	return s
}

// discover reads a DiscoveryRequest. A client that has the present endpoints waits for other ones, and is
// told 304 if there are none; one that asks before anything is known waits, too.
func (e Envoy) discover(s *server, r *http.Request) (query, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return query{}, fmt.Errorf("cannot read the request: %w", err)
	}
	asked, err := parseDiscovery(text)
	if err != nil {
		return query{}, err
	}
	var groups []int // all if no name is given
	for i, g := range s.session.Groups {
		if len(asked.names) == 0 || asked.names[g.View().Group] {
			groups = append(groups, i)
		}
	}
	if len(groups) == 0 {
		return query{}, errNoGroup
	}
	q := e.about(groups...)
	q.has, q.wait = asked.version, cmp.Or(e.Wait, defaultWait)
	return q, nil
}

// about returns the query for the endpoints of groups, whose indexes are given.
func (e Envoy) about(groups ...int) query {
	return query{name: fmt.Sprint(groups), groups: groups, render: func(views []*group.View) (*answer, error) {
		return newDiscoveryAnswer(views, e.DegradedStatus)
	}}
}
