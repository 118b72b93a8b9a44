package stream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Start is where a new group begins to read a stream: at most one field is set. The zero Start is the oldest
// record that is left. Shards that are created later are read from their beginning.
type Start struct {
	// Latest means the time at which the first worker of the group begins.
	Latest bool
	// At is a time: the group reads the records that arrived then or later.
	At time.Time
	// Sequence is the sequence number of the first record to read, by shard. Shards that it does
	// not name begin at the oldest record that is left.
	Sequence map[string]string
}

// UnmarshalText reads a Start: "trim-horizon", "latest", a time in RFC 3339 format, or sequence
// numbers like "shardId-000000000000=4968…,shardId-000000000001=4968…".
func (s *Start) UnmarshalText(text []byte) error {
	switch string(text) {
	case "trim-horizon":
		*s = Start{}
		return nil
	case "latest":
		*s = Start{Latest: true}
		return nil
	}
	if at, err := time.Parse(time.RFC3339, string(text)); err == nil {
		*s = Start{At: at}
		return nil
	}
	sequence := map[string]string{}
	for one := range strings.SplitSeq(string(text), ",") {
		shard, number, ok := strings.Cut(one, "=")
		if _, err := checkpoint.Decimal(number, number); !ok || err != nil || shard == "" {
			return errors.New(`must be "trim-horizon", "latest", a time like 2006-01-02T15:04:05Z, or sequence numbers like shardId-000000000000=49…`)
		}
		sequence[shard] = number
	}
	*s = Start{Sequence: sequence}
	return nil
}

// MarshalText returns the text that UnmarshalText reads.
func (s Start) MarshalText() ([]byte, error) {
	switch {
	case s.Latest:
		return []byte("latest"), nil
	case len(s.Sequence) > 0:
		var all []string
		for _, shard := range slices.Sorted(maps.Keys(s.Sequence)) {
			all = append(all, shard+"="+s.Sequence[shard])
		}
		return []byte(strings.Join(all, ",")), nil
	case s.At.IsZero():
		return []byte("trim-horizon"), nil
	}
	return s.At.AppendFormat(nil, time.RFC3339), nil
}

// Begin makes the stream ready to be read by a group: it sets the fields Start and Leased. Call it
// before the first listing, in each process. It returns ErrNoStream, a *DeniedError, or, for a new
// group, a *StartError. It may be called again.
//
// The start of the first worker holds for the group forever. Shards that have no position yet begin there, and
// listings leave out shards that were closed before. Another start would skip records of the former, or leave
// some of the latter unread. So a later start has no effect, and Begin logs that.
func (s *Stream) Begin(ctx context.Context, store lease.Store, group string, start Start) (err error) {
	defer recovered(&err)
	if start.Latest && !start.At.IsZero() || len(start.Sequence) > 0 && (start.Latest || !start.At.IsZero()) {
		return &StartError{Stream: s.Name, Rule: "set only one of Latest, At and Sequence"}
	}
	if err := s.confirm(ctx, 0); err != nil {
		return err
	}
	rows := shardlease.Supervisor{Store: store, Group: group}
	s.Leased = func(ctx context.Context, shard string) (bool, error) {
		_, err := rows.Get(ctx, s.prefix+shard) // a removed row counts too
		if errors.Is(err, lease.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	at, sequences := start.At.Truncate(time.Millisecond), map[string]string{}
	if start.Latest {
		at = s.Now().Truncate(time.Millisecond) // a time of Kinesis, so a wrong clock skips nothing
	}
	for shard, number := range start.Sequence {
		if name, ours := strings.CutPrefix(shard, s.prefix); ours {
			sequences[name] = number
		}
	}
	if err := s.fix(ctx, store, group, at, sequences); err != nil {
		return err
	}
	if start.Latest && s.Start.IsZero() || !start.Latest && !at.Equal(s.Start) || !maps.Equal(sequences, s.sequences) {
		s.log().Warn("the group began elsewhere, so this start has no effect: to begin here, use another group", "stream", s.Name, "group", group)
	}
	return nil
}

// begun reports whether the group has a lease row of the stream.
func (s *Stream) begun(ctx context.Context, store lease.Store, group string) (bool, error) {
	for record, err := range store.List(ctx, lease.Query{Group: group, Kind: lease.KindLease, After: s.prefix, Limit: 1}) {
		if _, spoilt := errors.AsType[*lease.MalformedError](err); err != nil && !spoilt {
			return false, fmt.Errorf("list the leases of %s: %w", group, err)
		}
		row, ok := record.(lease.Row)
		return !ok || strings.HasPrefix(row.Shard, s.prefix), nil
	}
	return false, nil
}

// The wishes in the record of a start. They are no wishes of operators.
const (
	sequenceKind lease.WishKind = "sequence" // the shard in Subject begins at the sequence number in To
	importedKind lease.WishKind = "imported" // the group had leases before its first worker began
	startedBy                   = "kinesis"
)

// fix sets the start of the stream to that of the group, which is the given one if the group is new.
//
// A shard cannot be read from LATEST directly: if its worker died before the first checkpoint, the successor would skip
// the records in between, as would a worker that finds a new shard late.
//
// The start is in a record of its own: the wishes of a group in which no worker runs. One of the first workers creates
// the record, and the store returns it to the others; nobody changes or deletes it. A lease row would not do: workers
// report and remove rows that are not listed, and its partition depends on dynamostore.Options.Buckets. The policies
// for the leases of the group allow the partition, because its name begins with GROUP/lease.
//
// A group that has leases but no start was imported. For it the start decides about shards without a position. A closed
// shard with a lease may be unfinished, whenever it was closed, so listings leave out none.
func (s *Stream) fix(ctx context.Context, store lease.Store, group string, at time.Time, sequences map[string]string) error {
	id := sha256.Sum256([]byte(s.described().identity))
	next := lease.Wishes{Group: fmt.Sprintf("%s/lease/start/%x", group, id[:8]), WriteID: lease.WriteID(rand.Text()), At: at}
	record, err := store.Get(ctx, next.Key())
	if errors.Is(err, lease.ErrNotFound) {
		var imported bool
		if imported, err = s.begun(ctx, store, group); err != nil {
			return err
		}
		if imported {
			next.List = append(next.List, lease.Wish{Kind: importedKind, By: startedBy})
		} else if err := s.checkStart(ctx, at, sequences); err != nil {
			return err
		}
		for _, shard := range slices.Sorted(maps.Keys(sequences)) {
			next.List = append(next.List, lease.Wish{Kind: sequenceKind, Subject: shard, To: sequences[shard], By: startedBy})
		}
		record, err = store.Write(ctx, lease.Write{Op: lease.OpCreate, Next: next})
		if refused, ok := errors.AsType[*lease.RefusedError](err); ok {
			record, err = refused.Now, nil
		}
	}
	first, ok := record.(lease.Wishes)
	if err == nil && !ok {
		err = lease.ErrMalformed
	}
	if err != nil {
		return fmt.Errorf("find where group %s began to read stream %s: %w", group, s.Name, err)
	}
	s.Start, s.sequences, s.imported = first.At, map[string]string{}, false
	for _, of := range first.List {
		switch of.Kind {
		case sequenceKind:
			s.sequences[of.Subject] = of.To
		case importedKind:
			s.imported = true
		}
	}
	return nil
}

// checkStart reports a start at which a new group cannot begin.
func (s *Stream) checkStart(ctx context.Context, at time.Time, sequences map[string]string) error {
	oldest := s.Now().Add(-s.Retention())
	if !at.IsZero() && s.Retention() > 0 && at.Before(oldest) {
		return &StartError{Stream: s.Name, Rule: fmt.Sprintf("%s is before the oldest record that is left, which is at most %v old: begin at trim-horizon, or at a later time",
			at.Format(time.RFC3339), s.Retention())}
	}
	for _, shard := range slices.Sorted(maps.Keys(sequences)) {
		number := sequences[shard]
		_, err := s.iterator(ctx, &kinesis.GetShardIteratorInput{
			ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeAtSequenceNumber, StartingSequenceNumber: &number,
		})
		_, missing := errors.AsType[*types.ResourceNotFoundException](err)
		_, invalid := errors.AsType[*types.InvalidArgumentException](err)
		switch {
		case missing:
			return &StartError{Stream: s.Name, Shard: shard, Rule: "there is no such shard, or its last record has expired: leave it out of Start.Sequence", Err: err}
		case invalid:
			return &StartError{Stream: s.Name, Shard: shard, Rule: "the shard has no record with the sequence number " + number, Err: err}
		case err != nil:
			return err
		}
	}
	return nil
}
