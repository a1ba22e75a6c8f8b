package api

import (
	"net/http"
	"time"
)

// Cluster is the response of /v1/cluster: what this engine knows of the engines that it shares targets with.
type Cluster struct {
	Name         string          `json:"name"`             // of this engine
	Member       bool            `json:"member"`           // it is a member, by what etcd has said last
	Refused      string          `json:"refused,omitzero"` // why it does not join, although etcd answers: a later version of Sonde has written what is there
	Allowed      bool            `json:"allowed"`          // its lease lasts: it restarts its targets, and tells about them
	LeaseSeconds float64         `json:"leaseSeconds"`     // until it no longer may, unless the lease is renewed before; 0 if it may not
	Heard        time.Time       `json:"heard,omitzero"`   // when etcd has last answered this engine while it had all that other engines have stored: what they probe is shown as of then
	Shards       int             `json:"shards"`           // whose targets it probes
	ShardCount   int             `json:"shardCount"`       // of all engines
	Targets      int             `json:"targets"`          // that the configuration shares
	Owned        int             `json:"owned"`            // of these, in the shards of this engine
	Zone         string          `json:"zone"`             // where this engine is; empty if the configuration does not say
	Polls        int             `json:"polls"`            // probes with a quorum that this engine attempts, and votes on
	Gray         int             `json:"gray"`             // probes of targets that it owns, on which engines differ
	Doubt        Doubt           `json:"doubt"`            // why it doubts its own verdicts: then it restarts nothing that is shared, or while it is unwell only what has answered; empty if it does not
	Members      []ClusterMember `json:"members"`          // sorted by name; while etcd cannot be reached, as it was last
	Drains       []ClusterDrain  `json:"drains"`           // the engines that an operator has drained, sorted by name, also those that are not members

	Config *ClusterConfig `json:"config,omitempty"` // absent if targets are in the files of the engines
}

// ClusterConfig is what an engine knows of the configuration that is pushed to its cluster.
type ClusterConfig struct {
	Revision int64     `json:"revision"`         // that it runs; 0 for none
	Since    time.Time `json:"since"`            // when it began to run it, or was started
	Current  int64     `json:"current"`          // that all engines are to run, by what etcd has said last; 0 for none
	Refused  string    `json:"refused,omitzero"` // why it does not run the current revision, or the one that it is to try

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

// The causes of doubt.
const (
	DoubtNone       Doubt = ""
	DoubtUnwell     Doubt = "unwell"     // the engine is, or was a moment ago, degraded or isolated
	DoubtAlone      Doubt = "alone"      // it alone sees many targets fail
	DoubtRecovering Doubt = "recovering" // it was alone a moment ago: its votes count again
)

// ClusterMember is an engine of a cluster.
type ClusterMember struct {
	Name    string       `json:"name"`
	Shards  int          `json:"shards"`  // that it owns
	Targets int          `json:"targets"` // in these, of those that this engine's configuration shares
	Drained bool         `json:"drained"` // it is to have none: an operator has drained it, or it does not run the current revision
	Health  MemberHealth `json:"health"`  // by what it has said last

	Revision *int64 `json:"revision,omitempty"` // of the pushed configuration that it runs, 0 for none; absent if that is not known
	Refused  string `json:"refused,omitzero"`   // why it does not run the current one, or the one that it is to try

	Differs *ClusterDifference `json:"differs,omitempty"` // absent if it shares the same targets as this engine, as far as that is known
}

// ClusterDifference is in what the targets that another engine shares differ from those of this engine. They are compared by
// hashes of each shard: an example may be another target of the same shard.
type ClusterDifference struct {
	Lacks           int      `json:"lacks"`                     // how many targets it lacks that this engine has, at least
	LacksExamples   []string `json:"lacksExamples,omitempty"`   // up to three of these
	More            int      `json:"more"`                      // how many it has that this engine lacks, at least
	Changed         int      `json:"changed"`                   // how many it probes in another way than this engine, at most
	ChangedExamples []string `json:"changedExamples,omitempty"` // up to three of these
}

// MemberHealth is how an engine of a cluster is.
type MemberHealth string

// The healths of engines.
const (
	MemberWell     MemberHealth = "well"
	MemberDoubtful MemberHealth = "doubtful" // it doubts its own verdicts: see Cluster.Doubt
	MemberUnknown  MemberHealth = "unknown"  // it has not said it yet, or etcd has not been heard
)

// ClusterDrain is the order of an operator that an engine is to own no shards.
type ClusterDrain struct {
	Name string    `json:"name"` // of the engine
	By   string    `json:"by"`   // who has ordered it; empty if that is not known
	At   time.Time `json:"at"`
}

// cluster serves /v1/cluster.
func (s *Server) cluster(http.ResponseWriter, *http.Request) (any, error) {
	if s.config.Cluster == nil {
		return nil, errorf(http.StatusNotFound, "the engine is in no cluster: its configuration has no cluster block")
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
