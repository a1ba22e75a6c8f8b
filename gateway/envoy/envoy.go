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
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/gateway"
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
	maxWaiters    = 512         // at once; further ones do not wait
	maxRequest    = 1 << 20     // bytes of a request, most of which says which extensions Envoy has
	maxFile       = 64 << 20    // bytes of a file that is compared before it is replaced
	retryInterval = time.Second // between attempts to write files
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

// FileOf returns the path of the file of a group, with a Directory.
func (c Config) FileOf(group string) string {
	return filepath.Join(c.Directory, url.PathEscape(group)+".json")
}

// Discovery is an output for Envoy's endpoint discovery.
type Discovery struct {
	config  Config
	session *gateway.Session
	waiters *listener.Waiters
}

// New returns a Discovery. The configuration must have passed Check.
func New(c Config) *Discovery {
	c.Wait = cmp.Or(c.Wait, DefaultWait)
	return &Discovery{config: c, waiters: listener.NewWaiters(maxWaiters)}
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
	if d.has(groups, asked.version) { // further requests than maxWaiters do not wait
		d.waiters.Wait(w, r, d.config.Wait, func(ctx context.Context) { d.await(ctx, groups, asked.version) })
	}
	if r.Context().Err() != nil {
		gateway.Stopping(w)
		return
	}
	answer, release, err := d.answer(groups)
	if errors.Is(err, errUndecided) {
		gateway.Undecided(w)
		return
	}
	if err != nil {
		d.session.Busy(w, err)
		return
	}
	defer release()
	if answer.Version == asked.version {
		w.WriteHeader(http.StatusNotModified)
		d.note(answer)
	} else if gateway.Write(w, answer.Text) {
		d.note(answer)
	}
}

func (d *Discovery) refuse(w http.ResponseWriter, status int, problem string) {
	d.session.Refused()
	http.Error(w, problem, status)
}

// note notes that Envoy was given endpoints, or that it lacks some.
func (d *Discovery) note(a gateway.Answer) {
	results := maps.Clone(a.Problems)
	results[gateway.SourceAnswer] = nil
	d.session.Report(results)
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

// await waits until ctx is done for an answer about groups with another version.
func (d *Discovery) await(ctx context.Context, groups []int, version string) {
	for {
		before := make([]*group.View, len(groups))
		for i, g := range groups {
			before[i] = d.session.Groups[g].View()
		}
		if !d.has(groups, version) || ctx.Err() != nil {
			return
		}
		d.session.Wait(ctx, before, nil)
	}
}

// has reports whether a client with a version has the present endpoints of groups, or there is
// nothing to give it yet.
func (d *Discovery) has(groups []int, version string) bool {
	answer, release, err := d.answer(groups)
	if err != nil {
		return errors.Is(err, errUndecided)
	}
	release()
	return answer.Version == version
}

var errUndecided = errors.New("nothing is known of a group")

// answer returns the endpoints of groups, and a function to call when they are no longer used. The
// error is errUndecided if nothing is known of one of them, or one of gateway.Session.Share.
func (d *Discovery) answer(groups []int) (a gateway.Answer, release func(), err error) {
	kept := d.session.Kept()
	views := make([]*group.View, len(groups))
	for i, g := range groups {
		if views[i] = kept[g]; views[i] == nil {
			return a, nil, errUndecided
		}
	}
	return d.session.Share(fmt.Sprint(groups), views, func() (gateway.Answer, error) {
		return newResponse(views, d.config.DegradedStatus).answer(), nil
	})
}

// write keeps the files up to date until ctx is done.
func (d *Discovery) write(ctx context.Context) {
	written := make([]string, len(d.session.Groups)) // versions of the files
	for ctx.Err() == nil {
		views := d.session.Views()
		if d.writeChanged(written) {
			d.session.Wait(ctx, views, nil)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// writeChanged writes the files of groups whose endpoints have another version than the one that
// was written, and reports whether all were written.
func (d *Discovery) writeChanged(written []string) (all bool) {
	all = true
	for i, g := range d.session.Groups {
		answer, release, err := d.answer([]int{i})
		if errors.Is(err, errUndecided) {
			continue
		}
		name := d.config.FileOf(g.View().Group)
		results := map[string]error{"file " + name: err}
		if err == nil {
			if answer.Version == written[i] {
				release()
				continue
			}
			maps.Copy(results, answer.Problems)
			if err = replace(name, answer.Text); err != nil {
				results["file "+name] = err
			} else {
				written[i] = answer.Version
			}
			release()
		}
		all = all && err == nil
		d.session.Report(results)
	}
	return all
}

// replace replaces a file, if it has another text.
func replace(name string, text []byte) error {
	before, err := files.ReadRegular(name, maxFile)
	if err == nil && bytes.Equal(before, text) {
		return nil
	}
	return files.Replace(name, text, 0o644)
}
