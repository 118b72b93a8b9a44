package fencegrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencegrpc"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"github.com/shardlease/shardlease-go/shardlease/tenuretest"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A ledger is a guard in memory, whose effects add entries.
type ledger struct {
	pause func() // is called where a real storage would be

	mu      sync.Mutex
	fences  map[string]int64
	entries map[string][]string // by shard
}

func newLedger(pause func()) *ledger {
	return &ledger{pause: pause, fences: map[string]int64{}, entries: map[string][]string{}}
}

func (l *ledger) Do(ctx context.Context, t fence.Token, effect func(context.Context, *[]string) error) error {
	l.pause()
	defer l.pause()
	l.mu.Lock()
	defer l.mu.Unlock()
	if observed := l.fences[t.Shard]; t.Generation < observed {
		return &checkpoint.StaleError{Shard: t.Shard, Mine: t.Generation, Observed: observed, Owner: "b", OutcomeUnknown: true}
	}
	var added []string
	if err := effect(ctx, &added); err != nil {
		return err
	}
	l.fences[t.Shard] = t.Generation
	l.entries[t.Shard] = append(l.entries[t.Shard], added...)
	return nil
}

func (l *ledger) list(_ context.Context, shard string) (list [][]byte, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.entries[shard] {
		list = append(list, []byte(entry))
	}
	return list, nil
}

// soldOut is an error of the service itself, whose details happen to have a reason of this package.
func soldOut() error {
	s, err := status.New(codes.ResourceExhausted, "sold out").WithDetails(&errdetails.ErrorInfo{Domain: "shop", Reason: "STALE"})
	return errors.Join(err, s.Err())
}

// add is the effect of one message.
func (l *ledger) add(ctx context.Context, text string) error {
	return fence.Do(ctx, l, func(_ context.Context, step *[]string) error {
		if text == "sold out" {
			return soldOut()
		}
		if text != "" { // otherwise the call only raises the fence
			*step = append(*step, text)
		}
		return nil
	})
}

// The service is written by hand, so that the test needs no generated code.
const (
	methodAdd  = "/orders.Ledger/Add"
	methodAdds = "/orders.Ledger/Adds"
)

var service = grpc.ServiceDesc{
	ServiceName: "orders.Ledger", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Add", Handler: unary}},
	Streams: []grpc.StreamDesc{{StreamName: "Adds", Handler: streamed, ClientStreams: true, ServerStreams: true}},
}

func unary(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	text := new(wrapperspb.StringValue)
	if err := decode(text); err != nil {
		return nil, err
	}
	return intercept(ctx, text, &grpc.UnaryServerInfo{Server: server, FullMethod: methodAdd}, func(ctx context.Context, request any) (any, error) {
		return text, server.(*ledger).add(ctx, request.(*wrapperspb.StringValue).GetValue())
	})
}

// streamed answers each message when its effect is applied.
func streamed(server any, stream grpc.ServerStream) error {
	for {
		text := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := server.(*ledger).add(stream.Context(), text.GetValue()); err != nil {
			return err
		}
		if err := stream.SendMsg(text); err != nil {
			return err
		}
	}
}

// serve starts a server, and returns a connection; with interceptors only if they are given.
func serve(t testing.TB, l *ledger, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.UnaryInterceptor(fencegrpc.UnaryServer), grpc.StreamInterceptor(fencegrpc.StreamServer))
	server.RegisterService(&service, l)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///ledger", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); served.Wait() })
	return conn
}

func sending() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(fencegrpc.UnaryClient), grpc.WithStreamInterceptor(fencegrpc.StreamClient)}
}

// callOnce adds an entry by a call of its own.
func callOnce(ctx context.Context, conn *grpc.ClientConn, text string) error {
	return conn.Invoke(ctx, methodAdd, wrapperspb.String(text), new(wrapperspb.StringValue))
}

// callStream adds an entry by a stream of one message.
func callStream(ctx context.Context, conn *grpc.ClientConn, text string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &service.Streams[0], methodAdds)
	if err != nil {
		return err
	}
	return exchange(stream, text)
}

func exchange(stream grpc.ClientStream, text string) error {
	if err := stream.SendMsg(wrapperspb.String(text)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return stream.RecvMsg(new(wrapperspb.StringValue)) // io.EOF at SendMsg: the status comes here
}

var calls = map[string]func(context.Context, *grpc.ClientConn, string) error{"call": callOnce, "stream": callStream}

func under(ctx context.Context, shard string, generation int64) context.Context {
	return fence.NewContext(ctx, fence.Token{Group: "orders", Shard: shard, Generation: generation})
}

// TestServiceIsFenced: a stale call has no effect, wherever its client or the server was stopped.
func TestServiceIsFenced(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
				l := newLedger(t.Pause)
				conn := serve(t, l, sending()...)
				return fencetest.Sink{
					Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
						return call(under(ctx, f.Shard, f.Generation), conn, string(effect))
					},
					Effects: l.list,
					Raise: func(ctx context.Context, f fencetest.Fence) error {
						return call(under(ctx, f.Shard, f.Generation), conn, "")
					},
					Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
				}
			})
		})
	}
}

// TestLateCallIsRefused: the late call of an owner that was cut off is refused, although its successor has made none.
func TestLateCallIsRefused(t *testing.T) {
	zombie.Check(t, func(t *testing.T) zombie.Sink {
		conn := serve(t, newLedger(func() {}), sending()...)
		return zombie.Sink{
			Raise: func(ctx context.Context, _ string, _ int64) error { return callOnce(ctx, conn, "") },
			Write: func(ctx context.Context, text string) error { return callOnce(ctx, conn, text) },
		}
	})
}

// TestTenureSendsItsTokenOverGRPC: both contexts of a tenure have its token.
func TestTenureSendsItsTokenOverGRPC(t *testing.T) {
	l := newLedger(func() {})
	conn := serve(t, l, sending()...)
	tenure := tenuretest.Begin(t, shardlease.Config{Group: "orders"}, "shard-3", checkpoint.Mark{})
	err := tenure.Call(func(ctx context.Context, tn *shardlease.Tenure) error {
		return errors.Join(callOnce(ctx, conn, "from ctx"), callStream(tn.Context(), conn, "from t.Context()"))
	})
	if err != nil || l.fences["shard-3"] != tenure.Generation() || len(l.entries["shard-3"]) != 2 {
		t.Errorf("%v; fences %v, entries %v", err, l.fences, l.entries)
	}
}

// TestStreamIsRefusedWhenTheShardMoves: a stream that was begun before the shard changed hands is
// refused at its next message.
func TestStreamIsRefusedWhenTheShardMoves(t *testing.T) {
	l := newLedger(func() {})
	conn := serve(t, l, sending()...)
	stream, err := conn.NewStream(under(t.Context(), "シャード", 7), &service.Streams[0], methodAdds)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(exchange(stream, "first"), callOnce(under(t.Context(), "シャード", 8), conn, "of the successor")); err != nil {
		t.Fatal(err)
	}
	err = exchange(stream, "late")
	stale, ok := errors.AsType[*checkpoint.StaleError](err)
	if want := (checkpoint.StaleError{Shard: "シャード", Mine: 7, Observed: 8, Owner: "b", OutcomeUnknown: true}); !ok || *stale != want {
		t.Errorf("got %v, want %v", err, &want)
	}
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the code is %v", status.Code(err))
	}
}

// TestCallsWithoutTokenAreRefused: by the client, which does not send them, and by the server, if
// another client does.
func TestCallsWithoutTokenAreRefused(t *testing.T) {
	l := newLedger(func() {})
	fenced, plain := serve(t, l, sending()...), serve(t, l)
	malformed := metadata.AppendToOutgoingContext(t.Context(), fence.FieldGeneration, "x")
	twice := metadata.AppendToOutgoingContext(t.Context(),
		fence.FieldGroup, "g", fence.FieldShard, "s", fence.FieldGeneration, "7", fence.FieldGeneration, "8")
	for name, call := range calls {
		for _, tc := range []struct {
			what string
			conn *grpc.ClientConn
			ctx  context.Context
			want error // nil: any, because the client has no interceptors
			code codes.Code
		}{
			{"not sent", fenced, t.Context(), fence.ErrMissing, codes.Unknown},
			{"invalid, not sent", fenced, under(t.Context(), "s", 0), checkpoint.ErrInvalid, codes.Unknown},
			{"missing", plain, t.Context(), nil, codes.FailedPrecondition},
			{"malformed", plain, malformed, nil, codes.InvalidArgument},
			{"two generations", plain, twice, nil, codes.InvalidArgument},
		} {
			err := call(tc.ctx, tc.conn, "x")
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || status.Code(err) != tc.code {
				t.Errorf("%s, %s: %v", name, tc.what, err)
			}
		}
		err := call(under(t.Context(), "s", 7), fenced, "sold out")
		if status.Code(err) != codes.ResourceExhausted || errors.Is(err, checkpoint.ErrStale) {
			t.Errorf("%s: the service's own error arrives as %v", name, err)
		}
	}
	if len(l.entries) != 0 || len(l.fences) != 0 {
		t.Errorf("entries %v, fences %v", l.entries, l.fences)
	}
}

// TestRefusedTokensAreTyped: a client that sends a token of another way gets the typed errors, and a
// token that was in the metadata already is replaced.
func TestRefusedTokensAreTyped(t *testing.T) {
	l := newLedger(func() {})
	spoil := func(value string) grpc.UnaryClientInterceptor { // "": no token is sent
		return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			all, _ := metadata.FromOutgoingContext(ctx)
			for field := range all {
				if delete(all, field); value != "" {
					all.Set(field, value)
				}
			}
			return invoke(metadata.NewOutgoingContext(ctx, all), method, request, reply, conn, options...)
		}
	}
	for want, value := range map[error]string{fence.ErrMissing: "", checkpoint.ErrInvalid: "%"} {
		conn := serve(t, l, grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClient, spoil(value)))
		if err := callOnce(under(t.Context(), "s", 7), conn, "x"); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	before := metadata.AppendToOutgoingContext(under(t.Context(), "s", 7), fence.FieldGeneration, "6")
	if err := callOnce(before, serve(t, l, sending()...), "x"); err != nil || l.fences["s"] != 7 {
		t.Errorf("%v, fences %v", err, l.fences)
	}
}
