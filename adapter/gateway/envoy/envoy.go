// Package envoy serves Envoy's endpoint discovery service (EDS): as REST with JSON, and as
// files.
//
//	envoy.go     Discovery: the listener and the files
//	resources.go what Envoy asks and gets
//	endpoints.go members as Envoy has them
package envoy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/adapter/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Discovery.
type Config struct {
	Listen         string        `hcl:"listen,optional" doc:"address and port for endpoint discovery by REST, such as 127.0.0.1:9781. Port 0 lets the system choose one" default:"none; envoy needs listen or directory"`
	Token          string        `hcl:"token,optional,sensitive" doc:"bearer token that clients must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
	Wait           time.Duration `hcl:"wait,optional,nonzero" doc:"how long a request waits for a change, if Envoy has the present endpoints. It must be less than request_timeout of Envoy" default:"500ms" min:"10ms" max:"10m"`
	Directory      string        `hcl:"directory,optional" doc:"absolute path of a directory with a file for each group, such as web.json, for path_config_source of Envoy. A file is written beside itself and renamed, which Envoy notices" default:"none"`
	DegradedStatus bool          `hcl:"degraded_status,optional" doc:"whether degraded members have the status DEGRADED: Envoy sends them requests only if too few are healthy, and gRPC's clients none. Otherwise they are HEALTHY, and have the weight that degraded_weight of the group says" default:"false"`
}

// DefaultWait is the default of Config.Wait: half of Envoy's default of request_timeout.
const DefaultWait = 500 * time.Millisecond

// Bounds.
const (
	minWait       = 10 * time.Millisecond
	maxWait       = 10 * time.Minute
	maxWaiters    = 512              // at once; further ones do not wait
	answerTime    = 30 * time.Second // for Envoy to read an answer
	maxRequest    = 1 << 20          // bytes of a request, most of which says which extensions Envoy has
	maxFile       = 64 << 20         // bytes of a file that is compared before it is replaced
	retryInterval = time.Second      // between attempts to write files
)

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	switch {
	case c.Listen == "" && c.Directory == "":
		return &probe.FieldError{Field: "listen", Problem: "and directory are both missing", Hint: `write listen = "127.0.0.1:9781", or directory = "/run/sonde-eds"`}
	case c.Directory != "" && (!filepath.IsAbs(c.Directory) || filepath.Clean(c.Directory) != c.Directory):
		return probe.FieldErrorf("directory", "must be an absolute path, without a slash at its end")
	case c.Wait != 0 && (c.Wait < minWait || c.Wait > maxWait):
		return probe.FieldErrorf("wait", "is %v; it must be from %v to %v", c.Wait, minWait, maxWait)
	case c.Listen == "" && c.Token != "":
		return probe.FieldErrorf("token", "is for listen, which is missing")
	case c.Listen == "" && c.Wait != 0:
		return probe.FieldErrorf("wait", "is for listen, which is missing")
	case c.Listen == "":
		return nil
	}
	return gateway.HTTP{Listen: c.Listen, Token: c.Token}.Check()
}

// Discovery is an output for Envoy's endpoint discovery.
type Discovery struct {
	config  Config
	session *gateway.Session
	waiters chan struct{} // one for each request that waits
}

// New returns a Discovery. The configuration must have passed Check.
func New(c Config) *Discovery {
	c.Wait = cmp.Or(c.Wait, DefaultWait)
	return &Discovery{config: c, waiters: make(chan struct{}, maxWaiters)}
}

// Run implements gateway.Output.
func (d *Discovery) Run(ctx context.Context, s *gateway.Session) {
	d.session = s
	var writing sync.WaitGroup
	defer writing.Wait()
	if d.config.Directory != "" {
		writing.Go(func() { d.write(ctx) })
	}
	if d.config.Listen != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v3/discovery:endpoints", d.discover)
		gateway.HTTP{Listen: d.config.Listen, Token: d.config.Token}.Serve(ctx, s, mux)
	}
}

// discover answers a DiscoveryRequest. A client that has the present endpoints waits for other
// ones, and is told 304 if there are none; one that asks before anything is known waits, too.
func (d *Discovery) discover(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		d.refuse(w, http.StatusBadRequest, "cannot read the request: "+err.Error())
		return
	}
	asked, err := parseRequest(text)
	if err != nil {
		d.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	groups := d.groupsOf(asked)
	if len(groups) == 0 {
		d.refuse(w, http.StatusNotFound, "none of the resource_names is a group of this gateway")
		return
	}
	answer := d.await(w, r, groups, asked.version)
	switch {
	case r.Context().Err() != nil:
		gateway.Stopping(w)
	case answer == nil:
		gateway.Undecided(w)
	case answer.Version == asked.version:
		w.WriteHeader(http.StatusNotModified)
		d.note(answer)
	default:
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(answer.text()); err == nil {
			d.note(answer)
		}
	}
}

func (d *Discovery) refuse(w http.ResponseWriter, status int, problem string) {
	d.session.Refused()
	http.Error(w, problem, status)
}

// note notes that Envoy was given endpoints, or that it lacks some.
func (d *Discovery) note(r *response) {
	if r.problem != nil {
		d.session.Failed(r.problem)
		return
	}
	d.session.Succeeded()
}

// groupsOf returns the indexes of the groups that are asked for: all if no name is given.
func (d *Discovery) groupsOf(asked request) (groups []int) {
	for i, g := range d.session.Groups {
		if len(asked.names) == 0 || asked.names[g.View().Group] {
			groups = append(groups, i)
		}
	}
	return groups
}

// await returns the answer about groups when it is another one than that of a version, or the
// present one when the wait is over; nil if nothing is known of one of them.
func (d *Discovery) await(w http.ResponseWriter, r *http.Request, groups []int, version string) *response {
	before := d.session.Views()
	answer := d.answer(groups)
	if answer != nil && answer.Version != version {
		return answer
	}
	select {
	case d.waiters <- struct{}{}:
		defer func() { <-d.waiters }()
	default:
		return answer
	}
	listener.KeepOpen(r.Context())
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // net/http has these deadlines
	_ = control.SetWriteDeadline(time.Now().Add(d.config.Wait + answerTime))
	ctx, cancel := context.WithTimeout(r.Context(), d.config.Wait)
	defer cancel()
	for (answer == nil || answer.Version == version) && ctx.Err() == nil {
		d.session.Wait(ctx, before, nil)
		before = d.session.Views()
		answer = d.answer(groups)
	}
	return answer
}

// answer returns the endpoints of groups, or nil if nothing is known of one of them.
func (d *Discovery) answer(groups []int) *response {
	kept := d.session.Kept()
	views := make([]*group.View, len(groups))
	for i, g := range groups {
		if views[i] = kept[g]; views[i] == nil {
			return nil
		}
	}
	return newResponse(views, d.config.DegradedStatus)
}

// write keeps the files up to date until ctx is done.
func (d *Discovery) write(ctx context.Context) {
	written := make([]string, len(d.session.Groups)) // versions of the files
	for ctx.Err() == nil {
		views := d.session.Views()
		err := d.writeChanged(written)
		if err == nil {
			d.session.Wait(ctx, views, nil)
			continue
		}
		d.session.Failed(err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// writeChanged writes the files of groups whose endpoints have another version than the one that
// was written, and returns the errors of those that cannot be written.
func (d *Discovery) writeChanged(written []string) error {
	var errs []error
	for i, g := range d.session.Groups {
		answer := d.answer([]int{i})
		if answer == nil || answer.Version == written[i] {
			continue
		}
		name := filepath.Join(d.config.Directory, url.PathEscape(g.View().Group)+".json")
		if err := replace(name, answer.text()); err != nil {
			errs = append(errs, fmt.Errorf("write %s: %w", name, err))
			continue
		}
		written[i] = answer.Version
		d.note(answer)
	}
	return errors.Join(errs...)
}

// replace replaces a file, if it has another text.
func replace(name string, text []byte) error {
	before, err := files.ReadRegular(name, maxFile)
	if err == nil && bytes.Equal(before, text) {
		return nil
	}
	return files.Replace(name, text, 0o644)
}
