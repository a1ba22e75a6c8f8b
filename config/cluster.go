package config

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Cluster is the cluster block of a configuration: with which other engines an engine shares its targets.
type Cluster struct {
	Name      string        `hcl:"name,optional" doc:"name of this engine, which no other member has; sonde run --cluster-name goes before it. Engines that read the same files write name = env(\"…\"), or leave it out" default:"the host name"`
	Endpoints []string      `hcl:"endpoints" doc:"URLs of the members of the etcd cluster, such as https://10.0.0.1:2379; all of them with https, or all with http"`
	Prefix    string        `hcl:"prefix,optional" doc:"beginning of all keys in etcd, which all engines of this cluster share and no others; it ends with a slash" default:"/sonde/"`
	TTL       time.Duration `hcl:"ttl,optional,nonzero" doc:"how long after its last sign of life an engine loses its targets to the others" default:"5s" min:"2s" max:"5m"`
	Config    string        `hcl:"config,optional" oneof:"files etcd" doc:"where targets and the like come from: the files that the engine was started with, or etcd, where sonde push has put them; then these files may have cluster, engine, variable and locals blocks only" default:"files"`
	Username  string        `hcl:"username,optional" doc:"user of etcd; needs password" default:"no authentication"`
	Password  string        `hcl:"password,optional,sensitive" doc:"password of the user" default:"none"`
	TLS       *ClusterTLS   `hcl:"tls,block" doc:"how the engine trusts etcd, and proves who it is; needs endpoints with https"`
	Vantage   *Vantage      `hcl:"vantage,block" doc:"from where this engine probes targets whose probes have a quorum block"`
}

// Vantage is the vantage block of a cluster block.
type Vantage struct {
	Zone string `hcl:"zone" doc:"where this engine is, such as a data centre: a quorum chooses engines of different zones. At most 63 bytes. Engines that read the same files write zone = env(\"…\")"`
}

// Zone returns where the engine is, "" if the block does not say.
func (c Cluster) Zone() string {
	if c.Vantage == nil {
		return ""
	}
	return c.Vantage.Zone
}

// ClusterTLS is the tls block of a cluster block.
type ClusterTLS struct {
	CAFile     string `hcl:"ca_file,optional" doc:"PEM file with the authorities to trust" default:"those of the system"`
	CertFile   string `hcl:"cert_file,optional" doc:"PEM file with the client certificate of this engine; needs key_file" default:"none"`
	KeyFile    string `hcl:"key_file,optional" doc:"PEM file with the private key of the client certificate" default:"none"`
	ServerName string `hcl:"server_name,optional" doc:"name that must match the certificates of etcd" default:"the host of the endpoint"`
}

const maxClusterEndpoints = 20

// The defaults of a cluster block.
const (
	defaultClusterPrefix = "/sonde/"
	defaultClusterTTL    = 5 * time.Second
)

// The values of Cluster.Config.
const (
	clusterConfigFiles = "files"
	clusterConfigEtcd  = "etcd"
)

// IsPushed reports whether the targets of the configuration come from etcd.
func (c *Cluster) IsPushed() bool { return c != nil && c.Config == clusterConfigEtcd }

// LoadTLS reads the files of the tls block, as they are now. It returns nil if the endpoints have http. An error is a
// *probe.FieldError.
func (c Cluster) LoadTLS() (*tls.Config, error) {
	if !c.isHTTPS() {
		return nil, nil
	}
	t := ClusterTLS{}
	if c.TLS != nil {
		t = *c.TLS
	}
	return (&dial.TLS{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}).Load()
}

func (c Cluster) isHTTPS() bool {
	return len(c.Endpoints) > 0 && strings.HasPrefix(c.Endpoints[0], "https://")
}

// decodeCluster decodes the cluster block, and returns nil if there is none, or it has errors. It connects to nothing.
func decodeCluster(blocks []*tree.Block, e *evaluator, s *compiledSchema, o *Options) *Cluster {
	b := oneBlock(blocks, e.collector)
	if b == nil {
		return nil
	}
	if o.NoCluster {
		e.add(report{
			at: b.Header, summary: "this program cannot share targets with other engines: it has no etcd client",
			hint: "run sonde-fleet, which has the same commands, or remove the cluster block",
		})
	}
	d := s.decode(e, b)
	c := &Cluster{Prefix: defaultClusterPrefix, TTL: defaultClusterTTL, Config: clusterConfigFiles}
	err := d.set(c)
	if slices.ContainsFunc(c.Endpoints, hasUser) {
		e.texts.mask(d.sources["endpoints"].value) // there may be a password
	}
	d.reportErrors(errors.Join(err, c.check(d.values)))
	if !d.ok {
		return nil
	}
	if _, err := c.LoadTLS(); err != nil {
		d.reportErrors(err)
	}
	return c
}

// check returns what is wrong with the values that are given.
func (c *Cluster) check(given Values) error {
	var wrong probe.FieldErrors
	if problem := ClusterNameProblem(c.Name); given["name"] != nil && problem != "" {
		wrong.Add("name", "%s", problem)
	}
	if given["endpoints"] != nil {
		c.checkEndpoints(&wrong)
	}
	if c.Prefix == "" || !strings.HasSuffix(c.Prefix, "/") {
		wrong.Add("prefix", "is %q; it must end with a slash", c.Prefix)
	}
	if n := len(c.Zone()); c.Vantage != nil && (n == 0 || n > quorum.MaxZone) {
		wrong.Add("vantage.zone", "has %d bytes; it must have from 1 to %d", n, quorum.MaxZone)
	}
	switch {
	case c.Username != "" && c.Password == "":
		wrong = append(wrong, &probe.FieldError{Field: "username", Problem: "needs password", Plain: true})
	case c.Username == "" && c.Password != "":
		wrong = append(wrong, &probe.FieldError{Field: "username", Problem: "is required with password", Plain: true})
	case c.Username != "" && slices.ContainsFunc(c.Endpoints, isClear):
		wrong.Add("username", "would be sent unencrypted, with the password; use https endpoints, or endpoints on this machine")
	}
	if c.TLS != nil && given["endpoints"] != nil && !c.isHTTPS() {
		wrong.Add("tls", "needs endpoints with https")
	}
	return wrong.Err()
}

// checkEndpoints adds what is wrong with the first endpoint that cannot be used.
func (c *Cluster) checkEndpoints(wrong *probe.FieldErrors) {
	if n := len(c.Endpoints); n == 0 || n > maxClusterEndpoints {
		wrong.Add("endpoints", "has %d URLs; it must have from 1 to %d", n, maxClusterEndpoints)
		return
	}
	scheme := ""
	for i, text := range c.Endpoints {
		u, err := url.Parse(text)
		switch {
		case hasUser(text):
			wrong.Add("endpoints", "has a user name, which would be shown; write username and password instead")
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Port() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			wrong.Add("endpoints", "has %.80q, which is not a URL such as https://10.0.0.1:2379", text)
		case scheme != "" && u.Scheme != scheme:
			wrong.Add("endpoints", "has URLs with http and with https; use one of them for all")
		case slices.Contains(c.Endpoints[:i], text):
			wrong.Add("endpoints", "has %.80q twice", text)
		default:
			scheme = u.Scheme
			continue
		}
		return
	}
}

// hasUser reports whether an endpoint, which may be malformed, has a user name, and perhaps a password.
func hasUser(endpoint string) bool { return strings.Contains(endpoint, "@") }

// isClear reports whether what is sent to an endpoint leaves this machine without encryption.
func isClear(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback())
}

// ClusterNameProblem returns what is wrong with the name of an engine in a cluster, or "".
func ClusterNameProblem(name string) string {
	if field, ok := errors.AsType[*probe.FieldError](probe.CheckGroupName(name)); ok {
		return field.Problem
	}
	if strings.Contains(name, "/") {
		return "must not have a slash"
	}
	return ""
}
