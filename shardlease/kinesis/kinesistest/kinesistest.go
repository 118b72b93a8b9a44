// Package kinesistest provides Kinesis in memory, for tests of a consumer or a handler. The real
// client of the SDK talks to it without a network, also by enhanced fan-out (SubscribeToShard):
//
//	server := kinesistest.New()
//	orders := server.Create("orders", 2)
//	orders.Put("customer-7", []byte("an order"))
//	client := server.Client()
//
// A test lets streams change as they do in production: [Stream.Split], [Stream.Merge],
// [Stream.Forget], [Stream.Delete]. It lets requests fail with [Server.Fail], and subscriptions
// with [Stream.Break].
//
// Time is time.Now, so in a bubble of testing/synctest iterators, records, and subscriptions
// expire without waiting. Create the server inside the bubble. A test must close its subscriptions,
// as a program must: otherwise the bubble reports the goroutines that stay behind.
//
// Sequence numbers are small: those of a stream count its records from 1.
package kinesistest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
)

const (
	region  = "eu-central-1"
	account = "000000000000"
)

// A Server is a Kinesis endpoint. Set its fields before the first request.
type Server struct {
	// Limits makes the server refuse what exceeds the rates of a shard: per second five reads, five
	// iterators, and one SubscribeToShard of each consumer. After an answer of more than 2 MiB it
	// refuses reads for as many seconds as 2 MiB per second need. Without Limits, the server only
	// limits sizes, the number of consumers, and the 5 s between two subscriptions.
	Limits bool
	// PageSize is the maximum number of shards or consumers in an answer. Default: 1,000 shards,
	// 100 consumers.
	PageSize int
	// Ahead is how much the clock of the server is ahead, which the header Date of each answer shows.
	Ahead time.Duration
	// Intercept is called for each request. If it returns an error, the request fails with it, as
	// described at [Server.Fail]. It may sleep, so that the answer is slow.
	Intercept func(Call) error

	mu      sync.Mutex
	streams []*Stream
	made    int // streams that were created
	faults  map[string]*fault
	calls   []Call
}

// A Call is a request that a client has made.
type Call struct {
	Op     string // for example "GetRecords"
	At     time.Time
	Stream string // the name of the stream
	Shard  string
	Fields map[string]any // the fields of the request, without the data of records
}

// Faults that are no errors of Kinesis.
var (
	// ErrSilence means that no byte arrives, and no error. The server never answers a request. It
	// accepts a subscription, but withholds its initial-response. A subscription that breaks with
	// ErrSilence stays open, like a connection that is lost unnoticed.
	ErrSilence = errors.New("kinesistest: no answer")
	// ErrTorn means that a subscription ends in the middle of a frame.
	ErrTorn = errors.New("kinesistest: torn in a frame")
)

// FirstFrame returns a fault of SubscribeToShard: Kinesis accepts the subscription, and its first
// frame is the error. The SDK returns such an error without its type.
func FirstFrame(err smithy.APIError) error { return firstFrame{err} }

type firstFrame struct{ smithy.APIError }

// A fault is what happens to the next requests of an operation.
type fault struct {
	err   error
	times int // negative: until it is replaced
}

// New returns a server without streams.
func New() *Server { return &Server{faults: map[string]*fault{}} }

// Client returns a client of the server, which makes one attempt per request. To change its
// options, use kinesis.New(server.Client().Options(), …).
//
// The SDK's decoder of subscriptions has a data race if a client has two of them at a time. It is
// harmless, but the race detector reports it: let a test use a client for each.
func (s *Server) Client() *kinesis.Client {
	return kinesis.New(kinesis.Options{
		Region: region, HTTPClient: s, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("fake", "fake", ""),
	})
}

// Fail lets the next requests of an operation fail, for example of "GetRecords". It replaces the
// earlier fault of the operation; with times 0 the operation succeeds again, and with a negative
// number it fails until then.
//
// An error of Kinesis, like [*types.ProvisionedThroughputExceededException], is answered with its
// status. SubscribeToShard can also fail with [FirstFrame] or [ErrTorn]. With [ErrSilence] there is no
// answer. With any other error there is no connection: the client's request returns the error.
func (s *Server) Fail(op string, err error, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[op] = &fault{err, times}
}

// Calls returns the requests of one operation, in order, including those that failed.
func (s *Server) Calls(op string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c Call) bool { return c.Op != op })
}

// A request contains the fields of all operations.
type request struct {
	call                             Call
	StreamName, StreamARN, ShardID   string
	ShardIteratorType, ShardIterator string
	StartingSequenceNumber           string
	ExclusiveStartShardID, NextToken string
	ConsumerARN, ConsumerName        string
	PartitionKey, ExplicitHashKey    string
	Data                             []byte
	Timestamp                        float64
	Limit, MaxResults                int
	DryRun                           bool
	ShardFilter                      struct {
		Type, ShardID string
		Timestamp     float64
	}
	StartingPosition struct {
		Type, SequenceNumber string
		Timestamp            float64
	}
	Records []struct {
		Data                          []byte
		PartitionKey, ExplicitHashKey string
	}
}

// Do answers a request of the SDK: a Server is an HTTPClient.
func (s *Server) Do(r *http.Request) (*http.Response, error) {
	out, err := s.do(r)
	if err == nil {
		out.Header.Set("Date", time.Now().Add(s.Ahead).UTC().Format(http.TimeFormat))
	}
	return out, err
}

func (s *Server) do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in, err := read(r)
	if err != nil {
		return nil, err
	}
	if err := s.disturb(in); err != nil {
		return s.failed(r.Context(), in, err)
	}
	if in.call.Op == "SubscribeToShard" && !in.DryRun {
		s.mu.Lock()
		sub, err := s.subscribe(in)
		s.mu.Unlock()
		if err != nil {
			return refusal(err)
		}
		return frames(sub.open(r.Context())), nil
	}
	s.mu.Lock()
	out, err := s.serve(in)
	s.mu.Unlock()
	if err == nil && in.DryRun {
		err = &types.DryRunOperationException{Message: new("the request would succeed")}
	}
	if err != nil {
		return refusal(err)
	}
	return answer(http.StatusOK, out)
}

// read reads the fields of a request.
func read(r *http.Request) (*request, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	in := &request{call: Call{Op: op, At: time.Now()}}
	if err := errors.Join(json.Unmarshal(body, in), json.Unmarshal(body, &in.call.Fields)); err != nil {
		return nil, fmt.Errorf("kinesistest: %s: %w", op, err)
	}
	delete(in.call.Fields, "Data")
	delete(in.call.Fields, "Records")
	return in, nil
}

// disturb records a request and returns the fault that it should have.
func (s *Server) disturb(in *request) error {
	s.mu.Lock()
	if st, shard := s.about(in); st != nil {
		in.call.Stream, in.call.Shard = st.name, shard
	}
	s.calls = append(s.calls, in.call)
	var err error
	if f := s.faults[in.call.Op]; f != nil && f.times != 0 {
		f.times--
		err = f.err
	}
	s.mu.Unlock()
	if err == nil && s.Intercept != nil {
		err = s.Intercept(in.call)
	}
	return err
}

// about returns the stream and the shard of a request; a nil stream if it has none.
func (s *Server) about(in *request) (*Stream, string) {
	if in.ShardIterator != "" {
		at, err := parseIterator(in.ShardIterator)
		if err != nil {
			return nil, ""
		}
		return s.numbered(at.stream), at.shard
	}
	if in.ConsumerARN != "" {
		st, c := s.consumer(in)
		if c == nil {
			return nil, ""
		}
		return st, in.ShardID
	}
	st, _ := s.find(in)
	return st, in.ShardID
}

// failed answers a request with a fault.
func (s *Server) failed(ctx context.Context, in *request, err error) (*http.Response, error) {
	subscribes := in.call.Op == "SubscribeToShard"
	if first, ok := errors.AsType[firstFrame](err); ok && subscribes {
		return frames(io.NopCloser(bytes.NewReader(exception(first.APIError)))), nil
	}
	switch {
	case errors.Is(err, ErrTorn) && subscribes:
		return frames(io.NopCloser(bytes.NewReader(torn(initialResponse())))), nil
	case errors.Is(err, ErrSilence) && subscribes:
		return frames(silence(ctx)), nil
	case errors.Is(err, ErrSilence):
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return refusal(err)
}

// refusal answers with an error of Kinesis, or breaks the connection with any other error.
func refusal(err error) (*http.Response, error) {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return nil, err
	}
	status := http.StatusBadRequest
	if api.ErrorFault() == smithy.FaultServer {
		status = http.StatusInternalServerError
	}
	return answer(status, map[string]any{"__type": api.ErrorCode(), "message": api.ErrorMessage()})
}

func answer(status int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	header := http.Header{"Content-Type": {"application/x-amz-json-1.1"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(text))}, err
}

func (s *Server) serve(in *request) (any, error) {
	switch in.call.Op {
	case "DescribeStreamSummary":
		return s.describe(in)
	case "ListShards":
		return s.listShards(in)
	case "GetShardIterator":
		return s.getIterator(in)
	case "GetRecords":
		return s.getRecords(in)
	case "PutRecord":
		return s.putRecord(in)
	case "PutRecords":
		return s.putRecords(in)
	case "SubscribeToShard":
		_, err := s.admit(in)
		return nil, err
	case "RegisterStreamConsumer":
		return s.register(in)
	case "DescribeStreamConsumer":
		return s.describeConsumer(in)
	case "DeregisterStreamConsumer":
		return s.deregister(in)
	case "ListStreamConsumers":
		return s.listConsumers(in)
	}
	return nil, &smithy.GenericAPIError{Code: "UnknownOperationException", Message: in.call.Op}
}

func missing(format string, args ...any) error {
	return &types.ResourceNotFoundException{Message: new(fmt.Sprintf(format, args...))}
}

func invalid(format string, args ...any) error {
	return &types.InvalidArgumentException{Message: new(fmt.Sprintf(format, args...))}
}
