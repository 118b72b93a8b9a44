package endtoend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
)

// common are the codes that the API reference has for all operations, with their status.
var common = map[string]int{
	"AccessDeniedException": 400, "ExpiredTokenException": 403, "IncompleteSignature": 403, "InternalFailure": 500,
	"MalformedHttpRequestException": 400, "NotAuthorized": 401, "OptInRequired": 403, "RequestAbortedException": 400,
	"RequestEntityTooLargeException": 413, "RequestTimeoutException": 408, "ServiceUnavailable": 503, "ThrottlingException": 400,
	"UnknownOperationException": 404, "UnrecognizedClientException": 403, "ValidationError": 400,
}

var ofKeys = []string{
	"KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException", "KMSNotFoundException", "KMSOptInRequired",
	"KMSThrottlingException",
}

// own are the codes that the API reference has for single operations. Those of the last line have the status 500.
var own = map[string][]string{
	"DescribeStreamSummary":    {"InvalidArgumentException", "LimitExceededException", "ResourceNotFoundException"},
	"ListShards":               {"ExpiredNextTokenException", "InvalidArgumentException", "LimitExceededException", "ResourceInUseException", "ResourceNotFoundException"},
	"GetShardIterator":         {"InternalFailureException", "InvalidArgumentException", "ProvisionedThroughputExceededException", "ResourceNotFoundException"},
	"GetRecords":               append([]string{"ExpiredIteratorException", "InternalFailureException", "InvalidArgumentException", "ProvisionedThroughputExceededException", "ResourceNotFoundException"}, ofKeys...),
	"SubscribeToShard":         {"InvalidArgumentException", "LimitExceededException", "ResourceInUseException", "ResourceNotFoundException"},
	"DescribeStreamConsumer":   {"InvalidArgumentException", "LimitExceededException", "ResourceNotFoundException"},
	"RegisterStreamConsumer":   {"InvalidArgumentException", "LimitExceededException", "ResourceInUseException", "ResourceNotFoundException"},
	"DeregisterStreamConsumer": {"InvalidArgumentException", "LimitExceededException", "ResourceNotFoundException"},
}

// Faults that are no codes.
const (
	lost   = "lost"   // the request is served, and the connection breaks before the answer
	slow   = "slow"   // the answer comes late
	silent = "silent" // there is no answer
)

// faults are the faults of requests, in turn.
type faults struct {
	every  map[string]int // how many requests of an operation one fault has; 0 for all others
	silent bool           // some requests are not answered: that takes long
	late   time.Duration

	mu       sync.Mutex
	quiet    bool
	requests map[string]int
	had      map[string]int
}

// of returns all faults of an operation.
func (f *faults) of(op string) []string {
	all := append([]string{lost, slow}, own[op]...)
	if f.silent {
		all = append(all, silent)
	}
	return append(all, slices.Sorted(maps.Keys(common))...)
}

// next returns the fault of a request, or "".
func (f *faults) next(op string, body []byte) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	every := f.every[op]
	if every == 0 {
		every = f.every[""]
	}
	if f.quiet {
		return ""
	}
	if f.requests[op]++; f.requests[op]%every != 0 {
		return ""
	}
	all := f.of(op)
	fault := all[f.had[op]%len(all)]
	f.had[op]++
	// A consumer asks for the beginning of a shard that is not listed, to find out whether it exists. If Kinesis
	// says no to both, the shard is gone for every consumer.
	if fault == "ResourceNotFoundException" && op == "GetShardIterator" && bytes.Contains(body, []byte("TRIM_HORIZON")) {
		return ""
	}
	return fault
}

// rare are the operations that a consumer uses once in a while, too seldom for all faults.
var rare = []string{"DescribeStreamConsumer", "RegisterStreamConsumer", "ListStreamConsumers"}

// unseen returns the other operations that were used, and have not had all their faults yet.
func (f *faults) unseen() (ops []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range slices.Sorted(maps.Keys(f.requests)) {
		if f.had[op] < len(f.of(op)) && !slices.Contains(rare, op) {
			ops = append(ops, fmt.Sprint(op, " ", f.had[op]))
		}
	}
	return ops
}

func (f *faults) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = true
}

var errBroken = errors.New("the connection is broken")

// A wire is the way of one consumer to Kinesis.
type wire struct {
	*member
	next kinesis.HTTPClient
}

// Do sends a request of the SDK.
func (x *wire) Do(r *http.Request) (*http.Response, error) {
	if err := x.reach(r.Context()); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	switch fault := x.faults.next(op, body); fault {
	case "":
	case silent:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case lost:
		out, err := x.next.Do(r)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(errBroken, out.Body.Close())
	case slow:
		out, err := x.next.Do(r)
		if err == nil && !pause(r.Context(), x.faults.late) {
			return nil, errors.Join(r.Context().Err(), out.Body.Close())
		}
		return out, err
	default:
		return refuse(fault), nil
	}
	return x.next.Do(r)
}

// refuse answers with an error of Kinesis.
func refuse(code string) *http.Response {
	status := http.StatusBadRequest
	if code == "InternalFailureException" {
		status = http.StatusInternalServerError
	}
	if of := common[code]; of > 0 {
		status = of
	}
	text := fmt.Sprintf(`{"__type":%q,"message":"on purpose"}`, code)
	header := http.Header{"Content-Type": {"application/x-amz-json-1.1"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text))}
}
