package kcl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// ErrPosition means that a position is no sequence number, and ExportOptions.Checkpoint does
// not turn it into one.
var ErrPosition = errors.New("has a position that is no sequence number")

// ExportOptions configures [Export].
type ExportOptions struct {
	// Checkpoint turns a mark into the two numbers of a KCL checkpoint, or into one of the
	// words TRIM_HORIZON, LATEST and AT_TIMESTAMP, with 0 as the second number. Default: the
	// position, and 0. If the entry at that position contains several records, 0 means that
	// only the first of them is processed, and the KCL processes the others again.
	Checkpoint func(m checkpoint.Mark) (sequence string, sub int64, err error)
	// Shards are the shards of the stream, as Kinesis lists them. They supply what neither
	// the KCL's table nor the rows have: hash keys, and children that have no row. The lease
	// of a shard that is not finished needs hash keys; without them Export returns a
	// *RangeError.
	Shards []Shard
	// Unstarted is the checkpoint for a shard whose row has no position: TRIM_HORIZON,
	// LATEST or AT_TIMESTAMP. A lease that has one of these words already keeps its own.
	// Default: TRIM_HORIZON, which loses nothing.
	Unstarted string
}

// ErrWord means that ExportOptions.Unstarted is not TRIM_HORIZON, LATEST or AT_TIMESTAMP.
var ErrWord = errors.New("option Unstarted must be TRIM_HORIZON, LATEST or AT_TIMESTAMP")

// Export writes the positions of a group into a lease table of the KCL, for a fleet that
// returns to the KCL. Before it writes anything, it refuses a group that runs and a table that
// changes. It returns the leases of the group as the table has them afterwards; leases that
// need no change are not written.
//
// Start no worker of the group afterwards: nothing coordinates the two fleets. After a crash some
// leases are written; call Export again to write the others.
func Export(ctx context.Context, from shardlease.Supervisor, into Table, o ExportOptions) ([]Lease, error) {
	if err := stopped(ctx, from); err != nil {
		return nil, fmt.Errorf("export group %q: %w", from.Group, err)
	}
	rows, err := from.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("export group %q: %w", from.Group, err)
	}
	next, err := o.leases(rows)
	if err != nil {
		return nil, fmt.Errorf("export group %q: %w", from.Group, err)
	}
	there, err := into.still(ctx)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	// The group may have been started while the table was watched.
	if err := stopped(ctx, from); err != nil {
		return nil, fmt.Errorf("export group %q: %w", from.Group, err)
	}
	if err := o.complete(next, there); err != nil {
		return nil, fmt.Errorf("export group %q: %w", from.Group, err)
	}
	for i := range next {
		if err := into.put(ctx, &next[i], there); err != nil {
			return nil, fmt.Errorf("export %q: %w", next[i].Shard, err)
		}
	}
	return next, nil
}

// leases returns a lease for each row, as far as the rows determine it.
func (o ExportOptions) leases(rows []lease.Row) ([]Lease, error) {
	if o.Unstarted != "" && !unstarted(o.Unstarted) {
		return nil, ErrWord
	}
	var leases []Lease
	var errs []error
	children := o.children(rows)
	for _, row := range rows {
		l := Lease{Shard: row.Shard, Parents: row.Parents}
		if row.Finished { // like the KCL, which stores children only in leases of finished shards
			l.Children = children[row.Shard]
		}
		var err error
		switch m := row.Checkpoint.Mark; {
		case row.Finished:
			l.Sequence = shardEnd
		case m.IsZero():
		case o.Checkpoint != nil:
			l.Sequence, l.Sub, err = o.Checkpoint(m)
		default:
			l.Sequence = m.Position
		}
		if err == nil && !row.Finished && !row.Checkpoint.Mark.IsZero() && !isSequence(l.Sequence) && !unstarted(l.Sequence) {
			err = ErrPosition
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("shard %q %w", row.Shard, err))
		}
		leases = append(leases, l)
	}
	return leases, errors.Join(errs...)
}

// put writes one lease, on condition that the lease in the table is still the one in there.
func (t Table) put(ctx context.Context, l *Lease, there []Lease) error {
	key, update, removed := t.key(l.Shard), newUpdate(), ownerAttributes()
	var condition string
	switch old := find(there, l.Shard); {
	case old == nil:
		condition = "attribute_not_exists(" + update.name(attrKey) + ")"
		update.set(attrEntity, &types.AttributeValueMemberS{Value: entityLease})
		t.identify(l, update)
		l.describe(update, nil)
	default:
		l.describe(update, old.item)
		if len(update.sets) == 0 && old.agrees(*l) {
			l.Counter = old.Counter
			return nil
		}
		if l.Sequence != old.Sequence || l.Sub != old.Sub {
			removed = append(removed, attrPending, attrPendingSub, attrPendingAs) // as each checkpoint of the KCL does
		}
		// The counter continues and does not start again at 0: a worker of the KCL that was
		// paused all the time writes on condition of the counter, and not of the owner.
		key, l.Counter = text(old.item, attrKey), old.Counter+1
		condition = update.name(attrCounter) + " = " + update.value(old.item[attrCounter])
	}
	update.set(attrCounter, integer(l.Counter))
	update.set(attrSequence, &types.AttributeValueMemberS{Value: l.Sequence})
	update.set(attrSub, integer(l.Sub))
	update.set(attrSwitches, integer(0))
	_, err := t.Client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &t.Name, Key: map[string]types.AttributeValue{attrKey: &types.AttributeValueMemberS{Value: key}},
		ConditionExpression:       &condition,
		UpdateExpression:          aws.String(update.text(removed)),
		ExpressionAttributeNames:  update.names,
		ExpressionAttributeValues: update.values,
	})
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return fmt.Errorf("table %q: %w", t.Name, ErrMoving)
	}
	return err
}

// key returns the leaseKey of a shard.
func (t Table) key(shard string) string {
	if t.Stream == "" {
		return shard
	}
	return t.Stream + ":" + shard
}

// identify sets the attributes that a new lease needs in a table of several streams.
func (t Table) identify(l *Lease, u *update) {
	if t.Stream != "" {
		u.set(attrStream, &types.AttributeValueMemberS{Value: t.Stream})
		u.set(attrShard, &types.AttributeValueMemberS{Value: l.Shard})
	}
}

// ownerAttributes returns the attributes that only an owned lease has.
func ownerAttributes() []string { return []string{attrOwner, attrHandover} }

// agrees reports whether l has no owner and the same checkpoint as other.
func (l Lease) agrees(other Lease) bool {
	for _, attr := range ownerAttributes() {
		if _, there := l.item[attr]; there {
			return false
		}
	}
	return l.Sequence == other.Sequence && l.Sub == other.Sub
}

// An update collects the clauses of an update expression and its placeholders.
type update struct {
	names  map[string]string
	values map[string]types.AttributeValue
	sets   []string
}

func newUpdate() *update {
	return &update{names: map[string]string{}, values: map[string]types.AttributeValue{}}
}

func (u *update) name(attr string) string {
	u.names["#"+attr] = attr
	return "#" + attr
}

func (u *update) value(v types.AttributeValue) string {
	name := ":" + strconv.Itoa(len(u.values))
	u.values[name] = v
	return name
}

func (u *update) set(attr string, v types.AttributeValue) {
	u.sets = append(u.sets, u.name(attr)+" = "+u.value(v))
}

// text returns the update expression, which also removes the given attributes.
func (u *update) text(removed []string) string {
	names := make([]string, len(removed))
	for i, attr := range removed {
		names[i] = u.name(attr)
	}
	return "SET " + strings.Join(u.sets, ", ") + " REMOVE " + strings.Join(names, ", ")
}

func integer(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
