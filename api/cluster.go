package api

import (
	"net/http"
	"time"
)

// Cluster is the response of /v1/cluster: the cluster of engines that share targets, as this engine knows it.
type Cluster struct {
	Name         string          `json:"name"`             // of this engine
	Member       bool            `json:"member"`           // whether it is a member, as last read from etcd
	Refused      string          `json:"refused,omitzero"` // why it does not join although etcd responds: a later version of Sonde has written its entries
	Allowed      bool            `json:"allowed"`          // its lease is valid: it restarts targets and sends notices
	LeaseSeconds float64         `json:"leaseSeconds"`     // until it must stop acting, unless the lease is renewed; 0 if it must not act
	Heard        time.Time       `json:"heard,omitzero"`   // when etcd last responded to this engine while it was up to date; targets of other engines are shown as of then
	Shards       int             `json:"shards"`           // number of shards that it probes
	ShardCount   int             `json:"shardCount"`       // of all engines together
	Targets      int             `json:"targets"`          // number of shared targets in the configuration
	Owned        int             `json:"owned"`            // number of these in the shards of this engine
	Zone         string          `json:"zone"`             // the zone of this engine; empty if it is not configured
	Polls        int             `json:"polls"`            // number of probes with a quorum that this engine attempts, and votes on
	Gray         int             `json:"gray"`             // number of probes of its targets on which engines disagree
	Doubt        Doubt           `json:"doubt"`            // why it doubts its own verdicts, empty if it does not; meanwhile it restarts no shared target, or, if only unwell, only targets that have responded
	Members      []ClusterMember `json:"members"`          // sorted by name; unchanged while etcd is unreachable
	Drains       []ClusterDrain  `json:"drains"`           // engines that an operator has drained, sorted by name, including those that are not members

	Config *ClusterConfig `json:"config,omitempty"` // absent if the targets are in the engines' own files
}

// ClusterConfig is the configuration that is pushed to a cluster, as one engine knows it.
type ClusterConfig struct {
	Revision int64     `json:"revision"`         // the revision that this engine runs; 0 for none
	Since    time.Time `json:"since"`            // when it began to run the revision, or was started
	Current  int64     `json:"current"`          // the revision that all engines should run, as last read from etcd; 0 for none
	Refused  string    `json:"refused,omitzero"` // why it does not run the current revision, or the one that it should try

	Trial *ClusterTrial `json:"trial,omitempty"` // absent if no engine tries a revision
}

// Tries reports whether an engine tries a revision.
func (c *ClusterConfig) Tries(engine string) bool {
	return c != nil && c.Trial != nil && c.Trial.Engine == engine
}

// ClusterTrial is a revision that one engine runs before it is pushed to all.
type ClusterTrial struct {
	Revision int64  `json:"revision"` // the latest
	Engine   string `json:"engine"`
}

// Doubt is why an engine doubts its own verdicts.
type Doubt string

// The values of Doubt.
const (
	DoubtNone       Doubt = ""
	DoubtUnwell     Doubt = "unwell"     // the engine is, or was a moment ago, degraded or isolated
	DoubtAlone      Doubt = "alone"      // it alone finds many targets failing
	DoubtRecovering Doubt = "recovering" // it was alone a moment ago: its votes count again
)

// ClusterMember is an engine of a cluster.
type ClusterMember struct {
	Name    string       `json:"name"`
	Shards  int          `json:"shards"`  // number of shards that it owns
	Targets int          `json:"targets"` // number of targets in these, by this engine's configuration
	Drained bool         `json:"drained"` // it should own no shards: drained by an operator, or not on the current revision
	Health  MemberHealth `json:"health"`  // as it last published it

	Revision *int64 `json:"revision,omitempty"` // of the pushed configuration that it runs, 0 for none; absent if unknown
	Refused  string `json:"refused,omitzero"`   // why it does not run the current revision, or the one that it should try

	Differs *ClusterDifference `json:"differs,omitempty"` // absent if it shares the same targets as this engine, as far as is known
}

// ClusterDifference describes how the shared targets of another engine differ from those of this engine. They are
// compared by hashes of each shard, so that an example may be another target of the same shard.
type ClusterDifference struct {
	Lacks           int      `json:"lacks"`                     // minimum number of targets of this engine that the other engine lacks
	LacksExamples   []string `json:"lacksExamples,omitempty"`   // up to three of these
	More            int      `json:"more"`                      // minimum number of targets of the other engine that this one lacks
	Changed         int      `json:"changed"`                   // maximum number of targets that the other engine probes differently
	ChangedExamples []string `json:"changedExamples,omitempty"` // up to three of these
}

// MemberHealth is the health of an engine of a cluster.
type MemberHealth string

// The values of MemberHealth.
const (
	MemberWell     MemberHealth = "well"
	MemberDoubtful MemberHealth = "doubtful" // it doubts its own verdicts: see Cluster.Doubt
	MemberUnknown  MemberHealth = "unknown"  // it has not published its health yet, or etcd is unreachable
)

// ClusterDrain is an operator's order that an engine should own no shards.
type ClusterDrain struct {
	Name string    `json:"name"` // of the engine
	By   string    `json:"by"`   // the operator; empty if unknown
	At   time.Time `json:"at"`
}

// cluster serves /v1/cluster.
func (s *Server) cluster(http.ResponseWriter, *http.Request) (any, error) {
	if s.config.Cluster == nil {
		return nil, errorf(http.StatusNotFound, "the engine is not in a cluster: its configuration has no cluster block")
	}
	c := s.config.Cluster()
	if c.Members == nil {
		c.Members = []ClusterMember{}
	}
	if c.Drains == nil {
		c.Drains = []ClusterDrain{}
	}
	return c, nil
}
