package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Why a table cannot be used; callers branch with errors.Is. What Open reports
// names the table and the region, and Open has written nothing.
var (
	ErrNoTable    = errors.New("there is no such table in this region")
	ErrNotActive  = errors.New("the table is not active")
	ErrSchema     = errors.New("the table has another key schema")
	ErrKCL        = errors.New("this is a lease table of the Kinesis Client Library; it is not touched")
	ErrReplicated = errors.New("the table is replicated so that the last writer wins, and two regions could accept conflicting claims")
	ErrDenied     = errors.New("access denied")
)

// Reasons why a client cannot send a request. Open and CreateTable check them first, because
// it would not help to repeat the request.
var (
	ErrNoClient      = errors.New("the DynamoDB client is nil")
	ErrNoRegion      = errors.New("the DynamoDB client has no region")
	ErrNoCredentials = errors.New("the DynamoDB client has no credentials")
)

// check reports why the client cannot send any request.
func check(ctx context.Context, client *dynamodb.Client, table string) error {
	if client == nil {
		return ErrNoClient
	}
	if table == "" {
		return &checkpoint.InvalidError{Field: "table", Rule: "must be given"}
	}
	o := client.Options()
	if o.Region == "" {
		return ErrNoRegion
	}
	if o.Credentials == nil {
		return ErrNoCredentials
	}
	if _, err := o.Credentials.Retrieve(ctx); err != nil {
		return errors.Join(ErrNoCredentials, err)
	}
	return nil
}

// Open checks that the table is what it has to be and that everything a worker
// does is allowed, and writes nothing. A worker calls [Store.Verify] by itself; who
// makes rows without one calls it first.
func Open(ctx context.Context, client *dynamodb.Client, table string, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("dynamostore: %w", err)
	}
	if err := check(ctx, client, table); err != nil {
		return nil, fmt.Errorf("open table %q: %w", table, err)
	}
	s := newStore(client, table, o)
	err := s.inspect(ctx)
	if err == nil || errors.Is(err, ErrDenied) {
		err = errors.Join(err, s.tryPermissions(ctx)) // a table that is none of ours is not even tried
	}
	if err != nil {
		return nil, fmt.Errorf("open table %q in region %q: %w", table, client.Options().Region, err)
	}
	return s, nil
}

func newStore(client *dynamodb.Client, table string, o Options) *Store {
	return &Store{client: client, table: table, options: o, rows: newLane(o.InFlight)}
}

// inspect looks at the table without reading it.
func (s *Store) inspect(ctx context.Context) error {
	out, err := call(ctx, s, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (*dynamodb.DescribeTableOutput, error) {
		return s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table}, once)
	})
	if err != nil {
		return explain("DescribeTable", err)
	}
	t := out.Table
	s.identity = identity(t)
	switch {
	case t.TableStatus != types.TableStatusActive && t.TableStatus != types.TableStatusUpdating:
		return fmt.Errorf("%w: its status is %s", ErrNotActive, t.TableStatus)
	case isKCL(t):
		return ErrKCL
	case !hasSchema(t):
		return fmt.Errorf("%w: it needs the partition key %s and the sort key %s, both strings", ErrSchema, attr.Group, attr.Key)
	case len(t.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong && !s.options.AllowReplicated:
		return fmt.Errorf("%w (Options.AllowReplicated overrides)", ErrReplicated)
	}
	return nil
}

// tryPermissions asks for everything a worker does, with conditions that cannot
// hold: what is allowed is then refused by its condition.
func (s *Store) tryPermissions(ctx context.Context) error {
	key := itemKey(lease.Key{Group: s.options.Group, Kind: lease.KindSeat, Name: "permission check: never stored"})
	e := newExpression()
	never := "attribute_exists(" + e.name(attr.Key) + ")"
	group := newExpression()
	byGroup := group.is(attr.Group, attr.Partition(s.options.Group, lease.KindSeat))
	touch := newExpression()
	set := "SET " + touch.is(attr.Version, int64(attr.Format))
	touch.name(attr.Key)
	tries := []struct {
		action string
		try    func(ctx context.Context) error
	}{
		{"GetItem", func(ctx context.Context) error {
			_, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: key}, once)
			return err
		}},
		{"Query", func(ctx context.Context) error {
			_, err := s.client.Query(ctx, &dynamodb.QueryInput{
				TableName: &s.table, Limit: aws.Int32(1), KeyConditionExpression: &byGroup,
				ExpressionAttributeNames: group.names, ExpressionAttributeValues: group.values,
			}, once)
			return err
		}},
		{"PutItem", func(ctx context.Context) error {
			_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &s.table, Item: key, ConditionExpression: &never, ExpressionAttributeNames: e.names,
			}, once)
			return err
		}},
		{"UpdateItem", func(ctx context.Context) error {
			_, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: &s.table, Key: key, ConditionExpression: &never, UpdateExpression: &set,
				ExpressionAttributeNames: touch.names, ExpressionAttributeValues: touch.values,
			}, once)
			return err
		}},
		{"DeleteItem", func(ctx context.Context) error {
			_, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName: &s.table, Key: key, ConditionExpression: &never, ExpressionAttributeNames: e.names,
			}, once)
			return err
		}},
	}
	var errs []error
	for _, t := range tries {
		_, err := call(ctx, s, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (struct{}, error) { return struct{}{}, t.try(ctx) })
		if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok && failed != nil {
			continue
		}
		if err != nil {
			errs = append(errs, explain(t.action, err))
		}
	}
	return errors.Join(errs...)
}

// explain names the action, and the sentinel where there is one.
func explain(action string, err error) error {
	code, _ := answer(err)
	switch code {
	case "ResourceNotFoundException":
		return fmt.Errorf("%s: %w", action, errors.Join(ErrNoTable, err))
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException":
		return fmt.Errorf("%s: %w", action, errors.Join(ErrDenied, err))
	}
	return fmt.Errorf("%s: %w", action, err)
}

// identity tells a table from another of the same name: its id, or when it was
// created where the service gives none, as DynamoDB Local.
func identity(t *types.TableDescription) string {
	if id := aws.ToString(t.TableId); id != "" {
		return id
	}
	return "created " + aws.ToTime(t.CreationDateTime).UTC().Format(time.RFC3339Nano)
}

// schema lists the keys by their role.
func schema(t *types.TableDescription) map[types.KeyType]string {
	keys := map[types.KeyType]string{}
	for _, k := range t.KeySchema {
		keys[k.KeyType] = aws.ToString(k.AttributeName)
	}
	return keys
}

func hasSchema(t *types.TableDescription) bool {
	for _, a := range t.AttributeDefinitions {
		if name := aws.ToString(a.AttributeName); (name == attr.Group || name == attr.Key) && a.AttributeType != types.ScalarAttributeTypeS {
			return false
		}
	}
	keys := schema(t)
	return keys[types.KeyTypeHash] == attr.Group && keys[types.KeyTypeRange] == attr.Key
}

// isKCL: its lease tables have leaseKey as their only key.
func isKCL(t *types.TableDescription) bool {
	keys := schema(t)
	return len(keys) == 1 && keys[types.KeyTypeHash] == "leaseKey"
}

// TableOptions of CreateTable. The zero value is what production wants.
type TableOptions struct {
	NoDeletionProtection  bool
	NoPointInTimeRecovery bool
	// Deadline bounds the wait for the table to become active. Default 2 min.
	Deadline time.Duration
	Logger   *slog.Logger
}

// CreateTable makes the table, or finds it made, and waits until it is active.
// Any number of processes may do this at once; all succeed. A table that is
// there and is not a lease table is an error, and left as it is.
//
// The one that makes it turns on time to live and, unless told otherwise,
// point-in-time recovery; a server that does not know one of these is told of in
// the log. A table that was there keeps the settings it has.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string, o TableOptions) error {
	if o.Deadline <= 0 {
		o.Deadline = 2 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Deadline)
	defer cancel()
	if err := check(ctx, client, table); err != nil {
		return fmt.Errorf("create table %q: %w", table, err)
	}
	if err := create(ctx, client, table, o); err != nil {
		return fmt.Errorf("create table %q: %w", table, err)
	}
	return nil
}

func create(ctx context.Context, client *dynamodb.Client, table string, o TableOptions) error {
	text := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
	}
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &table,
		AttributeDefinitions: []types.AttributeDefinition{text(attr.Group), text(attr.Key)},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attr.Group), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attr.Key), KeyType: types.KeyTypeRange},
		},
		BillingMode:               types.BillingModePayPerRequest,
		DeletionProtectionEnabled: aws.Bool(!o.NoDeletionProtection),
	})
	made := err == nil
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return explain("CreateTable", err)
	}
	if err := waitActive(ctx, client, table); err != nil || !made {
		return err
	}
	return protect(ctx, client, table, o)
}

// waitActive looks until the table is active, and then at what it is.
func waitActive(ctx context.Context, client *dynamodb.Client, table string) error {
	probe := newStore(client, table, Options{AllowReplicated: true}.withDefaults())
	var seen error // the last answer: the deadline may come while another is awaited
	for {
		err := probe.inspect(ctx)
		switch {
		case errors.Is(err, ErrNotActive), errors.Is(err, ErrNoTable):
			seen = err
		case err != nil && ctx.Err() != nil:
			return errors.Join(seen, err)
		default:
			return err
		}
		if !wait(ctx, longest) {
			return errors.Join(seen, context.Cause(ctx))
		}
	}
}

// protect turns on the sweeping of tombstones and point-in-time recovery. A
// server that does not know one of them is told of in the log: DynamoDB Local
// has no recovery.
func protect(ctx context.Context, client *dynamodb.Client, table string, o TableOptions) error {
	_, err := client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(attr.Expires), Enabled: aws.Bool(true),
		},
	})
	if err = tolerate(err, o.Logger, "time to live"); err != nil || o.NoPointInTimeRecovery {
		return err
	}
	for {
		_, err = client.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
			TableName:                        &table,
			PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
		})
		// A table that was active a moment ago may not be ready for this yet.
		_, early := errors.AsType[*types.ContinuousBackupsUnavailableException](err)
		if !early || !wait(ctx, longest) {
			return tolerate(err, o.Logger, "point-in-time recovery")
		}
	}
}

func tolerate(err error, log *slog.Logger, what string) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if ok && api.ErrorCode() == "UnknownOperationException" {
		log.Warn("the server does not know this; going on without", "what", what)
		return nil
	}
	return err
}
