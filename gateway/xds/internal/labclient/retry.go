package main

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// retryUnanswered is an interceptor for calls that may be made twice. It makes one again that has
// got no answer within two seconds, or whose answer has begun and is cut off.
func retryUnanswered(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) (err error) {
	for range 3 {
		var header metadata.MD
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = invoke(try, method, request, reply, conn, append(slices.Clip(options), grpc.Header(&header))...)
		cancel()
		hung := status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil
		cut := status.Code(err) == codes.Unavailable && len(header) > 0
		if !hung && !cut {
			break
		}
	}
	return err
}
