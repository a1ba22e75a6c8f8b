package xds_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	_ "google.golang.org/grpc/health" // by which clients follow a service
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sonde-probe/sonde/gateway/xds"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestGroupsAndMembersAreServices(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80", MinReady: probe.Minimum{Count: 2}}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"})
	address, _ := serve(s, xds.Config{})
	client := healthv1.NewHealthClient(dial(t, address))
	check := func(service string) string {
		t.Helper()
		answer, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			return status.Code(err).String()
		}
		return answer.Status.String()
	}
	watch := func(service string) func() string {
		t.Helper()
		stream, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return func() string {
			answer, err := stream.Recv()
			if err != nil {
				return err.Error()
			}
			return answer.Status.String()
		}
	}
	web, b, none := watch("web"), watch("web/b"), watch("web/none")
	for name, next := range map[string]func() string{"web": web, "web/b": b, "web/none": none} {
		if got := next(); got != "SERVICE_UNKNOWN" {
			t.Errorf("before anything is known, Watch says of %s %s", name, got)
		}
	}
	if got := check("") + " " + check("web") + " " + check("web/a"); got != "SERVING NotFound NotFound" {
		t.Errorf("before anything is known, Check says %s", got)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success})
	if got := web() + " " + b(); got != "SERVING SERVING" {
		t.Errorf("Watch says %s", got)
	}
	s.Say(map[string]probe.Outcome{"b": probe.Failure})
	if got := web() + " " + b(); got != "NOT_SERVING NOT_SERVING" {
		t.Errorf("after a failure Watch says %s", got)
	}
	if got := check("web") + " " + check("web/a") + " " + check("web/b") + " " + check("web/none") + " " + check("other"); got != "NOT_SERVING SERVING NOT_SERVING NotFound NotFound" {
		t.Errorf("after a failure Check says %s", got)
	}
	s.LoseTargets()
	if got := check("web") + " " + check("web/a"); got != "NOT_SERVING SERVING" {
		t.Errorf("when nothing is known Check says %s", got)
	}
}

// A channel of grpc-go that follows the health of a service has the state of the group.
func TestClientsOfGRPCFollowAService(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	address, _ := serve(s, xds.Config{})
	conn := dial(t, address, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":"web"}}`))
	ctx, cancel := context.WithTimeout(t.Context(), testsync.Timeout)
	defer cancel()
	await := func(want connectivity.State) {
		t.Helper()
		conn.Connect()
		for state := conn.GetState(); state != want; state = conn.GetState() {
			if !conn.WaitForStateChange(ctx, state) {
				t.Fatalf("the channel is %v, want %v", state, want)
			}
		}
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	await(connectivity.Ready)
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	await(connectivity.TransientFailure)
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call to a service that is down has ended with %v", err)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	await(connectivity.Ready)
}
