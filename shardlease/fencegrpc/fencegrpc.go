// Package fencegrpc carries fencing tokens over gRPC: from the context of a tenure into the metadata
// of each call, and from there into the context of the server's method. A refusal arrives at the
// client as a [*checkpoint.StaleError] and as the status FailedPrecondition, both in one error.
//
// The interceptors of a server read the token and compare nothing, because they would check before
// the method writes, and the shard may change hands between the two. The method applies its effect
// in the step of a guard, and returns the error as it is:
//
//	err := fence.Do(ctx, guard, func(ctx context.Context, tx *sql.Tx) error { … })
//
// It is a module of its own, so that users of the library do not get the requirements of gRPC.
package fencegrpc

import (
	"context"
	"fmt"

	"github.com/shardlease/shardlease-go/shardlease/fence"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// UnaryClient is a [grpc.UnaryClientInterceptor] that sends the token of the call's context. It
// makes no call without a token, and returns [fence.ErrMissing].
func UnaryClient(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	ctx, err := sending(ctx)
	if err != nil {
		return err
	}
	return received(invoke(ctx, method, request, reply, conn, options...))
}

// StreamClient is a [grpc.StreamClientInterceptor] that sends the token of the stream's context, as
// UnaryClient does. The token is sent once and holds for the whole stream.
func StreamClient(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := sending(ctx)
	if err != nil {
		return nil, err
	}
	s, err := stream(ctx, desc, conn, method, options...)
	if err != nil {
		return nil, received(err)
	}
	return clientStream{s}, nil
}

func sending(ctx context.Context) (context.Context, error) {
	t, ok := fence.FromContext(ctx)
	if !ok {
		return nil, fmt.Errorf("%w in the context of the call: use the context of a tenure", fence.ErrMissing)
	}
	fields, err := t.Fields()
	if err != nil {
		return nil, err
	}
	all, _ := metadata.FromOutgoingContext(ctx) // a copy
	if all == nil {
		all = metadata.MD{}
	}
	for field, value := range fields {
		all.Set(field, value)
	}
	return metadata.NewOutgoingContext(ctx, all), nil
}

// A clientStream translates the status with which the server ends the stream.
type clientStream struct{ grpc.ClientStream }

func (s clientStream) RecvMsg(m any) error { return received(s.ClientStream.RecvMsg(m)) }

// UnaryServer is a [grpc.UnaryServerInterceptor] that puts the token of a call into its context,
// where [fence.FromContext] finds it. A call without a token fails with FailedPrecondition, one with
// a malformed token with InvalidArgument, and one whose method returns a *checkpoint.StaleError with
// FailedPrecondition.
//
// It requires a token of every call. A server with other methods, such as health checks, calls it
// for the fenced ones only.
func UnaryServer(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, err := receiving(ctx)
	if err != nil {
		return nil, sent(err)
	}
	reply, err := handle(ctx, request)
	return reply, sent(err)
}

// StreamServer is a [grpc.StreamServerInterceptor] that does the same for streams. A method applies
// the effect of each message in a step of the guard: the shard may change hands during a stream.
func StreamServer(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, err := receiving(stream.Context())
	if err != nil {
		return sent(err)
	}
	return sent(handle(server, serverStream{stream, ctx}))
}

func receiving(ctx context.Context) (context.Context, error) {
	all, _ := metadata.FromIncomingContext(ctx)
	t, err := fence.Parse(all.Get)
	if err != nil {
		return nil, err
	}
	return fence.NewContext(ctx, t), nil
}

// A serverStream is a stream whose context has the token.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }
