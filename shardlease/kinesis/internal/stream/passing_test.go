package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestPassing: how each error of the API reference is taken, by a reader and at the start. A reader repeats a request that was
// refused because of permissions, keys or credentials, because people change these.
func TestPassing(t *testing.T) {
	for code, want := range map[string]struct{ passing, refused, throttled bool }{
		"ProvisionedThroughputExceededException": {true, false, true},
		"LimitExceededException":                 {true, false, true},
		"KMSThrottlingException":                 {true, false, true},
		"ThrottlingException":                    {true, false, true},
		"RequestLimitExceeded":                   {true, false, true},
		"ExpiredTokenException":                  {true, false, false},
		"RequestExpired":                         {true, false, false},
		"RequestTimeTooSkewed":                   {true, false, false},
		"RequestTimeoutException":                {true, false, false},
		"RequestAbortedException":                {true, false, false},
		"InternalFailureException":               {true, false, false},
		"AccessDeniedException":                  {true, true, false},
		"UnrecognizedClientException":            {true, true, false},
		"InvalidSignatureException":              {true, true, false},
		"IncompleteSignature":                    {true, true, false},
		"OptInRequired":                          {true, true, false},
		"KMSAccessDeniedException":               {true, true, false},
		"KMSDisabledException":                   {true, true, false},
		"KMSInvalidStateException":               {true, true, false},
		"KMSNotFoundException":                   {true, true, false},
		"KMSOptInRequired":                       {true, true, false},
		"InvalidArgumentException":               {false, true, false},
		"ValidationException":                    {false, true, false},
		"ResourceNotFoundException":              {false, true, false},
		"UnknownOperationException":              {false, true, false},
	} {
		server := newFake(kinesistest.Shard{Name: "a"})
		server.Fail("GetRecords", &smithy.GenericAPIError{Code: code}, -1)
		_, err := server.Client().GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: aws.String("i")})
		if p, r, th := stream.Passing(err), stream.Refused(err), stream.Throttled(err); p != want.passing || r != want.refused || th != want.throttled {
			t.Errorf("%s: passing %t, refused %t, throttled %t, want %v", code, p, r, th, want)
		}
	}
	for status, want := range map[int]struct{ passing, refused bool }{
		400: {false, true}, 401: {true, true}, 403: {true, true}, 407: {true, true}, 408: {true, false}, 413: {false, true}, 429: {true, false}, 500: {true, false}, 503: {true, false},
	} {
		err := fmt.Errorf("read: %w", &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: io.EOF})
		if p, r := stream.Passing(err), stream.Refused(err); p != want.passing || r != want.refused {
			t.Errorf("status %d: passing %t, refused %t, want %v", status, p, r, want)
		}
	}
	event := fmt.Errorf("subscription: %w", &smithy.GenericAPIError{Code: "InvalidArgumentException"}) // which has no status
	if stream.Passing(event) || !stream.Passing(errors.New("connection reset")) || stream.Refused(io.EOF) {
		t.Error("errors without a status")
	}
}

// TestCredentialsThatCannotBeFetched: an answer to the SDK's request for credentials is none of Kinesis, whatever its status is.
func TestCredentialsThatCannotBeFetched(t *testing.T) {
	server := newFake(kinesistest.Shard{Name: "a"})
	client := kinesis.New(server.Client().Options(), func(o *kinesis.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			answer := &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 400}}, Err: code("ValidationError")}
			return aws.Credentials{}, &smithy.OperationError{ServiceID: "STS", OperationName: "AssumeRole", Err: answer}
		})
	})
	_, err := client.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: aws.String("i")})
	if err == nil || !stream.Passing(err) || stream.Refused(err) {
		t.Errorf("%v: passing %t, refused %t", err, stream.Passing(err), stream.Refused(err))
	}
}

// TestDeniedReadsAreRepeated: a reader goes on when a permission is there again, whichever it was.
func TestDeniedReadsAreRepeated(t *testing.T) {
	for _, op := range []string{"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1), Closed: true})
			server.Fail(op, code("AccessDeniedException"), -1)
			time.AfterFunc(time.Hour, func() { server.Fail(op, nil, 0) })
			begun := time.Now()
			got, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
			if took := time.Since(begun); len(got) != 3 || !errors.Is(end, io.EOF) || took < time.Hour || took > time.Hour+30*time.Second {
				t.Errorf("%s: got %d records and %v after %v", op, len(got), end, took)
			}
			if n := len(server.Calls(op)); n > 1000 {
				t.Errorf("%s: %d requests in an hour", op, n)
			}
		})
	}
}
