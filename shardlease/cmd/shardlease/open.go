package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"

	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A place is a group in a table.
type place struct{ table, group string }

// needsGroup reports that --table or --group is missing.
func (at *place) needsGroup() error {
	if err := at.needsTable(); err != nil {
		return err
	}
	if at.group == "" {
		return usage("needs --group or %s", variable("group"))
	}
	return nil
}

// needsTable reports that --table is missing.
func (at *place) needsTable() error {
	if at.table == "" {
		return usage("needs --table or %s", variable("table"))
	}
	return nil
}

// Tables is where lease tables are.
type tables interface {
	// Reader returns what reads a group. It needs no permission to write.
	Reader(ctx context.Context, at place) (inspect.Lister, error)
	// Store returns what reads and writes a group. The number of buckets is 0 for the recorded one.
	Store(ctx context.Context, at place, buckets int) (lease.Store, error)
	// Groups returns the groups of a table, sorted by name.
	Groups(ctx context.Context, table string) ([]groupSize, error)
	// Create creates a table unless it exists.
	Create(ctx context.Context, table string, o dynamostore.TableOptions) error
	// Adopt adopts the rows of a restored table, and returns how many it has adopted.
	Adopt(ctx context.Context, at place, buckets int, by string) (int, error)
	// Repair makes a record readable again, if agree returns no error for what becomes of it.
	Repair(ctx context.Context, at place, k lease.Key, by, why string, agree func(next lease.Record, lost []string) error) (lease.Record, error)
	// Client returns the client with which the tables of the KCL are read and written.
	Client(ctx context.Context) (*dynamodb.Client, error)
}

// A groupSize is the name of a group and how many records it has.
type groupSize struct {
	name          string
	rows, workers int
}

// Dynamo is tables in DynamoDB.
type dynamo struct{ client *dynamodb.Client }

// callTimeout bounds one call. A person can wait longer than a worker.
const callTimeout = 5 * time.Second

// Client loads the settings of the AWS SDK at its first call.
func (d *dynamo) Client(ctx context.Context) (*dynamodb.Client, error) {
	if d.client == nil {
		// The SDK logs to the standard error, which is the screen of top. The commands report errors themselves.
		settings, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
		if err != nil {
			return nil, err
		}
		d.client = dynamodb.NewFromConfig(settings)
	}
	return d.client, nil
}

func (d *dynamo) Reader(ctx context.Context, at place) (inspect.Lister, error) {
	client, err := d.Client(ctx)
	if err != nil {
		return nil, err
	}
	return dynamostore.OpenReader(ctx, client, at.table, dynamostore.Options{Group: at.group, Timeout: callTimeout})
}

func (d *dynamo) Store(ctx context.Context, at place, buckets int) (lease.Store, error) {
	return d.open(ctx, at, buckets)
}

func (d *dynamo) open(ctx context.Context, at place, buckets int) (*dynamostore.Store, error) {
	client, err := d.Client(ctx)
	if err != nil {
		return nil, err
	}
	return dynamostore.Open(ctx, client, at.table, dynamostore.Options{Group: at.group, Buckets: buckets, Timeout: callTimeout})
}

func (d *dynamo) Create(ctx context.Context, table string, o dynamostore.TableOptions) error {
	client, err := d.Client(ctx)
	if err != nil {
		return err
	}
	return dynamostore.CreateTable(ctx, client, table, o)
}

func (d *dynamo) Adopt(ctx context.Context, at place, buckets int, by string) (int, error) {
	store, err := d.open(ctx, at, buckets)
	if err != nil {
		return 0, err
	}
	n, err := store.Adopt(ctx, at.group, by)
	if err != nil && n > 0 && !isAnswer(err) {
		err = unanswered{err}
	}
	return n, err
}

func (d *dynamo) Repair(ctx context.Context, at place, k lease.Key, by, why string, agree func(next lease.Record, lost []string) error) (lease.Record, error) {
	store, err := d.open(ctx, at, 0)
	if err != nil {
		return nil, err
	}
	return store.Repair(ctx, k, by, why, agree)
}

// Groups scans the keys of the table. It needs the permission dynamodb:Scan.
func (d *dynamo) Groups(ctx context.Context, table string) ([]groupSize, error) {
	client, err := d.Client(ctx)
	if err != nil {
		return nil, err
	}
	counted := census{}
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
		TableName: &table, ProjectionExpression: aws.String("#g, #k"),
		ExpressionAttributeNames: map[string]string{"#g": "leaseGroup", "#k": "leaseKey"},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if serviceCode(err) == "ResourceNotFoundException" {
			err = dynamostore.ErrNoTable
		}
		if err != nil {
			return nil, fmt.Errorf("scan table %q: %w", table, err)
		}
		for _, item := range page.Items {
			counted.add(textOf(item["leaseGroup"]), textOf(item["leaseKey"]))
		}
	}
	return counted.sorted(), nil
}

func textOf(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

// A census counts the records of each group.
type census map[string]*groupSize

// add counts one record by its key.
func (c census) add(partition, key string) {
	group, kind, ok := cutPartition(partition)
	if !ok {
		return
	}
	if c[group] == nil {
		c[group] = &groupSize{name: group}
	}
	switch {
	case kind == "lease":
		c[group].rows++
	case kind == "seat" && !strings.HasPrefix(key, "!"): // the plan and the wishes begin with !
		c[group].workers++
	}
}

// cutPartition returns the group and the kind of records of a partition: GROUP/seat, or GROUP/lease/7 for a
// bucket.
func cutPartition(partition string) (group, kind string, ok bool) {
	cut := strings.LastIndexByte(partition, '/')
	if cut < 0 {
		return "", "", false
	}
	group, kind = partition[:cut], partition[cut+1:]
	if _, err := strconv.ParseUint(kind, 10, 16); err == nil && strings.HasSuffix(group, "/lease") {
		group, kind = strings.TrimSuffix(group, "/lease"), "lease"
	}
	return group, kind, group != "" && slices.Contains([]string{"table", "lease", "seat", "target", "register", "journal"}, kind)
}

func (c census) sorted() []groupSize {
	var all []groupSize
	for _, g := range c {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b groupSize) int { return strings.Compare(a.name, b.name) })
	return all
}

// supervise returns the supervisor of the group, and the witness of its writes.
func (op *operator) supervise(ctx context.Context, by string) (shardlease.Supervisor, *witness, error) {
	store, err := op.tables.Store(ctx, *op.at, 0)
	if err != nil {
		return shardlease.Supervisor{}, nil, err
	}
	w := &witness{Store: store}
	return shardlease.Supervisor{Store: w, Group: op.at.group, By: by, Unjournaled: op.unjournaled, Uncounted: op.uncounted}, w, nil
}
