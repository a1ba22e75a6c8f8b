package xds

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// health answers as grpc.health.v1. Services are groups, by their names, and their members, whose
// names follow that of the group and a slash. The service with the empty name is the server.
type health struct {
	healthv1.UnimplementedHealthServer
	session *gateway.Session
	ctx     context.Context // of the server
}

// Check implements healthv1.HealthServer.
func (h *health) Check(_ context.Context, r *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	s := h.of(r.GetService())
	if s == healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
		h.session.Refused()
		return nil, status.Errorf(codes.NotFound, "group or member %.300q does not exist, or its state is not known yet", r.GetService())
	}
	return &healthv1.HealthCheckResponse{Status: s}, nil
}

// Watch implements healthv1.HealthServer.
func (h *health) Watch(r *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	sent := healthv1.HealthCheckResponse_ServingStatus(-1)
	for ctx.Err() == nil {
		before := h.session.Views()
		if now := h.of(r.GetService()); now != sent {
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			sent = now
		}
		group.AwaitReplaced(ctx, before)
	}
	return status.Error(codes.Unavailable, "the server is shutting down")
}

// of returns the status of a service.
func (h *health) of(service string) healthv1.HealthCheckResponse_ServingStatus {
	if service == "" {
		return healthv1.HealthCheckResponse_SERVING
	}
	found := healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	for _, v := range h.session.Kept() {
		if v == nil {
			continue
		}
		if service == v.Group {
			return ofGroup(v)
		}
		if target, ok := strings.CutPrefix(service, v.Group+"/"); ok {
			if m := v.Member(target); m != nil {
				found = ofMember(m)
			}
		}
	}
	return found
}

// ofGroup returns the status of a group: by its last decision while that depends on members that
// are not known.
func ofGroup(v *group.View) healthv1.HealthCheckResponse_ServingStatus {
	switch v.Last {
	case probe.GatewayReady:
		return healthv1.HealthCheckResponse_SERVING
	case probe.GatewayDown:
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
}

func ofMember(m *group.Member) healthv1.HealthCheckResponse_ServingStatus {
	if m.InRotation {
		return healthv1.HealthCheckResponse_SERVING
	}
	return healthv1.HealthCheckResponse_NOT_SERVING
}
