// Package xds serves groups of targets over gRPC: to Envoy and to clients of gRPC by their
// discovery services (xDS), and as services of grpc.health.v1.
//
// A Server is an output of package gateway: it follows the groups of an engine in the same
// program (package group), or those of another engine (package follow).
//
//	xds.go         Server: the listener, and who may use it
//	connections.go the bound on open connections
//	discovery.go   the discovery services
//	resources.go   groups as resources of xDS
//	health.go      grpc.health.v1
package xds

import (
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Server.
type Config struct {
	// Listen is an address and port, such as 127.0.0.1:9782, or a Unix socket, written
	// unix:/run/sonde-xds.sock. Without Token or TLS with client certificates it must be a loopback
	// address or a Unix socket. Required.
	Listen string

	// SocketForGroup says that members of the group of the process can connect to the Unix socket,
	// which then has the mode 0660. Default: only its user and root can, and the mode is 0600.
	SocketForGroup bool

	// Token must be sent by clients, as "authorization: Bearer TOKEN". Default: none.
	Token string

	// TLS is for the listener. Its ClientAuth says whether clients need certificates. Default: no
	// TLS.
	TLS *tls.Config

	// Retries is how many times clients of gRPC send a call again that ends with UNAVAILABLE
	// before the headers of its response have arrived, 0 to 10. Default 0: not every call
	// may be made twice.
	Retries int

	// DegradedStatus says that degraded members have the status DEGRADED: Envoy sends them
	// requests only if too few are healthy, and clients of gRPC none. Default: they are HEALTHY,
	// and have the weight that the group says.
	DegradedStatus bool
}

// maxRetries bounds Config.Retries.
const maxRetries = 10

// Bounds on what clients may use.
const (
	maxConnections    = 1024
	maxStreams        = 64      // of a connection
	maxMessage        = 1 << 20 // bytes of a request
	maxSocketPath     = 100     // bytes
	connectionTimeout = 5 * time.Second
	maxIdle           = 5 * time.Minute  // of a connection without calls
	keepaliveTime     = 30 * time.Second // after which a silent client is asked whether it is there
	keepaliveTimeout  = 10 * time.Second
	leastKeepalive    = 5 * time.Second // of what clients may ask
	endTimeout        = time.Second     // for calls to end when the server does
)

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	if problem := listener.Token(c.Token).Problem(); problem != "" {
		return probe.FieldErrorf("token", "%s", problem)
	}
	if c.Retries < 0 || c.Retries > maxRetries {
		return probe.FieldErrorf("retries", "is %d, it must be from 0 to %d", c.Retries, maxRetries)
	}
	if path, ok := strings.CutPrefix(c.Listen, "unix:"); ok {
		if !filepath.IsAbs(path) || len(path) > maxSocketPath {
			return probe.FieldErrorf("listen", "is %.120q: the path of a Unix socket must be absolute, and have at most %d bytes", c.Listen, maxSocketPath)
		}
		return nil
	}
	switch loopback, valid := listener.Loopback(c.Listen); {
	case !valid:
		return probe.FieldErrorf("listen", "is %.120q: it must be an address and a port number, or unix: and the path of a socket", c.Listen)
	case !loopback && c.Token == "" && !c.needsCertificates():
		return probe.FieldErrorf("listen", "is %.120q, which other machines can reach without authentication: set a token or client certificates, or listen on 127.0.0.1", c.Listen)
	}
	return nil
}

// needsCertificates reports whether clients need certificates.
func (c Config) needsCertificates() bool {
	return c.TLS != nil && c.TLS.ClientAuth == tls.RequireAndVerifyClientCert
}

// socketMode returns the mode of the Unix socket, if there is one.
func (c Config) socketMode() fs.FileMode {
	if c.SocketForGroup {
		return listener.ForGroup
	}
	return listener.ForUser
}

// server is an output that serves groups over gRPC.
type server struct{ config Config }

// New returns an output that serves groups over gRPC. The configuration must have passed Check.
func New(c Config) gateway.Output { return &server{c} }

// Run implements gateway.Output.
func (s *server) Run(ctx context.Context, session *gateway.Session) {
	d, err := newDiscovery(session, s.config)
	if err != nil {
		session.Failed("resources", err)
		<-ctx.Done()
		return
	}
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { d.follow(ctx) })
	session.Listen(ctx, s.config.Listen, s.config.socketMode(), func(ctx context.Context, l net.Listener) error { return s.serve(ctx, l, session, d) })
}

// serve serves the connections of a listener until it fails, or ctx is done.
func (s *server) serve(ctx context.Context, l net.Listener, session *gateway.Session, d *discovery) error {
	limited := limitConnections(l)
	options := []grpc.ServerOption{
		grpc.StatsHandler(limited),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxMessage), grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastKeepalive, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := s.admit(ctx, session); err != nil {
				return nil, err
			}
			return next(ctx, r)
		}),
		grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := s.admit(stream.Context(), session); err != nil {
				return err
			}
			return next(server, stream)
		}),
	}
	if s.config.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.config.TLS)))
	}
	server := grpc.NewServer(options...)
	services := serverv3.NewServer(ctx, d.all, d.callbacks())
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, services)
	endpointservicev3.RegisterEndpointDiscoveryServiceServer(server, services)
	healthv1.RegisterHealthServer(server, &health{session: session, ctx: ctx})

	var ending sync.WaitGroup
	defer ending.Wait()
	ended := make(chan struct{})
	defer close(ended)
	ending.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended:
		}
		force := time.AfterFunc(endTimeout, server.Stop)
		defer force.Stop()
		server.GracefulStop()
	})
	if err := server.Serve(limited); err != nil {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

// admit returns why a call is not answered, or nil.
func (s *server) admit(ctx context.Context, session *gateway.Session) error {
	given, _ := metadata.FromIncomingContext(ctx)
	token := ""
	if values := given.Get("authorization"); len(values) == 1 {
		if scheme, rest, _ := strings.Cut(values[0], " "); strings.EqualFold(scheme, "Bearer") {
			token = rest
		}
	}
	if !listener.Token(s.config.Token).Matches(token) {
		session.Refused()
		return status.Error(codes.Unauthenticated, "missing or wrong token: send the metadata authorization: Bearer <token>")
	}
	return nil
}
