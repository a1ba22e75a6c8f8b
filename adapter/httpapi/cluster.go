package httpapi

import "net/http"

// Cluster is the response of /v1/cluster: what this engine knows of the engines that it shares targets with.
type Cluster struct {
	Name         string          `json:"name"`         // of this engine
	Member       bool            `json:"member"`       // it is a member, by what etcd has said last
	Allowed      bool            `json:"allowed"`      // its lease lasts: it restarts its targets, and tells about them
	LeaseSeconds float64         `json:"leaseSeconds"` // until it no longer may, unless the lease is renewed before; 0 if it may not
	Shards       int             `json:"shards"`       // whose targets it probes
	ShardCount   int             `json:"shardCount"`   // of all engines
	Targets      int             `json:"targets"`      // that the configuration shares
	Owned        int             `json:"owned"`        // of these, in the shards of this engine
	Zone         string          `json:"zone"`         // where this engine is; empty if the configuration does not say
	Polls        int             `json:"polls"`        // probes with a quorum that this engine attempts, and votes on
	Gray         int             `json:"gray"`         // probes with a quorum, of targets that it owns, on which engines differ
	Doubt        Doubt           `json:"doubt"`        // why it doubts its own verdicts: then its votes do not count, and it restarts nothing that is shared; empty if it does not
	Members      []ClusterMember `json:"members"`      // sorted by name; while etcd cannot be reached, as it was last
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
	Name    string `json:"name"`
	Shards  int    `json:"shards"`  // that it owns
	Drained bool   `json:"drained"` // it is to have none
}

// cluster serves /v1/cluster.
func (s *Server) cluster(w http.ResponseWriter, _ *http.Request) {
	if s.config.Cluster == nil {
		respondError(w, http.StatusNotFound, "the engine is in no cluster: its configuration has no cluster block")
		return
	}
	c := s.config.Cluster()
	if c.Members == nil {
		c.Members = []ClusterMember{}
	}
	respond(w, c)
}
