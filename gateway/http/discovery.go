package httpgateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
)

// MaxNames bounds the names of resources that a request, or a stream of xDS, asks for.
const MaxNames = 10_000

// resourceType is the type of the endpoints of a cluster.
const resourceType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// discoveryRequest is what a DiscoveryRequest asks for.
type discoveryRequest struct {
	names   map[string]bool // of clusters; empty for all
	version string          // of the endpoints that the client has, or has rejected
}

// parseDiscovery reads a DiscoveryRequest in JSON, with the names of fields that Envoy sends. Its error is for the client.
func parseDiscovery(text []byte) (r discoveryRequest, err error) {
	var written struct {
		Version  string    `json:"version_info"`
		Nonce    string    `json:"response_nonce"`
		Names    []string  `json:"resource_names"`
		Type     string    `json:"type_url"`
		Rejected *struct{} `json:"error_detail"`
	}
	if err := json.Unmarshal(text, &written); err != nil {
		return r, fmt.Errorf("the request is not a DiscoveryRequest in JSON: %w", err)
	}
	if written.Type != "" && written.Type != resourceType {
		return r, fmt.Errorf("type_url is %.120q: this server has only resources of the type %s", written.Type, resourceType)
	}
	if n := len(written.Names); n > MaxNames {
		return r, fmt.Errorf("the request has %d resource_names, at most %d are allowed", n, MaxNames)
	}
	r.version = written.Version
	if written.Rejected != nil { // version_info is what it has accepted before
		r.version = written.Nonce
	}
	r.names = make(map[string]bool, len(written.Names))
	for _, name := range written.Names {
		r.names[name] = true
	}
	return r, nil
}

// discoveryResponse is a DiscoveryResponse.
type discoveryResponse struct {
	Version   string       `json:"version_info"`
	Resources []assignment `json:"resources"`
	Type      string       `json:"type_url"`
	Nonce     string       `json:"nonce"`
}

// assignment is a ClusterLoadAssignment.
type assignment struct {
	Type      string     `json:"@type"`
	Cluster   string     `json:"cluster_name"`
	Endpoints []locality `json:"endpoints"`
}

type locality struct {
	Endpoints []lbEndpoint `json:"lb_endpoints"`
}

type lbEndpoint struct {
	Endpoint endpoint `json:"endpoint"`
	Health   string   `json:"health_status"`
	Weight   int      `json:"load_balancing_weight"`
}

type endpoint struct {
	Address address `json:"address"`
}

type address struct {
	Socket socketAddress `json:"socket_address"`
}

type socketAddress struct {
	Address string `json:"address"`
	Port    uint16 `json:"port_value"`
}

// newDiscoveryAnswer returns the members of groups as endpoints, as Envoy reads them. The version is a hash, so that
// it is another one only if they are, also from one engine to the next.
func newDiscoveryAnswer(views []*group.View, degradedStatus bool) (*answer, error) {
	resources, problems := []assignment{}, make(map[string]error, len(views))
	for _, v := range views {
		all, problem := Endpoints(v, degradedStatus)
		problems[gateway.SourceGroup(v.Group)] = problem
		written := make([]lbEndpoint, len(all))
		for i, e := range all {
			written[i] = lbEndpoint{Health: e.Health, Weight: e.Weight}
			written[i].Endpoint.Address.Socket = socketAddress{e.Address.Addr().String(), e.Address.Port()}
		}
		resources = append(resources, assignment{resourceType, v.Group, []locality{{written}}})
	}
	text, err := json.Marshal(resources)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	version := hex.EncodeToString(sum[:8])
	text, err = json.MarshalIndent(discoveryResponse{version, resources, resourceType, version}, "", "  ")
	return &answer{text: append(text, '\n'), version: version, problems: problems}, err
}
