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

// Reasons why a table cannot be used. Callers compare with errors.Is. The errors of Open
// name the table and the region.
var (
	// ErrNoTable means that the table does not exist in the region of the client.
	ErrNoTable = errors.New("there is no such table in this region")
	// ErrNotActive means that the table is being created or deleted, or is archived.
	ErrNotActive = errors.New("the table is not active")
	// ErrSchema means that the key attributes of the table are not those of a lease table.
	ErrSchema = errors.New("the table has another key schema")
	// ErrKCL means that the table is a lease table of the Kinesis Client Library.
	ErrKCL = errors.New("this is a lease table of the Kinesis Client Library; it was not changed")
	// ErrReplicated means that the table is replicated so that the last writer wins;
	// Options.AllowReplicated accepts such a table.
	ErrReplicated = errors.New("the table is replicated so that the last writer wins, and two regions could accept conflicting claims")
	// ErrDenied means that the client is not allowed an action that a worker needs, or, of
	// OpenReader, an action that a reader needs.
	ErrDenied = errors.New("access denied")
)

// Reasons why a client cannot send a request. Open, OpenReader and CreateTable check them first,
// because it would not help to repeat the request.
var (
	// ErrNoClient means that the client is nil.
	ErrNoClient = errors.New("the DynamoDB client is nil")
	// ErrNoRegion means that the client has no region.
	ErrNoRegion = errors.New("the DynamoDB client has no region: set AWS_REGION, or Region of the aws.Config")
	// ErrNoCredentials means that the client has no credentials, or cannot retrieve them.
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

// Open returns a Store on an existing lease table. It checks the state and the keys of the
// table and tries every action that a worker needs, and writes nothing, except that with
// Options.Buckets it stores the number of buckets of a new group. Without Buckets Open does not
// call [Store.Verify]: a worker does so itself, and a program that creates rows without a worker
// must call Verify first.
//
// If the table is busy or does not answer, Open tries again until ctx ends, for at most 30 s, or for
// Options.Timeout if that is longer: many programs that start together may keep a table busy. Its error then
// contains what the table last answered, and the number of attempts. Open does not repeat a request that would
// be refused again: it reports a missing permission or table at once.
func Open(ctx context.Context, client *dynamodb.Client, table string, o Options) (*Store, error) {
	r, err := prepare(ctx, client, table, o)
	if err != nil {
		return nil, err
	}
	s := &Store{r}
	s.opening = true
	timeout, _ := s.bounds()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.open(ctx, s.tries, s.Verify); err != nil {
		return nil, err
	}
	s.opening = false
	return s, nil
}

// openFor is how long Open tries to reach a table.
const openFor = 30 * time.Second

// prepare checks the arguments of Open and OpenReader. It makes no request to the table.
func prepare(ctx context.Context, client *dynamodb.Client, table string, o Options) (*reading, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("dynamostore: %w", err)
	}
	if err := check(ctx, client, table); err != nil {
		return nil, fmt.Errorf("open table %q: %w", table, err)
	}
	return newReading(client, table, o.withDefaults()), nil
}

// open checks the state and the keys of the table, tries the permissions, and verifies the table
// if Options.Buckets has to be compared with the number of the group.
func (s *reading) open(ctx context.Context, tries func(partition string) []try, verify func(ctx context.Context, group string) error) error {
	_, err := s.inspect(ctx)
	if err == nil || errors.Is(err, ErrDenied) {
		err = errors.Join(err, s.tryPermissions(ctx, tries)) // permissions are not tried on a table that is no lease table
	}
	if err == nil && s.options.Buckets > 0 {
		if err = verify(ctx, s.options.Group); errors.Is(err, ErrRestored) {
			err = nil // a worker reports it, and Adopt needs the store
		}
	}
	if err != nil {
		return fmt.Errorf("open table %q in region %q: %w", s.table, s.client.Options().Region, err)
	}
	return nil
}

// inspect checks the description of the table, and returns its identity. It reads no items.
func (s *reading) inspect(ctx context.Context) (string, error) {
	out, err := call(ctx, s, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (*dynamodb.DescribeTableOutput, error) {
		return s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table}, once)
	})
	if err != nil {
		return "", explain("DescribeTable", err)
	}
	t := out.Table
	switch {
	case t.TableStatus != types.TableStatusActive && t.TableStatus != types.TableStatusUpdating:
		return "", fmt.Errorf("%w: its status is %s", ErrNotActive, t.TableStatus)
	case isKCL(t):
		return "", ErrKCL
	case !hasSchema(t):
		return "", fmt.Errorf("%w: it needs the partition key %s and the sort key %s, both strings", ErrSchema, attr.Group, attr.Key)
	case len(t.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong && !s.options.AllowReplicated:
		return "", fmt.Errorf("%w (Options.AllowReplicated overrides)", ErrReplicated)
	}
	return identity(t), nil
}

// tryPermissions sends the requests that tries returns for seats and for targets. The conditions
// of the writes cannot hold, so a write that is allowed is refused by its condition.
func (s *reading) tryPermissions(ctx context.Context, tries func(partition string) []try) error {
	var errs []error
	for _, kind := range []lease.Kind{lease.KindSeat, lease.KindTarget} {
		partition := attr.Partition(s.options.Group, kind)
		for _, t := range tries(partition) {
			_, err := call(ctx, s, lease.Key{Kind: lease.KindSeat}, func(ctx context.Context) (struct{}, error) { return struct{}{}, t.try(ctx) })
			if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok && failed != nil {
				continue
			}
			if err != nil {
				errs = append(errs, explain(partition+", "+t.action, err))
			}
			if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
				return errors.Join(errs...) // there is no time for another request
			}
		}
	}
	return errors.Join(errs...)
}

// A try is a request that has no effect.
type try struct {
	action string
	try    func(ctx context.Context) error
}

// triedKey returns the key of the item that the tries of a partition are about.
func triedKey(partition string) primaryKey {
	return keyOf(partition, "permission check: never stored")
}

// reads returns a request for each action that reads items of a partition.
func (s *reading) reads(partition string) []try {
	key := triedKey(partition)
	query := newExpression()
	all := query.is(attr.Group, partition)
	return []try{
		{"GetItem", func(ctx context.Context) error {
			_, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: key}, once)
			return err
		}},
		{"Query", func(ctx context.Context) error {
			_, err := s.client.Query(ctx, &dynamodb.QueryInput{
				TableName: &s.table, Limit: aws.Int32(1), KeyConditionExpression: &all,
				ExpressionAttributeNames: query.names, ExpressionAttributeValues: query.values,
			}, once)
			return err
		}},
	}
}

// tries returns a request for each action on the items of a partition.
func (s *Store) tries(partition string) []try {
	key := triedKey(partition)
	e := newExpression()
	never := "attribute_exists(" + e.name(attr.Key) + ")"
	touch := newExpression()
	set := "SET " + touch.is(attr.Version, int64(attr.Format))
	touch.name(attr.Key)
	return append(s.reads(partition), []try{
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
	}...)
}

// explain adds to an error the action and, if there is one, the sentinel error.
func explain(action string, err error) error {
	code, _ := serviceCode(err)
	switch code {
	case "ResourceNotFoundException":
		return fmt.Errorf("%s: %w", action, errors.Join(ErrNoTable, err))
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException":
		return fmt.Errorf("%s: %w", action, errors.Join(ErrDenied, err))
	}
	return fmt.Errorf("%s: %w", action, err)
}

// identity distinguishes a table from others of the same name. It is the id of the table, or
// its creation time on a service without table ids, such as DynamoDB Local.
func identity(t *types.TableDescription) string {
	if id := aws.ToString(t.TableId); id != "" {
		return id
	}
	return "created " + aws.ToTime(t.CreationDateTime).UTC().Format(time.RFC3339Nano)
}

// schema returns the names of the key attributes by their role.
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

// isKCL reports whether t is a lease table of the KCL, whose only key is leaseKey.
func isKCL(t *types.TableDescription) bool {
	keys := schema(t)
	return len(keys) == 1 && keys[types.KeyTypeHash] == "leaseKey"
}

// TableOptions configures [CreateTable]. The zero value is meant for production.
type TableOptions struct {
	// NoDeletionProtection creates the table without protection from deletion.
	NoDeletionProtection bool
	// NoPointInTimeRecovery leaves point-in-time recovery off.
	NoPointInTimeRecovery bool
	// Deadline bounds the wait for the table to become active. Default 2 min.
	Deadline time.Duration
	// Logger receives a warning for each setting that the server does not support.
	// Default: no logging.
	Logger *slog.Logger
}

// CreateTable creates a lease table unless it exists, and waits until it is active. Any
// number of processes may call it at once, and all succeed. If the table exists and is not
// a lease table, CreateTable returns an error and does not change the table.
//
// The process that creates the table also turns on time to live and, unless
// NoPointInTimeRecovery is set, point-in-time recovery. If the server does not support one
// of these, CreateTable logs that and continues. An existing table keeps its settings.
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
	created := err == nil
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return explain("CreateTable", err)
	}
	if err := waitActive(ctx, client, table); err != nil || !created {
		return err
	}
	return protect(ctx, client, table, o)
}

// waitActive waits until the table is active, and returns an error if it is no lease table.
func waitActive(ctx context.Context, client *dynamodb.Client, table string) error {
	probe := newReading(client, table, Options{AllowReplicated: true}.withDefaults())
	var seen error // the last state of the table; the deadline may pass during the next request
	for {
		_, err := probe.inspect(ctx)
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

// protect turns on time to live, which deletes old tombstones, and point-in-time recovery.
// It logs and ignores that the server does not support one of them: DynamoDB Local has no
// point-in-time recovery.
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

// tolerate logs an error which means that the server does not support a setting, and
// returns any other error.
func tolerate(err error, log *slog.Logger, setting string) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if ok && api.ErrorCode() == "UnknownOperationException" {
		log.Warn("table setting not supported by the server: continuing without it", "setting", setting)
		return nil
	}
	return err
}
