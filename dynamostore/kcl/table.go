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

// Why a table cannot be used; callers branch with errors.Is.
var (
	// ErrMoving: something in the table has changed while it was watched.
	ErrMoving = errors.New("the lease table of the KCL still moves: stop its fleet first")
	// ErrSchema: the table is none of the KCL's.
	ErrSchema = errors.New("no lease table of the KCL: its only key must be leaseKey")
	// ErrStreams: the table has the leases of several streams.
	ErrStreams = errors.New("the table has leases of several streams: choose one")
)

// A Table is a lease table of the KCL. Client and Name are required.
type Table struct {
	Client *dynamodb.Client
	Name   string // that of the KCL application, as a rule
	// Failover is the longest failoverTimeMillis that its fleet has. The table is watched
	// for twice that. Default 10 s, as the KCL's.
	Failover time.Duration
	// Stream chooses the stream in a table of several: its serialized identifier, as the
	// attribute streamName has it. Empty for a table of one stream.
	Stream string
}

// The attributes of a lease, as DynamoDBLeaseSerializer and
// DynamoDBMultiStreamLeaseSerializer of the KCL have them.
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
	attrEntity     = "entityType"      // 3.5; a row without is a lease
	attrStream     = "streamName"      // of several streams
	attrShard      = "shardId"         // of several streams

	entityLease = "LEASE"
)

// The checkpoints that are no sequence numbers.
const (
	trimHorizon = "TRIM_HORIZON"
	latest      = "LATEST"
	atTimestamp = "AT_TIMESTAMP"
	shardEnd    = "SHARD_END"
)

// A Lease is one of the KCL's. Its checkpoint says that everything up to it is
// processed.
type Lease struct {
	Shard    string
	Owner    string // empty for nobody
	Counter  int64
	Sequence string // of the checkpoint: digits, or a word of the KCL's
	Sub      int64  // of the checkpoint: which of the records that the KPL has packed
	Parents  []string
	Children []string // stored by the KCL when the shard is finished

	// The first and the last hash key of the shard. KCL 2.0 to 2.2 did not store them.
	StartingHashKey, EndingHashKey string

	// A checkpoint that was prepared and not made, with the application's state for it.
	// Pending is empty if the lease has none.
	Pending      string
	PendingSub   int64
	PendingState []byte

	stream string
	item   map[string]types.AttributeValue
}

// A MalformedError is a lease that cannot be read. It does not hold any value.
type MalformedError struct {
	Table, Key, Attribute string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("table %q: lease %.64q: cannot make sense of its %s", e.Table, e.Key, e.Attribute)
}

// A PendingError names a lease with a checkpoint that was prepared and not made.
type PendingError struct{ Table, Key string }

func (e *PendingError) Error() string {
	return fmt.Sprintf("table %q: lease %.64q has a prepared checkpoint: finish or cancel it in the KCL's application, or decide what the import does with it", e.Table, e.Key)
}

// Leases reads the leases as they stand, sorted by shard. It only reads.
func (t Table) Leases(ctx context.Context) ([]Lease, error) {
	items, err := t.scan(ctx)
	if err != nil {
		return nil, err
	}
	return t.leases(items)
}

// still watches the table, and gives its leases if nothing moves. Everything in it
// counts, also what 3.5 keeps there besides leases.
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
	var moved []string
	for key := range union(before, after) {
		if !reflect.DeepEqual(before[key], after[key]) {
			moved = append(moved, key)
		}
	}
	if len(moved) > 0 {
		return nil, fmt.Errorf("table %q: %w (%d rows, such as %.64q)", t.Name, ErrMoving, len(moved), slices.Min(moved))
	}
	return t.leases(after)
}

type items map[string]map[string]types.AttributeValue

func union(a, b items) items {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// check reports fields without which no request can be made.
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

// scan reads all there is, by key.
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

// sorted puts sets in order: they have none, and come in any.
func sorted(item map[string]types.AttributeValue) map[string]types.AttributeValue {
	for _, value := range item {
		if set, ok := value.(*types.AttributeValueMemberSS); ok {
			slices.Sort(set.Value)
		}
	}
	return item
}

// leases reads what is a lease, of the stream that was chosen.
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
			return nil, fmt.Errorf("table %q: %w: streamName is %q, for one", t.Name, ErrStreams, l.stream)
		case l.stream == t.Stream:
			leases = append(leases, l)
		}
	}
	return leases, errors.Join(errs...)
}

// read makes a lease of an item, or says which attribute is wrong.
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

// prepared reads a prepared checkpoint, or returns the attribute that cannot be read.
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
