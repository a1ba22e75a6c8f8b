package xds

import (
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
)

// newAssignment returns the endpoints of a group, and an error if a member is left out.
//
// Each has a locality of its own, with its weight: gRPC's clients know weights of localities
// only, and a change of weight moves no connection. The locality of an endpoint that gets no
// requests has no weight, by which these clients drop it. Envoy does not look at the weights of
// localities unless it is told to.
func newAssignment(v *group.View, degradedStatus bool) (*endpointv3.ClusterLoadAssignment, error) {
	all, problem := httpgateway.Endpoints(v, degradedStatus)
	localities := make([]*endpointv3.LocalityLbEndpoints, len(all))
	for i, e := range all {
		weight := wrapperspb.UInt32(uint32(e.Weight))
		localities[i] = &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{SubZone: e.Target},
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
					Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: e.Address.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(e.Address.Port())},
					}},
				}}},
				HealthStatus:        corev3.HealthStatus(corev3.HealthStatus_value[e.Health]),
				LoadBalancingWeight: weight,
			}},
		}
		if e.Serves() {
			localities[i].LoadBalancingWeight = weight
		}
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: v.Group, Endpoints: localities}, problem
}

// overADS says that further resources come by the same stream.
var overADS = &corev3.ConfigSource{
	ResourceApiVersion:    corev3.ApiVersion_V3,
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
}

// newCluster returns the cluster of a group.
func newCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS},
		LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
		CommonLbConfig:       &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{}}, // the group decides
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
			{MaxRequests: wrapperspb.UInt32(math.MaxUint32)}, // by default a client fails calls while 1,024 are under way
		}},
	}
}

// newListener returns the listener by which a client of gRPC reaches a group: with the route to
// its cluster for each call, which may be retried.
func newListener(name string, retries int) (*listenerv3.Listener, error) {
	route := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}}
	if retries > 0 {
		route.RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(uint32(retries))}
	}
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix: name,
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: name,
			VirtualHosts: []*routev3.VirtualHost{{
				Name: name, Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
					Action: &routev3.Route_Route{Route: route},
				}},
			}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
	})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: manager}}, nil
}
