package fanout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestRegister: all workers of a group may register its consumer at once; they get the same one
// when it is ACTIVE. Active finds it only then, and registers none.
func TestRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kinesistest.New()
		orders := server.Create("orders", 1)
		client := server.Client()
		active := func() bool {
			_, active, err := Active(t.Context(), client, orders.ARN(), "group")
			if err != nil {
				t.Error(err)
			}
			return active
		}
		if active() || len(orders.Consumers()) != 0 {
			t.Error("a consumer that is not registered is active")
		}
		server.Fail("RegisterStreamConsumer", &types.LimitExceededException{Message: new("slower")}, 2)
		arns := make(chan string)
		for range 10 {
			go func() {
				arn, err := Register(t.Context(), client, orders.ARN(), "group")
				if err != nil {
					t.Error(err)
				}
				arns <- arn
			}()
		}
		time.Sleep(5 * time.Second)
		if n := len(orders.Consumers()); n != 1 || active() {
			t.Errorf("%d consumers; in CREATING it is active: %v", n, active())
		}
		first := <-arns
		for range 9 {
			if arn := <-arns; arn != first || arn == "" {
				t.Errorf("one worker gets %s, another %s", first, arn)
			}
		}
		if n := len(orders.Consumers()); n != 1 || !active() {
			t.Errorf("%d consumers; active: %v", n, active())
		}
		for range 2 {
			if err := Deregister(t.Context(), client, orders.ARN(), "group"); err != nil {
				t.Error(err)
			}
		}
		// A consumer of this name that is being deleted is waited for, and then registered again.
		if again, err := Register(t.Context(), client, orders.ARN(), "group"); err != nil || again == first {
			t.Errorf("registered again: %s, %v", again, err)
		}
	})
}

// TestRegisterTooMany: a stream that can have no more consumers is an error that names them, but
// too many in CREATING or too many requests are not.
func TestRegisterTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kinesistest.New()
		orders := server.Create("orders", 1)
		errs := make(chan error)
		for i := range 20 {
			go func() {
				_, err := Register(t.Context(), server.Client(), orders.ARN(), fmt.Sprint("group-", i))
				errs <- err
			}()
		}
		for range 20 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		_, err := Register(t.Context(), server.Client(), orders.ARN(), "one-more")
		full, ok := errors.AsType[*LimitError](err)
		if !ok || len(full.Consumers) != 20 || !strings.Contains(err.Error(), "deregister one") || !is[*types.LimitExceededException](err) {
			t.Errorf("one more: %v", err)
		}
	})
}

// TestRegisterEnds: an error that would come again ends it, and so does its context.
func TestRegisterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kinesistest.New()
		orders := server.Create("orders", 1)
		server.Fail("RegisterStreamConsumer", &types.AccessDeniedException{Message: new("no")}, -1)
		if _, err := Register(t.Context(), server.Client(), orders.ARN(), "group"); !is[*types.AccessDeniedException](err) {
			t.Errorf("without the permission: %v", err)
		}
		server.Fail("RegisterStreamConsumer", &types.InternalFailureException{Message: new("oops")}, -1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Register(ctx, server.Client(), orders.ARN(), "group"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
		_, err := Register(t.Context(), server.Client(), orders.ARN(), "group")
		if late, ok := errors.AsType[*WaitError](err); !ok || !strings.Contains(late.Error(), "not registered") || !is[*types.InternalFailureException](err) {
			t.Errorf("without an answer and a limit: %v", err)
		}
		server.Fail("DescribeStreamConsumer", &types.AccessDeniedException{Message: new("no")}, -1)
		_, _, err = Active(t.Context(), server.Client(), orders.ARN(), "group")
		if denied, ok := errors.AsType[*stream.DeniedError](err); !ok || denied.Resource != orders.ARN()+"/consumer/group:*" ||
			!strings.Contains(denied.Statement(), `"Resource":["`+orders.ARN()+`/consumer/group","`+orders.ARN()+`/consumer/group:*"]`) {
			t.Errorf("not allowed to look: %v", err)
		}
		if _, err := Register(t.Context(), server.Client(), "arn:aws:kinesis:eu-central-1:000000000000:stream/none", "group"); err == nil {
			t.Error("no stream")
		}
	})
}
