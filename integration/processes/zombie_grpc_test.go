//go:build unix

package processes

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencegrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// methodWrite adds a line, or only raises the fence if the line is empty.
const methodWrite = "/zombie.Lines/Write"

// linesOverGRPC is a service with a ledger. It is written by hand, so that the test needs no generated code.
var linesOverGRPC = grpc.ServiceDesc{
	ServiceName: "zombie.Lines", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Write", Handler: writeOverGRPC}},
}

func writeOverGRPC(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	text := new(wrapperspb.StringValue)
	if err := decode(text); err != nil {
		return nil, err
	}
	return intercept(ctx, text, &grpc.UnaryServerInfo{Server: server, FullMethod: methodWrite}, func(ctx context.Context, _ any) (any, error) {
		return text, fence.Do(ctx, server.(*zombie.Ledger), func(_ context.Context, lines *[]string) error {
			if text.GetValue() != "" {
				*lines = append(*lines, text.GetValue())
			}
			return nil
		})
	})
}

// serveGRPC starts a service for a test, and returns its address.
func serveGRPC(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(fencegrpc.UnaryServer))
	server.RegisterService(&linesOverGRPC, zombie.NewLedger())
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); served.Wait() })
	return listener.Addr().String()
}

// overGRPC returns the sink of such a service.
func overGRPC(address string) (zombie.Sink, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(fencegrpc.UnaryClient))
	write := func(ctx context.Context, text string) error {
		return conn.Invoke(ctx, methodWrite, wrapperspb.String(text), new(wrapperspb.StringValue))
	}
	return zombie.Sink{Write: write, Raise: func(ctx context.Context, name string, generation int64) error {
		t, _ := fence.FromContext(ctx)
		t.Shard, t.Generation = name, generation
		return write(fence.NewContext(ctx, t), "")
	}}, err
}
