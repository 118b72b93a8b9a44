// Package fakekinesis is a Kinesis endpoint in memory, for tests in a synctest bubble. The SDK's
// real client uses it without a network, and its time is that of the bubble. Unlike in
// kinesis-local, iterators expire, and shards can be forgotten.
package fakekinesis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
)

// A Shard is a shard of the stream. Its records have the sequence numbers 1, 2, 3 and so on.
type Shard struct {
	Name     string
	Parents  []string
	From, To string // hash keys
	Records  []Record
	Closed   bool
	ClosedAt time.Time // listings from a later time leave the shard out
}

// A Record is one entry. An entry with zero Arrived is included in every read by time.
type Record struct {
	Key, Data string
	Arrived   time.Time
}

// A Call is a request that was made.
type Call struct {
	Op     string
	At     time.Time
	Fields map[string]any
}

// A Server is the endpoint, with one stream.
type Server struct {
	PageSize int                    // the page size of listings; 0: no limit
	Fail     func(op string) Fault  // returns how a request fails
	Silent   func(op string) bool   // reports whether a request is never answered
	Empty    func() bool            // reports whether a GetRecords returns nothing before the end of the shard
	Omit     func(name string) bool // reports whether a listing leaves out a shard that exists
	Repeat   int                    // how many records before its iterator each read returns again
	Created  time.Time              // the creation time of the stream

	mu        sync.Mutex
	shards    []Shard
	recreated int // how often; the iterators of an earlier stream are refused
	calls     []Call
}

// A Fault is the way in which a request fails. With the zero Fault it succeeds.
type Fault struct {
	Status int
	Code   string
}

// New returns a server with these shards. A shard without a range has all hash keys.
func New(shards ...Shard) *Server {
	for i := range shards {
		if shards[i].To == "" {
			shards[i].From, shards[i].To = "0", "340282366920938463463374607431768211455"
		}
	}
	return &Server{shards: shards}
}

// Client returns a client of the server.
func (s *Server) Client() *kinesis.Client {
	return kinesis.New(kinesis.Options{
		Region: "eu-central-1", HTTPClient: s, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("fake", "fake", ""),
	})
}

// Calls returns the requests of one kind, in order.
func (s *Server) Calls(op string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c Call) bool { return c.Op != op })
}

// Shards replaces the shards.
func (s *Server) Shards(shards ...Shard) {
	next := New(shards...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = next.shards
}

// Recreate replaces the stream by another one of the same name, with these shards. The iterators
// of the old stream are not valid for the new one.
func (s *Server) Recreate(shards ...Shard) {
	next := New(shards...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards, s.Created = next.shards, time.Now()
	s.recreated++
}

// Do answers a request.
func (s *Server) Do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if s.Silent != nil && s.Silent(op) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	var fields map[string]any
	if err := json.NewDecoder(r.Body).Decode(&fields); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, Call{Op: op, At: time.Now(), Fields: fields})
	if s.Fail != nil {
		if fault := s.Fail(op); fault.Status != 0 {
			return answer(fault.Status, map[string]any{"__type": fault.Code})
		}
	}
	switch op {
	case "DescribeStreamSummary":
		return s.describe()
	case "ListShards":
		return s.list(fields)
	case "GetShardIterator":
		return s.iterator(fields)
	case "GetRecords":
		return s.records(fields)
	}
	return answer(400, map[string]any{"__type": "UnknownOperationException"})
}

func answer(status int, body map[string]any) (*http.Response, error) {
	text, err := json.Marshal(body)
	header := http.Header{"Content-Type": {"application/x-amz-json-1.1"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(text))}, err
}

func (s *Server) describe() (*http.Response, error) {
	return answer(200, map[string]any{"StreamDescriptionSummary": map[string]any{
		"StreamName": "orders", "StreamARN": "arn:aws:kinesis:eu-central-1:000000000000:stream/orders", "StreamStatus": "ACTIVE",
		"StreamCreationTimestamp": s.Created.Unix(), "OpenShardCount": len(s.shards), "RetentionPeriodHours": 24,
		"EnhancedMonitoring": []any{},
	}})
}

// list returns a page of the shards. A token contains the time of the filter.
func (s *Server) list(fields map[string]any) (*http.Response, error) {
	first, from := 0, 0.0
	if filter, ok := fields["ShardFilter"].(map[string]any); ok {
		from, _ = filter["Timestamp"].(float64)
	}
	if token, ok := fields["NextToken"].(string); ok {
		if len(fields) > 1 {
			return answer(400, map[string]any{"__type": "InvalidArgumentException"})
		}
		_, _ = fmt.Sscanf(token, "%d/%g", &first, &from)
	}
	last := len(s.shards)
	if s.PageSize > 0 {
		last = min(last, first+s.PageSize)
	}
	shards := []map[string]any{}
	for _, shard := range s.shards[first:last] {
		early := !shard.ClosedAt.IsZero() && float64(shard.ClosedAt.Unix()) < from
		if early || s.Omit != nil && s.Omit(shard.Name) {
			continue
		}
		one := map[string]any{
			"ShardId":             shard.Name,
			"HashKeyRange":        map[string]any{"StartingHashKey": shard.From, "EndingHashKey": shard.To},
			"SequenceNumberRange": map[string]any{"StartingSequenceNumber": "0"},
		}
		for i, parent := range shard.Parents {
			one[[]string{"ParentShardId", "AdjacentParentShardId"}[i]] = parent
		}
		shards = append(shards, one)
	}
	out := map[string]any{"Shards": shards}
	if last < len(s.shards) {
		out["NextToken"] = fmt.Sprintf("%d/%g", last, from)
	}
	return answer(200, out)
}

func (s *Server) find(name string) *Shard {
	for i := range s.shards {
		if s.shards[i].Name == name {
			return &s.shards[i]
		}
	}
	return nil
}

func (s *Server) iterator(fields map[string]any) (*http.Response, error) {
	name, _ := fields["ShardId"].(string)
	shard := s.find(name)
	if shard == nil {
		return answer(400, map[string]any{"__type": "ResourceNotFoundException"})
	}
	at := 0
	if number, ok := fields["StartingSequenceNumber"].(string); ok {
		at, _ = strconv.Atoi(number)
		if fields["ShardIteratorType"] == "AT_SEQUENCE_NUMBER" {
			at--
		}
	}
	if from, ok := fields["Timestamp"].(float64); ok {
		for at < len(shard.Records) && !shard.Records[at].Arrived.IsZero() && float64(shard.Records[at].Arrived.Unix()) < from {
			at++
		}
	}
	return answer(200, map[string]any{"ShardIterator": s.iteratorAt(name, at)})
}

// iteratorAt returns an iterator: a place in a shard of this stream, and the time of its creation.
func (s *Server) iteratorAt(name string, at int) string {
	return fmt.Sprintf("%s/%d/%d/%d", name, at, time.Now().UnixNano(), s.recreated)
}

func (s *Server) records(fields map[string]any) (*http.Response, error) {
	text, _ := fields["ShardIterator"].(string)
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return answer(400, map[string]any{"__type": "InvalidArgumentException"})
	}
	at, _ := strconv.Atoi(parts[1])
	given, _ := strconv.ParseInt(parts[2], 10, 64)
	if time.Since(time.Unix(0, given)) > 5*time.Minute {
		return answer(400, map[string]any{"__type": "ExpiredIteratorException"})
	}
	shard := s.find(parts[0])
	if shard == nil || parts[3] != strconv.Itoa(s.recreated) {
		return answer(400, map[string]any{"__type": "ResourceNotFoundException"})
	}
	at = min(at, len(shard.Records))
	limit := len(shard.Records)
	if n, ok := fields["Limit"].(float64); ok {
		limit = min(limit, at+int(n))
	}
	if s.Empty != nil && s.Empty() {
		limit = at
	}
	at = max(at-s.Repeat, 0)
	records := []map[string]any{}
	for i, r := range shard.Records[at:limit] {
		records = append(records, map[string]any{
			"SequenceNumber": strconv.Itoa(at + i + 1), "PartitionKey": r.Key, "Data": []byte(r.Data),
		})
	}
	out := map[string]any{"Records": records, "MillisBehindLatest": 1000 * (len(shard.Records) - limit)}
	if !shard.Closed || limit < len(shard.Records) {
		out["NextShardIterator"] = aws.String(s.iteratorAt(shard.Name, limit))
	}
	return answer(200, out)
}
