package fencegrpc_test

import (
	"context"
	"strings"

	"github.com/shardlease/shardlease-go/shardlease/fencegrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A client needs the interceptors, and makes its calls with the context of a tenure.
func ExampleUnaryClient() {
	conn, err := grpc.NewClient("dns:///orders.example.com",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(fencegrpc.UnaryClient),
		grpc.WithStreamInterceptor(fencegrpc.StreamClient))
	if err == nil {
		_ = conn.Close()
	}
}

// A server reads the token for its fenced service, and none for its health checks.
func ExampleUnaryServer() {
	_ = grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if strings.HasPrefix(info.FullMethod, "/orders.") {
				return fencegrpc.UnaryServer(ctx, request, info, handle)
			}
			return handle(ctx, request)
		}))
}
