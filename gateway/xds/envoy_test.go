package xds_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const page = "../../docs/gateways/envoy.md"

// What the output "envoy" writes by hand are messages of Envoy, by REST and in files, and it
// reads Envoy's requests in both forms of JSON.
func TestTheOutputForEnvoyWritesItsMessages(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80", DegradedWeight: 0.25}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "fd00::3", "d": "10.0.0.4"})
	dir := t.TempDir()
	o := s.Serve(func() gateway.Output {
		return httpgateway.Envoy{Listen: "127.0.0.1:0", Wait: 10 * time.Millisecond, Directory: dir, DegradedStatus: true}.Output()
	})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure, "c": probe.Warning, "d": probe.Success})
	s.Leave("d")
	want := "10.0.0.1:80 HEALTHY 100, 10.0.0.2:80 UNHEALTHY 1, fd00::3:80 DEGRADED 25, 10.0.0.4:80 DRAINING 1"
	metadata, err := structpb.NewStruct(map[string]any{"role": "edge", "zones": []any{"a", 1.5, nil}})
	if err != nil {
		t.Fatal(err)
	}
	request := &discoveryv3.DiscoveryRequest{
		TypeUrl: resourcev3.EndpointType, ResourceNames: []string{"web"},
		Node: &corev3.Node{Id: "edge-1", Cluster: "edge", Metadata: metadata, UserAgentName: "envoy", Extensions: []*corev3.Extension{{Name: "x", Category: "y"}}},
	}
	ask := func() (status int, text string) {
		body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(request) // as Envoy does
		if err != nil {
			t.Fatal(err)
		}
		return gatewaytest.Do(t, http.MethodPost, o.URL+"/v3/discovery:endpoints", string(body), "Host: sonde")
	}
	status, first := ask()
	if status != 200 {
		t.Fatalf("the answer is %d %s", status, first)
	}
	answer := checkResponse(t, first, want)
	if request.VersionInfo = answer.VersionInfo; answer.VersionInfo == "" {
		t.Error("the answer has no version")
	}
	if status, text := ask(); status != 304 {
		t.Errorf("with the present version the answer is %d %s", status, text)
	}
	testsync.Until(t, "the file", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "web.json"))
		return err == nil && strings.Contains(string(text), "DRAINING")
	})
	text, err := os.ReadFile(filepath.Join(dir, "web.json"))
	if err != nil {
		t.Fatal(err)
	}
	checkResponse(t, string(text), want)
}

// checkResponse decodes a DiscoveryResponse, and compares its endpoints.
func checkResponse(t *testing.T, text, want string) *discoveryv3.DiscoveryResponse {
	t.Helper()
	response := &discoveryv3.DiscoveryResponse{}
	if err := protojson.Unmarshal([]byte(text), response); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(response.Resources) != 1 || response.TypeUrl != resourcev3.EndpointType {
		t.Fatalf("the response has %d resources of the type %s", len(response.Resources), response.TypeUrl)
	}
	assignment := &endpointv3.ClusterLoadAssignment{}
	if err := response.Resources[0].UnmarshalTo(assignment); err != nil {
		t.Fatal(err)
	}
	if err := assignment.ValidateAll(); err != nil || assignment.ClusterName != "web" {
		t.Errorf("the cluster is %q: %v", assignment.ClusterName, err)
	}
	var all []string
	for _, locality := range assignment.Endpoints {
		for _, e := range locality.LbEndpoints {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			all = append(all, fmt.Sprintf("%s:%d %v %d", at.GetAddress(), at.GetPortValue(), e.HealthStatus, e.GetLoadBalancingWeight().GetValue()))
		}
	}
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("the endpoints are %s, want %s", got, want)
	}
	return response
}

// fill reads YAML into a message, which knows all fields, and checks it by Envoy's rules.
func fill(t *testing.T, text string, into interface {
	proto.Message
	ValidateAll() error
}) {
	t.Helper()
	written, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(written, into); err != nil {
		t.Fatal(err)
	}
	if err := into.ValidateAll(); err != nil {
		t.Error(err)
	}
}

// The configurations of docs/gateways/envoy.md are Envoy's, and have what the page says of them.
func TestTheRecommendedConfigurationIsValid(t *testing.T) {
	var bootstrap bootstrapv3.Bootstrap
	fill(t, gatewaytest.CodeBlock(t, page, "yaml", "static_resources"), &bootstrap)
	clusters := bootstrap.GetStaticResources().GetClusters()
	web, sonde := clusters[0], clusters[1]
	source := web.GetEdsClusterConfig().GetEdsConfig().GetApiConfigSource()
	if web.CommonLbConfig.GetHealthyPanicThreshold() == nil || web.CommonLbConfig.HealthyPanicThreshold.Value != 0 || web.OutlierDetection != nil || web.HealthChecks != nil {
		t.Errorf("the cluster is %v", web)
	}
	if limits := web.GetCircuitBreakers().GetThresholds(); len(limits) != 1 || limits[0].GetMaxRetries().GetValue() < 1000 {
		t.Errorf("the circuit breakers are %v: by default Envoy has 3 retries under way, and fails further requests", limits)
	}
	if source.ApiType != corev3.ApiConfigSource_REST || source.ClusterNames[0] != sonde.Name || source.RequestTimeout.AsDuration() <= 30*time.Second {
		t.Errorf("the source of the endpoints is %v, and waits for 30s", source)
	}
	at := sonde.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
	hcl := gatewaytest.CodeBlock(t, page, "hcl", `gateway "envoy"`)
	if !strings.Contains(hcl, fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())) || !strings.Contains(hcl, `wait      = "30s"`) {
		t.Errorf("Envoy asks at %v, and Sonde has\n%s", at, hcl)
	}
	manager, err := bootstrap.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	route := manager.(*hcmv3.HttpConnectionManager).GetRouteConfig().GetVirtualHosts()[0].GetRoutes()[0].GetRoute()
	if route.GetCluster() != web.Name || route.GetRetryPolicy().GetNumRetries().GetValue() != 2 || len(route.RetryPolicy.RetryHostPredicate) != 1 {
		t.Errorf("the route is %v", route)
	}

	var byFile clusterv3.Cluster
	fill(t, "name: web\n"+gatewaytest.CodeBlock(t, page, "yaml", "path_config_source"), &byFile)
	if path := byFile.GetEdsClusterConfig().GetEdsConfig().GetPathConfigSource().GetPath(); !strings.Contains(hcl, filepath.Dir(path)) || filepath.Base(path) != "web.json" {
		t.Errorf("the path is %s", path)
	}
	var byGRPC corev3.ConfigSource
	fill(t, gatewaytest.CodeBlock(t, page, "yaml", "api_type: GRPC"), &byGRPC)
	if byGRPC.GetApiConfigSource().GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName() != sonde.Name {
		t.Errorf("the source is %v", &byGRPC)
	}
}
