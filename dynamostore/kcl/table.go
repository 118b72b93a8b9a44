package kcl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
)

// Reasons why a table cannot be used. Callers compare with errors.Is.
var (
	// ErrMoving means that the table changed while Import or Export watched it.
	ErrMoving = errors.New("the lease table of the KCL still changes: stop its fleet first")
	// ErrSchema means that the table is no lease table of the KCL.
	ErrSchema = errors.New("no lease table of the KCL: its only key must be leaseKey")
	// ErrStreams means that the table has the leases of several streams, and Table.Stream
	// is empty.
	ErrStreams = errors.New("the table has leases of several streams: choose one")
)

// A Table is a lease table of the KCL. Client and Name are required.
type Table struct {
	// Client is the DynamoDB client for the table.
	Client *dynamodb.Client
	// Name is the name of the table, usually the name of the KCL application.
	Name string
	// Failover is the longest failoverTimeMillis in the KCL's fleet. Import and Export watch
	// the table for twice as long. Default 10 s, the default of the KCL.
	Failover time.Duration
	// Stream chooses a stream in a table of several streams: its serialized identifier, the
	// value of the attribute streamName. Empty for a table of one stream.
	Stream string
}

// The attributes of a lease that DynamoDBLeaseSerializer and
// DynamoDBMultiStreamLeaseSerializer of the KCL read and write.
const (
	attrKey        = "leaseKey"
	attrOwner      = "leaseOwner"
	attrCounter    = "leaseCounter"
	attrSwitches   = "ownerSwitchesSinceCheckpoint"
	attrSequence   = "checkpoint"
	attrSub        = "checkpointSubSequenceNumber"
	attrPending    = "pendingCheckpoint"
	attrPendingSub = "pendingCheckpointSubSequenceNumber"
	attrPendingAs  = "pendingCheckpointState"
	attrParents    = "parentShardId"
	attrChildren   = "childShardIds"
	attrFrom       = "startingHashKey"
	attrTo         = "endingHashKey"
	attrHandover   = "checkpointOwner" // 3.x
	attrEntity     = "entityType"      // 3.5; an item without it is a lease
	attrStream     = "streamName"      // in a table of several streams
	attrShard      = "shardId"         // in a table of several streams

	entityLease = "LEASE"
)

// Checkpoints of the KCL that are no sequence numbers.
const (
	trimHorizon = "TRIM_HORIZON"
	latest      = "LATEST"
	atTimestamp = "AT_TIMESTAMP"
	shardEnd    = "SHARD_END"
)

// A Lease is a lease in a table of the KCL. Everything up to and including its checkpoint
// has been processed.
type Lease struct {
	// Shard is the name of the shard.
	Shard string
	// Owner is the worker of the KCL that holds the lease; empty if none does.
	Owner string
	// Counter is the heartbeat counter of the lease.
	Counter int64
	// Sequence is the sequence number of the checkpoint, or one of the words TRIM_HORIZON,
	// LATEST, AT_TIMESTAMP and SHARD_END.
	Sequence string
	// Sub is the sub-sequence number of the checkpoint: the index of the record in an entry
	// into which the KPL has packed several.
	Sub int64
	// Parents are the parents of the shard.
	Parents []string
	// Children are the children of the shard. The KCL stores them when the shard is finished.
	Children []string

	// StartingHashKey and EndingHashKey are the first and the last hash key of the shard. KCL
	// 2.0 to 2.2 did not store them.
	StartingHashKey, EndingHashKey string

	// Pending is the sequence number, or word, of a prepared checkpoint, which the application
	// has not made yet; empty if there is none.
	Pending string
	// PendingSub is the sub-sequence number of the prepared checkpoint.
	PendingSub int64
	// PendingState is the application's state for the prepared checkpoint.
	PendingState []byte

	stream string
	item   map[string]types.AttributeValue
}

// A MalformedError reports a lease with an attribute that cannot be read. It does not contain
// any value of the lease.
type MalformedError struct {
	Table, Key, Attribute string
}

func (e *MalformedError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("table %q: lease %.64q: invalid attribute %s", e.Table, e.Key, e.Attribute)
}

// A PendingError reports a lease with a prepared checkpoint, which the application has not
// made yet.
type PendingError struct{ Table, Key string }

func (e *PendingError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("table %q: lease %.64q has a prepared checkpoint: make or cancel it in the KCL's application, or set ImportOptions.Pending", e.Table, e.Key)
}

// Leases returns the present leases, sorted by key. It only reads.
func (t Table) Leases(ctx context.Context) ([]Lease, error) {
	items, err := t.scan(ctx)
	if err != nil {
		return nil, err
	}
	return t.leases(items)
}

// still watches the table and returns its leases, or ErrMoving if any item changes. Items of
// KCL 3.5 that are no leases count too.
func (t Table) still(ctx context.Context) ([]Lease, error) {
	before, err := t.scan(ctx)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(2 * cmp.Or(t.Failover, 10*time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := t.scan(ctx)
	if err != nil {
		return nil, err
	}
	var changed []string
	for key := range union(before, after) {
		if !reflect.DeepEqual(before[key], after[key]) {
			changed = append(changed, key)
		}
	}
	if len(changed) > 0 {
		return nil, fmt.Errorf("table %q: %w (%d items, such as %.64q)", t.Name, ErrMoving, len(changed), slices.Min(changed))
	}
	return t.leases(after)
}

// items are the items of a table by leaseKey.
type items map[string]map[string]types.AttributeValue

func union(a, b items) items {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// check reports missing or invalid fields.
func (t Table) check() error {
	switch {
	case t.Client == nil:
		return &checkpoint.InvalidError{Field: "Client", Rule: "must be given"}
	case t.Name == "":
		return &checkpoint.InvalidError{Field: "Name", Rule: "must be given"}
	case t.Failover < 0:
		return &checkpoint.InvalidError{Field: "Failover", Rule: "must not be negative"}
	}
	return nil
}

// scan reads all items of the table.
func (t Table) scan(ctx context.Context) (items, error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("table %q: %w", t.Name, err)
	}
	table, err := t.Client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &t.Name})
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", t.Name, err)
	}
	keys := table.Table.KeySchema
	if len(keys) != 1 || aws.ToString(keys[0].AttributeName) != attrKey {
		return nil, fmt.Errorf("table %q: %w", t.Name, ErrSchema)
	}
	all := items{}
	pages := dynamodb.NewScanPaginator(t.Client, &dynamodb.ScanInput{TableName: &t.Name, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("table %q: %w", t.Name, err)
		}
		for _, item := range page.Items {
			all[text(item, attrKey)] = sorted(item)
		}
	}
	return all, nil
}

// sorted sorts the string sets of an item, which DynamoDB returns in any order.
func sorted(item map[string]types.AttributeValue) map[string]types.AttributeValue {
	for _, value := range item {
		if set, ok := value.(*types.AttributeValueMemberSS); ok {
			slices.Sort(set.Value)
		}
	}
	return item
}

// leases returns the leases of the chosen stream, and skips items that are no leases.
func (t Table) leases(from items) ([]Lease, error) {
	var leases []Lease
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(from)) {
		item := from[key]
		if entity := text(item, attrEntity); entity != "" && entity != entityLease {
			continue
		}
		l, wrong := read(item)
		switch {
		case wrong != "":
			errs = append(errs, &MalformedError{Table: t.Name, Key: key, Attribute: wrong})
		case t.Stream == "" && l.stream != "":
			return nil, fmt.Errorf("table %q: %w, such as streamName %q", t.Name, ErrStreams, l.stream)
		case l.stream == t.Stream:
			leases = append(leases, l)
		}
	}
	return leases, errors.Join(errs...)
}

// read returns the lease in an item, or the name of the attribute that cannot be read.
func read(item map[string]types.AttributeValue) (l Lease, wrong string) {
	l = Lease{
		Shard: text(item, attrKey), Owner: text(item, attrOwner), Sequence: text(item, attrSequence),
		Parents: set(item, attrParents), Children: set(item, attrChildren),
		StartingHashKey: text(item, attrFrom), EndingHashKey: text(item, attrTo),
		stream: text(item, attrStream), item: item,
	}
	if l.stream != "" {
		l.Shard = text(item, attrShard)
	}
	var okCounter, okSub bool
	l.Counter, okCounter = number(item, attrCounter)
	l.Sub, okSub = number(item, attrSub)
	_, hasSub := item[attrSub]
	switch {
	case l.Shard == "":
		return l, attrShard
	case !okCounter:
		return l, attrCounter
	case hasSub && (!okSub || l.Sub < 0):
		return l, attrSub
	case !isSequence(l.Sequence) && !unstarted(l.Sequence) && l.Sequence != shardEnd:
		return l, attrSequence
	}
	return l, l.prepared(item)
}

// prepared reads the prepared checkpoint of a lease, or returns the name of the attribute that
// cannot be read.
func (l *Lease) prepared(item map[string]types.AttributeValue) (wrong string) {
	_, there := item[attrPending]
	_, hasSub := item[attrPendingSub]
	_, hasState := item[attrPendingAs]
	var okSub bool
	l.Pending = text(item, attrPending)
	l.PendingSub, okSub = number(item, attrPendingSub)
	state, okState := item[attrPendingAs].(*types.AttributeValueMemberB)
	if okState {
		l.PendingState = state.Value
	}
	switch {
	case there && !isSequence(l.Pending) && !unstarted(l.Pending) && l.Pending != shardEnd, !there && (hasSub || hasState):
		return attrPending
	case hasSub && (!okSub || l.PendingSub < 0):
		return attrPendingSub
	case hasState && !okState:
		return attrPendingAs
	}
	return ""
}

func set(item map[string]types.AttributeValue, name string) []string {
	if set, ok := item[name].(*types.AttributeValueMemberSS); ok {
		return set.Value
	}
	return nil
}

// unstarted reports whether a checkpoint is TRIM_HORIZON, LATEST or AT_TIMESTAMP.
func unstarted(sequence string) bool {
	return sequence == trimHorizon || sequence == latest || sequence == atTimestamp
}

func text(item map[string]types.AttributeValue, name string) string {
	if s, ok := item[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func number(item map[string]types.AttributeValue, name string) (int64, bool) {
	n, ok := item[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseInt(n.Value, 10, 64)
	return value, err == nil
}

func isSequence(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
