// Package table opens the lease table of an example: a DynamoDB table, or a file, with which an example
// can be tried on one machine without AWS.
package table

import (
	"context"
	"errors"
	"flag"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Flags name the lease table.
type Flags struct{ table, file string }

// Define defines the flags -table and -file.
func (s *Flags) Define(f *flag.FlagSet) {
	f.StringVar(&s.table, "table", "", "keep the leases in this DynamoDB `TABLE`, which is created if there is none")
	f.StringVar(&s.file, "file", "", "keep the leases in this `FILE`, for the processes of one machine")
}

// Open opens the table for one group. The AWS SDK reads its own variables: AWS_ENDPOINT_URL_DYNAMODB is
// the address of a DynamoDB Local.
func (s *Flags) Open(ctx context.Context, group string) (lease.Store, error) {
	switch {
	case (s.table == "") == (s.file == ""):
		return nil, errors.New("name the lease table with either -table or -file")
	case s.file != "":
		return openFile(ctx, s.file, group)
	}
	// The SDK would log to the standard error, which lock shares with the program that it runs. Versions of the SDK
	// without the fix of aws/aws-sdk-go-v2#3545 log each write that a DynamoDB Local refuses.
	c, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, err
	}
	client := dynamodb.NewFromConfig(c)
	if err := dynamostore.CreateTable(ctx, client, s.table, dynamostore.TableOptions{}); err != nil {
		return nil, err
	}
	return dynamostore.Open(ctx, client, s.table, dynamostore.Options{Group: group})
}
