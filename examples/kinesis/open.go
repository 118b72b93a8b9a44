package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	kinesistypes "github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/journal"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/shardlease"
)

// open opens the tables and the stream, and waits for those that do not exist yet, so that a
// program that is started together with its servers need not be restarted.
func open(ctx context.Context, sdk aws.Config, s settings, log *slog.Logger) (*journal.Journal, *stream.Stream, error) {
	db := connect(sdk)
	sink := &journal.Journal{Client: db, Table: s.journal, Stream: s.stream, Group: s.group}
	source := &stream.Stream{Client: kinesis.NewFromConfig(sdk), Name: s.stream, Idle: s.idle, Limit: 1000, Logger: log}
	err := await(ctx, log, "lease table "+s.leases, func() (err error) {
		if s.create {
			if err := createTables(ctx, db, s); err != nil {
				return err
			}
		}
		sink.Leases, err = dynamostore.Open(ctx, db, s.leases, dynamostore.Options{
			Group: s.group, Timeout: min(2*time.Second, s.ttl/4), Logger: log,
		})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := await(ctx, log, "stream "+s.stream, func() error { _, err := source.Identity(ctx); return err }); err != nil {
		return nil, nil, err
	}
	source.Start = s.start.At
	if s.start.Latest {
		err = await(ctx, log, "journal "+s.journal, func() (err error) { source.Start, err = sink.Begin(ctx, time.Now()); return err })
	}
	return sink, source, err
}

// connect returns the client of the tables. The errors of DynamoDB Local have no checksum, and the SDK would log a
// warning for each. Other endpoints have TLS.
func connect(sdk aws.Config) *dynamodb.Client {
	return dynamodb.NewFromConfig(sdk, func(o *dynamodb.Options) {
		o.DisableValidateResponseChecksum = strings.HasPrefix(aws.ToString(o.BaseEndpoint), "http:")
	})
}

func createTables(ctx context.Context, db *dynamodb.Client, s settings) error {
	return errors.Join(
		dynamostore.CreateTable(ctx, db, s.leases, dynamostore.TableOptions{}),
		journal.CreateTable(ctx, db, s.journal),
	)
}

// verify returns an error if the leases of the group belong to an older stream of the same name.
func verify(ctx context.Context, group shardlease.Supervisor, c *consumer.Consumer) error {
	rows, err := group.List(ctx)
	if err != nil {
		return err
	}
	return c.Verify(ctx, rows)
}

// await repeats a call until what it needs exists, and logs each failure.
func await(ctx context.Context, log *slog.Logger, what string, try func() error) error {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		err := try()
		if err == nil || !early(err) {
			return err
		}
		log.Warn("waiting for the "+what, "retry", pause, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// early reports whether an error means that a table, a stream or a server does not exist yet.
// Other errors end the program, such as a table with another key schema, or denied access.
func early(err error) bool {
	_, noTable := errors.AsType[*dynamotypes.ResourceNotFoundException](err)
	_, noStream := errors.AsType[*kinesistypes.ResourceNotFoundException](err)
	_, noServer := errors.AsType[*smithyhttp.RequestSendError](err)
	response, answered := errors.AsType[*smithyhttp.ResponseError](err)
	return noTable || noStream || noServer || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, dynamostore.ErrNoTable) || errors.Is(err, dynamostore.ErrNotActive) ||
		answered && response.HTTPStatusCode() >= 500
}
