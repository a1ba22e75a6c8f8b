package xds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/gateway/xds"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const token = "0123456789abcdef"

// scene is a group whose member is ready.
func scene(t *testing.T) *gatewaytest.Scene {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure})
	return s
}

// ask asks for the health of the server and for endpoints, and returns how both end.
func ask(ctx context.Context, conn *grpc.ClientConn) (health, endpoints codes.Code) {
	_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	health = status.Code(err)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err == nil {
		_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.EndpointType, ResourceNames: []string{"web"}})
		_, err = stream.Recv() // which says why sending has failed
	}
	return health, status.Code(err)
}

func TestTheTokenIsNeeded(t *testing.T) {
	address, o := serve(scene(t), xds.Config{Token: token})
	conn := dial(t, address)
	for _, c := range []struct {
		metadata []string
		want     codes.Code
	}{
		{nil, codes.Unauthenticated},
		{[]string{"authorization", "Bearer wrong"}, codes.Unauthenticated},
		{[]string{"authorization", token}, codes.Unauthenticated},
		{[]string{"authorization", "Bearer " + token, "authorization", "Bearer x"}, codes.Unauthenticated},
		{[]string{"authorization", "Bearer " + token}, codes.OK},
	} {
		health, endpoints := ask(metadata.AppendToOutgoingContext(t.Context(), c.metadata...), conn)
		if health != c.want || endpoints != c.want {
			t.Errorf("with %q the answers are %v and %v, want %v", c.metadata, health, endpoints, c.want)
		}
	}
	if st := o.Gateways.Statuses()[0]; st.Refused != 8 || st.Errors != 0 {
		t.Errorf("%d calls were refused, and %d errors counted, want 8 and none", st.Refused, st.Errors)
	}
}

func TestClientsNeedCertificates(t *testing.T) {
	ours, others := dialtest.NewAuthority(t), dialtest.NewAuthority(t)
	pool := x509.NewCertPool()
	text, err := os.ReadFile(ours.File)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{ours.Sign(t, time.Hour, "127.0.0.1")}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	address, _ := serve(scene(t), xds.Config{Listen: "127.0.0.1:0", TLS: server})
	if err := (xds.Config{Listen: ":0", TLS: server}).Check(); err != nil {
		t.Errorf("with client certificates other machines are refused: %v", err)
	}
	if err := (xds.Config{Listen: ":0", TLS: &tls.Config{}}).Check(); err == nil {
		t.Error("without client certificates other machines can ask")
	}
	for name, c := range map[string]struct {
		certificates []tls.Certificate
		want         codes.Code
	}{
		"none":              {nil, codes.Unavailable},
		"another authority": {[]tls.Certificate{others.Sign(t, time.Hour, "client")}, codes.Unavailable},
		"ours":              {[]tls.Certificate{ours.Sign(t, time.Hour, "client")}, codes.OK},
	} {
		conn := dial(t, address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: c.certificates})))
		if health, endpoints := ask(t.Context(), conn); health != c.want || endpoints != c.want {
			t.Errorf("%s: the answers are %v and %v, want %v", name, health, endpoints, c.want)
		}
	}
}

// The remains of a socket are replaced; a socket where a process listens is not, nor is a file.
func TestTheListenerCanBeAUnixSocket(t *testing.T) {
	dir := testsync.SocketDir(t)
	path := filepath.Join(dir, "xds.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	s := scene(t)
	_, first := serve(s, xds.Config{Listen: "unix:" + path})
	conn := dial(t, "unix:"+path)
	if health, endpoints := ask(t.Context(), conn); health != codes.OK || endpoints != codes.OK {
		t.Errorf("the answers are %v and %v", health, endpoints)
	}
	file := gatewaytest.WriteFile(t, dir, "file", "kept")
	for _, used := range []string{path, file} {
		second := s.RunOutput(func() gateway.Output { return xds.New(xds.Config{Listen: "unix:" + used}) })
		testsync.Until(t, "a failure", func() bool { return strings.Contains(second.Gateways.Statuses()[0].Error, used+" is in use") })
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if st := first.Gateways.Statuses()[0]; st.Error != "" {
		t.Errorf("the status of the first is %+v", st)
	}
	if health, _ := ask(t.Context(), conn); health != codes.OK {
		t.Errorf("the first answers %v", health)
	}
}

// Connections without calls, however many, give way to a new one; those with calls stay.
func TestClientsWithoutCallsDoNotShutOutOthers(t *testing.T) {
	address, _ := serve(scene(t), xds.Config{})
	watch := func() healthv1.Health_WatchClient {
		t.Helper()
		stream, err := healthv1.NewHealthClient(dial(t, address)).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: "web"})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	first := watch()
	ended := make(chan error, 1)
	go func() { _, err := first.Recv(); ended <- err }()
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty frame, as HTTP/2 begins
	for range 1100 {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			_, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	watch()
	select {
	case err := <-ended:
		t.Errorf("a call under way has ended: %v", err)
	default:
	}
}

// A stream that asks for too much is ended.
func TestWhatAStreamAsksForIsBounded(t *testing.T) {
	address, _ := serve(scene(t), xds.Config{})
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, address))
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(i))
		}
		return all
	}
	types, err := client.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		_ = types.Send(&discoveryv3.DiscoveryRequest{TypeUrl: fmt.Sprint("type.googleapis.com/", i)}) // until it has ended
	}
	if _, err := types.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream of 100 types has ended with %v", err)
	}
	many, err := client.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = many.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.EndpointType, ResourceNames: names(10_001)})
	if _, err := many.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream of 10,001 names has ended with %v", err)
	}
	delta, err := client.DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // names that it has not asked for do not make room
		first := i * 5000
		_ = delta.Send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: resourcev3.ClusterType, ResourceNamesSubscribe: names(15_000)[first : first+5000], ResourceNamesUnsubscribe: names(25_000)[20_000:],
		})
	}
	if _, err := delta.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("an incremental stream of 15,000 names has ended with %v", err)
	}
}

// Streams that ask for much keep their names together within a bound, and an end makes room.
func TestWhatAllStreamsAskForIsBounded(t *testing.T) {
	address, _ := serve(scene(t), xds.Config{})
	names := []string{"web"}
	for i := range 9999 {
		names = append(names, fmt.Sprint(i))
	}
	open := func(client discoveryv3.AggregatedDiscoveryServiceClient, want codes.Code) (end func()) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		stream, err := client.StreamAggregatedResources(ctx)
		if err == nil {
			_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.EndpointType, ResourceNames: names})
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Fatalf("a stream has ended with %v, want %v", err, want)
		}
		return end
	}
	first := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, address))
	second := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, address)) // one connection has 64 streams at most
	end := open(first, codes.OK)
	for range 49 {
		open(first, codes.OK)
	}
	for range 50 {
		open(second, codes.OK)
	}
	open(second, codes.ResourceExhausted)
	end()
	testsync.Until(t, "room", func() bool {
		stream, err := second.StreamAggregatedResources(t.Context())
		if err != nil {
			return false
		}
		_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.EndpointType, ResourceNames: names})
		_, err = stream.Recv()
		return err == nil
	})
}

// An incremental client gets the endpoints, and each change; what it rejects is reported.
func TestIncrementalClientsFollow(t *testing.T) {
	s := scene(t)
	address, o := serve(s, xds.Config{DegradedStatus: true})
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, address)).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		r.TypeUrl = resourcev3.EndpointType
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(want string) (nonce string) {
		t.Helper()
		answer, err := stream.Recv()
		if err != nil || len(answer.Resources) != 1 {
			t.Fatalf("the answer is %v, %v", answer, err)
		}
		if got := endpoints(t, answer.Resources[0].Resource); got != want {
			t.Errorf("the endpoints are %s, want %s", got, want)
		}
		return answer.Nonce
	}
	send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"web", "none"}})
	send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: receive("a 10.0.0.1:80 HEALTHY 100 100, b 10.0.0.2:80 UNHEALTHY 1 0")})
	s.Say(map[string]probe.Outcome{"b": probe.Warning})
	nonce := receive("a 10.0.0.1:80 HEALTHY 100 100, b 10.0.0.2:80 DEGRADED 100 100")
	if st := o.Gateways.Statuses()[0]; st.Errors > 0 || st.Refused > 0 {
		t.Errorf("there were %d errors, and %d refused requests", st.Errors, st.Refused)
	}
	send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: nonce, ErrorDetail: &rpcstatus.Status{Message: "odd"}})
	testsync.Until(t, "the rejection", func() bool {
		return o.Gateways.Statuses()[0].Error == `client "" rejects resources of the type "`+resourcev3.EndpointType+`": "odd"`
	})
	s.Say(map[string]probe.Outcome{"b": probe.Success})
	nonce = receive("a 10.0.0.1:80 HEALTHY 100 100, b 10.0.0.2:80 HEALTHY 100 100")
	if st := o.Gateways.Statuses()[0]; st.Error == "" {
		t.Error("what the client rejects is forgotten with the next change")
	}
	send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: nonce})
	testsync.Until(t, "no error", func() bool { return o.Gateways.Statuses()[0].Error == "" })
}

// An incremental client that reconnects has endpoints from an earlier life of the server. No answer
// removes them while nothing is known about their group.
func TestIncrementalClientsKeepTheirEndpointsOverARestart(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	address, _ := serve(s, xds.Config{})
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dial(t, address)).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{TypeUrl: resourcev3.EndpointType, ResourceNamesSubscribe: []string{"web"}, InitialResourceVersions: map[string]string{"web": "earlier"}},
		{TypeUrl: resourcev3.ClusterType, ResourceNamesSubscribe: []string{"web"}},
	} {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(typeURL string) {
		t.Helper()
		answer, err := stream.Recv()
		if err != nil || answer.TypeUrl != typeURL || len(answer.Resources) != 1 || len(answer.RemovedResources) > 0 {
			t.Fatalf("the answer is %v, %v; want one resource of the type %s", answer, err, typeURL)
		}
	}
	receive(resourcev3.ClusterType) // the server has read the request for endpoints before
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	receive(resourcev3.EndpointType)
}

// endpoints describes endpoints: "a 10.0.0.1:80 HEALTHY 100 100", with the weights of the
// endpoint and of its locality.
func endpoints(t *testing.T, resource *anypb.Any) (text string) {
	t.Helper()
	var assignment endpointv3.ClusterLoadAssignment
	if err := resource.UnmarshalTo(&assignment); err != nil {
		t.Fatal(err)
	}
	if err := assignment.ValidateAll(); err != nil {
		t.Error(err)
	}
	for i, locality := range assignment.Endpoints {
		e := locality.LbEndpoints[0]
		at := e.GetEndpoint().GetAddress().GetSocketAddress()
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %s:%d %v %d %d", locality.Locality.SubZone, at.GetAddress(), at.GetPortValue(), e.HealthStatus, e.GetLoadBalancingWeight().GetValue(), locality.GetLoadBalancingWeight().GetValue())
	}
	return text
}
