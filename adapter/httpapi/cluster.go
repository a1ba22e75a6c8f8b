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
	Members      []ClusterMember `json:"members"`      // sorted by name; while etcd cannot be reached, as it was last
}

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
