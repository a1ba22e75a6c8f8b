package xds_test

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/sonde-probe/sonde/gateway/xds"
	"github.com/sonde-probe/sonde/probe"
)

// What a client rejects is not sent again until it changes: client and server would do nothing else.
func TestWhatAClientRejectsIsSentOnce(t *testing.T) {
	s := scene(t)
	address, _ := serve(s, xds.Config{})
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, address)).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *discoveryv3.DiscoveryRequest) {
		t.Helper()
		r.ResourceNames = []string{"web"}
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(typeURL string) *discoveryv3.DiscoveryResponse {
		t.Helper()
		answer, err := stream.Recv()
		if err != nil || answer.TypeUrl != typeURL || len(answer.Resources) != 1 {
			t.Fatalf("the answer is %v, %v; want one resource of the type %s", answer, err, typeURL)
		}
		return answer
	}
	rejection := &rpcstatus.Status{Message: "odd"}

	types := []string{resourcev3.ListenerType, resourcev3.ClusterType, resourcev3.EndpointType}
	for _, typeURL := range types { // each answer says that the server has read the rejection before
		send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL})
		first := receive(typeURL)
		send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResponseNonce: first.Nonce, ErrorDetail: rejection})
	}
	s.Say(map[string]probe.Outcome{"b": probe.Success})
	second := receive(resourcev3.EndpointType)
	send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.EndpointType, ResponseNonce: second.Nonce, VersionInfo: second.VersionInfo})
	s.Say(map[string]probe.Outcome{"b": probe.Failure})
	third := receive(resourcev3.EndpointType)
	send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.EndpointType, ResponseNonce: third.Nonce, VersionInfo: second.VersionInfo, ErrorDetail: rejection})
	s.Say(map[string]probe.Outcome{"b": probe.Success})
	if fourth := receive(resourcev3.EndpointType); fourth.VersionInfo == third.VersionInfo {
		t.Error("endpoints that were rejected are sent again")
	}
}
