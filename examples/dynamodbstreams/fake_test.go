package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// A fake is a DynamoDB Streams endpoint in memory, for tests in a synctest bubble. The SDK's
// real client uses it without a network, and its time is that of the bubble. Unlike in
// DynamoDB Local, iterators expire, records are trimmed, and shards are closed and forgotten.
type fake struct {
	mu     sync.Mutex
	shards []*fakeShard
	fail   map[string]string // the error of an operation, by its name
	asked  []string          // kinds and places of the iterators that were requested
	pages  int
	empty  func() bool // whether a read returns nothing before the end of the shard; nil: never
}

// A fakeShard is a shard whose records have the sequence numbers from+1 to to.
type fakeShard struct {
	id, parent string
	from, to   int
	closed     bool
	forgotten  bool      // reads fail, but the shard is still listed
	since      time.Time // the time of its records
}

const fakeArn = "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/1"

func (f *fake) streams() *streams {
	client := dynamodbstreams.New(dynamodbstreams.Options{
		Region: "eu-central-1", HTTPClient: f, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("fake", "fake", ""),
	})
	return &streams{client: client, arns: []string{fakeArn}, pace: time.Second / 4, log: slog.New(slog.DiscardHandler)}
}

// change changes the shards while they are read.
func (f *fake) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Do answers a request.
func (f *fake) Do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var in struct{ StreamArn, ShardId, ShardIteratorType, SequenceNumber, ShardIterator, ExclusiveStartShardId string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	f.mu.Lock()
	defer f.mu.Unlock()
	if code := f.fail[op]; code != "" {
		return refuse(code)
	}
	if op != "GetRecords" && in.StreamArn != fakeArn {
		return refuse("ResourceNotFoundException")
	}
	switch op {
	case "DescribeStream":
		return f.list(in.ExclusiveStartShardId)
	case "GetShardIterator":
		f.asked = append(f.asked, in.ShardIteratorType+in.SequenceNumber)
		after, _ := strconv.Atoi(in.SequenceNumber)
		s := f.find(in.ShardId)
		switch {
		case s == nil || s.forgotten:
			return refuse("ResourceNotFoundException")
		case in.ShardIteratorType == "TRIM_HORIZON":
			after = s.from
		case after < s.from:
			return refuse("TrimmedDataAccessException")
		}
		return answer(200, map[string]any{"ShardIterator": iterator(s, after)})
	case "GetRecords":
		return f.records(in.ShardIterator)
	}
	return refuse("UnknownOperationException")
}

func answer(status int, body map[string]any) (*http.Response, error) {
	text, err := json.Marshal(body)
	header := http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(text))}, err
}

func refuse(code string) (*http.Response, error) {
	return answer(400, map[string]any{"__type": code})
}

func (f *fake) find(id string) *fakeShard {
	for _, s := range f.shards {
		if s.id == id {
			return s
		}
	}
	return nil
}

// list returns pages of two shards.
func (f *fake) list(after string) (*http.Response, error) {
	f.pages++
	at := 0
	for i, s := range f.shards {
		if s.id == after {
			at = i + 1
		}
	}
	page := map[string]any{"StreamStatus": "ENABLED"}
	var shards []any
	for _, s := range f.shards[at:min(at+2, len(f.shards))] {
		numbers := map[string]any{"StartingSequenceNumber": number(s.from + 1)}
		if s.closed {
			numbers["EndingSequenceNumber"] = number(s.to)
		}
		one := map[string]any{"ShardId": s.id, "SequenceNumberRange": numbers}
		if s.parent != "" {
			one["ParentShardId"] = s.parent
		}
		shards = append(shards, one)
		page["LastEvaluatedShardId"] = s.id
	}
	if at+2 >= len(f.shards) {
		delete(page, "LastEvaluatedShardId")
	}
	page["Shards"] = shards
	return answer(200, map[string]any{"StreamDescription": page})
}

// iterator consists of a place in a shard and the time of its creation.
func iterator(s *fakeShard, at int) string {
	return fmt.Sprintf("%s/%d/%d", s.id, at, time.Now().UnixNano())
}

func number(n int) string { return fmt.Sprintf("%021d", n) }

// records returns up to ten records.
func (f *fake) records(iter string) (*http.Response, error) {
	parts := strings.Split(iter, "/")
	at, _ := strconv.Atoi(parts[1])
	given, _ := strconv.ParseInt(parts[2], 10, 64)
	s := f.find(parts[0])
	switch {
	case s == nil || s.forgotten:
		return refuse("ResourceNotFoundException")
	case time.Since(time.Unix(0, given)) > 15*time.Minute:
		return refuse("ExpiredIteratorException")
	case at < s.from:
		return refuse("TrimmedDataAccessException")
	}
	records := []any{}
	most := 10
	if f.empty != nil && f.empty() {
		most = 0
	}
	for ; at < s.to && len(records) < most; at++ {
		records = append(records, map[string]any{"eventID": fmt.Sprint(at + 1), "eventName": "MODIFY", "dynamodb": map[string]any{
			"SequenceNumber": number(at + 1), "ApproximateCreationDateTime": s.since.Unix() + int64(at),
			"Keys": map[string]any{"id": map[string]any{"S": "x"}},
		}})
	}
	out := map[string]any{"Records": records}
	if !s.closed || at < s.to {
		out["NextShardIterator"] = iterator(s, at)
	}
	return answer(200, out)
}
