// Command labclient is a client of gRPC for the lab of tests/gateways, which has no gRPC itself:
//
//	labclient calls SOCKET                    answers each HTTP request at a Unix socket by a call of xds:///web
//	labclient health ADDRESS SERVICE...       prints the status of services of grpc.health.v1 when it changes
//
// The calls are of any method: the lab's backends answer all alike, with their names as metadata.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	_ "google.golang.org/grpc/xds" // the scheme xds
)

// watchPause is the time from the end of a stream of statuses to the next one.
const watchPause = 20 * time.Millisecond

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("labclient: calls SOCKET, or health ADDRESS SERVICE...")
	}
	var err error
	switch os.Args[1] {
	case "calls":
		err = serveCalls(os.Args[2])
	case "health":
		err = followHealth(os.Args[2], os.Args[3:])
	default:
		err = fmt.Errorf("%q: write calls or health", os.Args[1])
	}
	log.Fatalf("labclient: %v", err)
}

// serveCalls makes calls for requests at a socket. The environment variable GRPC_XDS_BOOTSTRAP
// names the file that says where xds:///web is.
func serveCalls(socket string) error {
	conn, err := dial("xds:///web", grpc.WithUnaryInterceptor(retryUnanswered))
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, attempts, err := call(r.Context(), conn)
		w.Header().Set("Repeated", strconv.FormatInt(max(attempts-1, 0), 10))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			by = err.Error()
		}
		_, _ = io.WriteString(w, by)
	}))
}

// dial returns a connection whose attempts are counted.
func dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(attemptCounter{}))...)
}

// call makes a call. It returns who has answered, and how often the call was sent: gRPC repeats
// some, and retryUnanswered others.
func call(ctx context.Context, conn *grpc.ClientConn) (by string, attempts int64, err error) {
	var count atomic.Int64
	var header metadata.MD
	ctx = context.WithValue(ctx, attemptCounter{}, &count)
	if _, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Header(&header)); err == nil {
		by = header.Get("backend")[0]
	}
	return by, count.Load(), err
}

// attemptCounter counts what is sent for a call, in the *atomic.Int64 of its context.
type attemptCounter struct{}

// TagRPC implements stats.Handler.
func (attemptCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (attemptCounter) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if count, ok := ctx.Value(attemptCounter{}).(*atomic.Int64); ok {
		if _, sent := s.(*stats.OutHeader); sent {
			count.Add(1)
		}
	}
}

// TagConn implements stats.Handler.
func (attemptCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (attemptCounter) HandleConn(context.Context, stats.ConnStats) {}

// followHealth prints a line for each status: its service, and its name.
func followHealth(address string, services []string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	var following sync.WaitGroup
	for _, service := range services {
		following.Go(func() {
			for ; ; time.Sleep(watchPause) {
				stream, err := healthv1.NewHealthClient(conn).Watch(context.Background(), &healthv1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
				for err == nil {
					var answer *healthv1.HealthCheckResponse
					if answer, err = stream.Recv(); err == nil {
						fmt.Println(service, answer.Status)
					}
				}
			}
		})
	}
	following.Wait()
	return nil
}
