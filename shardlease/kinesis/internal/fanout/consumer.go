package fanout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
)

const (
	// leastLimit is the number of registered consumers that every stream may have; streams of On-demand
	// Advantage may have 50.
	leastLimit   = 20
	mostCreating = 5
	statusPause  = 2 * time.Second
	// mostWait is how long Register waits. Usually it takes some seconds.
	mostWait = 5 * time.Minute
)

// A WaitError reports that the registered consumer of a group has not become ACTIVE within 5 minutes.
type WaitError struct {
	Stream string // the ARN of the stream
	Group  string // the name of the registered consumer, which is that of the group
	Status string // the last status of the registered consumer; empty: there is none
	Err    error  // the last error of Kinesis, or nil
}

func (e *WaitError) Error() string {
	status := "not registered yet"
	if e.Status != "" {
		status = e.Status
	}
	text := fmt.Sprintf("registered consumer %s of stream %s has not become ACTIVE in %v, and is %s: if it stays so, deregister it, or read by polling",
		e.Group, e.Stream, mostWait, status)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the last error of Kinesis.
func (e *WaitError) Unwrap() error { return e.Err }

// A LimitError reports that a group was not registered because the stream has as many registered consumers as it may have.
type LimitError struct {
	Stream    string   // the ARN of the stream
	Group     string   // the group that could not be registered
	Consumers []string // the names of the registered consumers
	Err       error    // the error of Kinesis
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("register consumer %s: stream %s has reached its limit with %d registered consumers (%s): deregister one that no group uses, or read by polling: %v",
		e.Group, e.Stream, len(e.Consumers), strings.Join(e.Consumers, ", "), e.Err)
}

// Unwrap returns the error of Kinesis.
func (e *LimitError) Unwrap() error { return e.Err }

// Active returns the ARN of the registered consumer of a group, and whether it is ACTIVE. If there is none, Active does
// not register the group.
func Active(ctx context.Context, client *kinesis.Client, of, group string) (arn string, active bool, err error) {
	arn, status, err := describe(ctx, client, of, group)
	return arn, status == types.ConsumerStatusActive, err
}

// describe returns the ARN and the status of a registered consumer; both are empty if there is none.
func describe(ctx context.Context, client *kinesis.Client, of, group string) (string, types.ConsumerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{StreamARN: &of, ConsumerName: &group})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("describe registered consumer %s of stream %s: %w", group, of, denied("DescribeStreamConsumer", Resource(of, group), err))
	}
	return *out.ConsumerDescription.ConsumerARN, out.ConsumerDescription.ConsumerStatus, nil
}

// Resource returns the resource of a group's registered consumer for policies. Its ARN ends with the time at which it was
// registered, so the resource ends with an asterisk.
func Resource(of, group string) string { return of + "/consumer/" + group + ":*" }

// denied turns a refused permission into a stream.DeniedError, which says what to do.
func denied(action, resource string, err error) error {
	if _, no := errors.AsType[*types.AccessDeniedException](err); no {
		return &stream.DeniedError{Actions: []string{"kinesis:" + action}, Resource: resource, Err: err}
	}
	return err
}

// Register registers a group unless it is registered already, waits until its registered consumer is ACTIVE, and returns
// the ARN of that. Its error is a LimitError, a WaitError or a stream.DeniedError, or one of Kinesis. All workers of a group
// may call it at the same time; each calls Kinesis less than once a second. A registered consumer costs money until
// Deregister.
func Register(ctx context.Context, client *kinesis.Client, of, group string) (arn string, err error) {
	begun := time.Now()
	for refused := 0; ; {
		arn, status, err := describe(ctx, client, of, group)
		if status == types.ConsumerStatusActive {
			return arn, nil
		}
		if err == nil && status == "" {
			err = register(ctx, client, of, group)
		}
		if _, limited := errors.AsType[*types.LimitExceededException](err); limited {
			// Kinesis has the same error for too many registered consumers, too many in CREATING and too many
			// requests. The last two pass.
			full, failed := limit(ctx, client, of, group, err)
			if refused++; full != nil && refused >= 3 {
				return "", full
			}
			err = failed
		} else {
			refused = 0
		}
		if err != nil && (ctx.Err() != nil || !passing(err)) {
			return "", err
		}
		if time.Since(begun) >= mostWait {
			return "", &WaitError{Stream: of, Group: group, Status: string(status), Err: err}
		}
		if err := wait(ctx, statusPause+jitter(statusPause)); err != nil {
			return "", fmt.Errorf("wait for registered consumer %s of stream %s: %w", group, of, err)
		}
	}
}

func register(ctx context.Context, client *kinesis.Client, of, group string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: &of, ConsumerName: &group}, once)
	if _, exists := errors.AsType[*types.ResourceInUseException](err); exists || err == nil {
		return nil // another worker was faster
	}
	return fmt.Errorf("register consumer %s of stream %s: %w", group, of, denied("RegisterStreamConsumer", of, err))
}

// limit returns a LimitError if the stream has as many registered consumers as it may have.
func limit(ctx context.Context, client *kinesis.Client, of, group string, cause error) (full *LimitError, err error) {
	full = &LimitError{Stream: of, Group: group, Err: cause}
	creating := 0
	pages := kinesis.NewListStreamConsumersPaginator(client, &kinesis.ListStreamConsumersInput{StreamARN: &of})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the registered consumers of stream %s: %w", of, denied("ListStreamConsumers", of, err))
		}
		for _, c := range page.Consumers {
			full.Consumers = append(full.Consumers, *c.ConsumerName)
			if c.ConsumerStatus == types.ConsumerStatusCreating {
				creating++
			}
		}
	}
	if len(full.Consumers) < leastLimit || creating >= mostCreating {
		return nil, nil
	}
	return full, nil
}

// Deregister deletes the registered consumer of a group, if there is one. Its subscriptions end.
func Deregister(ctx context.Context, client *kinesis.Client, of, group string) error {
	_, err := client.DeregisterStreamConsumer(ctx, &kinesis.DeregisterStreamConsumerInput{StreamARN: &of, ConsumerName: &group})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing || err == nil {
		return nil
	}
	return fmt.Errorf("deregister consumer %s of stream %s: %w", group, of, denied("DeregisterStreamConsumer", Resource(of, group), err))
}
