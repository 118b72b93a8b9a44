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

// ErrPosition: a position is no sequence number, and nothing says how to make one of it.
var ErrPosition = errors.New("has a position that is no sequence number")

// ExportOptions of [Export].
type ExportOptions struct {
	// Checkpoint turns a mark into the two numbers of a KCL checkpoint, or into one of
	// TRIM_HORIZON, LATEST and AT_TIMESTAMP with 0. Default: the position, and 0. Where the
	// entry at that position holds several records, 0 means that only the first of them is
	// processed, and the KCL processes the others again.
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

// ErrWord: ExportOptions.Unstarted is no word of the KCL's for where a shard begins.
var ErrWord = errors.New("option Unstarted must be TRIM_HORIZON, LATEST or AT_TIMESTAMP")

// Export writes the positions of a group into a table of the KCL, for a fleet that goes
// back. It refuses, before anything is written, a group that runs and a table that moves.
// It returns the leases as they are now to be; one that was so already is not written.
//
// Start no worker of the group afterwards: the two fleets do not know of each other. A
// crash leaves some leases written; to call Export again writes the others.
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
	// The table was watched for a while; the group may have been started meanwhile.
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

// leases are what the KCL is to know.
func (o ExportOptions) leases(rows []lease.Row) ([]Lease, error) {
	if o.Unstarted != "" && !unstarted(o.Unstarted) {
		return nil, ErrWord
	}
	var leases []Lease
	var errs []error
	children := o.children(rows)
	for _, row := range rows {
		l := Lease{Shard: row.Shard, Parents: row.Parents}
		if row.Finished { // the KCL, too, stores children only when their parent is finished
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

// put writes one lease, in place of the one that was seen when the table stood still.
func (t Table) put(ctx context.Context, l *Lease, there []Lease) error {
	key, update, gone := t.key(l.Shard), newUpdate(), unowned()
	var condition string
	switch old := find(there, l.Shard); {
	case old == nil:
		condition = "attribute_not_exists(" + update.name(attrKey) + ")"
		update.set(attrEntity, &types.AttributeValueMemberS{Value: entityLease})
		t.identify(l, update)
		l.describe(update, nil)
	default:
		l.describe(update, old.item)
		if len(update.sets) == 0 && old.says(*l) {
			l.Counter = old.Counter
			return nil
		}
		if l.Sequence != old.Sequence || l.Sub != old.Sub {
			gone = append(gone, attrPending, attrPendingSub, attrPendingAs) // as each checkpoint of the KCL does
		}
		// The counter goes on, and does not start again: a worker of the KCL's that has
		// slept through all this writes on condition of the counter, and of no owner.
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
		UpdateExpression:          aws.String(update.text(gone)),
		ExpressionAttributeNames:  update.names,
		ExpressionAttributeValues: update.values,
	})
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return fmt.Errorf("table %q: %w", t.Name, ErrMoving)
	}
	return err
}

// key is that of a shard's lease.
func (t Table) key(shard string) string {
	if t.Stream == "" {
		return shard
	}
	return t.Stream + ":" + shard
}

// identify sets what a lease has from its beginning.
func (t Table) identify(l *Lease, u *update) {
	if t.Stream != "" {
		u.set(attrStream, &types.AttributeValueMemberS{Value: t.Stream})
		u.set(attrShard, &types.AttributeValueMemberS{Value: l.Shard})
	}
}

// unowned are the attributes that a lease does not have that nobody owns.
func unowned() []string { return []string{attrOwner, attrHandover} }

// says reports whether l tells the KCL what other would.
func (l Lease) says(other Lease) bool {
	for _, attr := range unowned() {
		if _, there := l.item[attr]; there {
			return false
		}
	}
	return l.Sequence == other.Sequence && l.Sub == other.Sub
}

// An update collects names and values.
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

// text is the update, with what is to go.
func (u *update) text(gone []string) string {
	names := make([]string, len(gone))
	for i, attr := range gone {
		names[i] = u.name(attr)
	}
	return "SET " + strings.Join(u.sets, ", ") + " REMOVE " + strings.Join(names, ", ")
}

func integer(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
