package lease

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
)

// An Item is a record as flat attributes: the stored form, and a promise of
// compatibility. A value is a string, an int64, a bool, a []byte or a []string
// (a set), and Decode wants these types back. Where the meaning is the same, the
// names are the Kinesis Client Library's. Empty values are absent.
type Item map[string]any

// Version is the format this package writes. It changes only when older readers
// would misread a row; attributes that are merely new do not change it. Decode
// passes them over, and a store leaves them where they are.
const Version = 1

// The attributes of both kinds, of lease rows, and of seats.
const (
	AttrGroup   = "leaseGroup" // partition key: group, "/", kind
	AttrKey     = "leaseKey"   // sort key: shard or incarnation
	AttrVersion = "version"
	AttrWriteID = "writeId"
	AttrTask    = "task"

	AttrCounter              = "leaseCounter"
	AttrGeneration           = "generation"
	AttrOwner                = "leaseOwner"
	AttrIncarnation          = "incarnation"
	AttrOffer                = "offeredTo"
	AttrPosition             = "checkpoint"
	AttrState                = "state"
	AttrCheckpointGeneration = "checkpointGeneration"
	AttrCheckpointAt         = "checkpointAt" // milliseconds since 1970, as every time but the next
	AttrExpires              = "expires"      // seconds since 1970: a tombstone may be swept
	AttrParents              = "parentShardId"
	AttrFinished             = "finished"
	AttrQuarantined          = "quarantined"
	AttrRemoved              = "removed"
	AttrFailures             = "failures"
	AttrFailedGeneration     = "failedGeneration"
	AttrErrors               = "errors"
	AttrLast                 = "transfer"  // reason, from, by, at, write id, note; tabs between
	AttrPast                 = "transfers" // a line each: generations back, reason, from, by, at in seconds

	AttrBeat      = "beat"
	AttrName      = "worker"
	AttrTTL       = "leaseMillis"
	AttrMaxShards = "maxShards"
	AttrPlanner   = "planner"
	AttrLeaving   = "leaving"
	AttrFreed     = "freed"
	AttrWants     = "wants" // a set: generation, terms, shard; spaces between
	AttrAt        = "at"
)

// TombstoneAge is how long a removed row is kept before a store may sweep it.
const TombstoneAge = 30 * 24 * time.Hour

// Partition is where a store keeps the records of one kind of one group.
func Partition(group string, kind Kind) string { return group + "/" + kind.String() }

// Encode gives the stored form of r.
func Encode(r Record) Item {
	item := Item{}
	put := func(name string, value any) {
		switch v := value.(type) {
		case string:
			if v == "" {
				return
			}
		case int64:
			if v == 0 {
				return
			}
		case bool:
			if !v {
				return
			}
		case []string:
			if len(v) == 0 {
				return
			}
		case []byte:
			if len(v) == 0 {
				return
			}
		}
		item[name] = value
	}
	key := r.Key()
	put(AttrGroup, Partition(key.Group, key.Kind))
	put(AttrKey, key.Name)
	put(AttrVersion, int64(Version))
	put(AttrWriteID, string(r.Written()))
	switch r := r.(type) {
	case Row:
		r.encode(put)
	case Seat:
		s := r
		s.encode(put)
	}
	return item
}

func (r Row) encode(put func(string, any)) {
	put(AttrCounter, r.Counter)
	put(AttrGeneration, r.Generation)
	put(AttrOwner, r.Owner.Name)
	put(AttrIncarnation, string(r.Owner.Incarnation))
	put(AttrTask, r.Owner.Task)
	put(AttrOffer, string(r.OfferedTo))
	put(AttrPosition, r.Checkpoint.Position)
	put(AttrState, []byte(r.Checkpoint.State))
	put(AttrCheckpointGeneration, r.Checkpoint.Generation)
	put(AttrCheckpointAt, millis(r.Checkpoint.At))
	put(AttrParents, r.Parents)
	put(AttrFinished, r.Finished)
	put(AttrQuarantined, r.Quarantined)
	put(AttrRemoved, r.Removed)
	if r.Removed {
		put(AttrExpires, r.Last.At.Add(TombstoneAge).Unix())
	}
	put(AttrFailures, r.Failures.Count)
	put(AttrFailedGeneration, r.Failures.Last)
	put(AttrErrors, r.Failures.Errors)
	put(AttrLast, r.Last.pack())
	put(AttrPast, string(r.Past))
}

func (s Seat) encode(put func(string, any)) {
	put(AttrBeat, s.Beat)
	put(AttrName, s.Name)
	put(AttrTask, s.Task)
	put(AttrTTL, s.TTL.Milliseconds())
	put(AttrMaxShards, s.MaxShards)
	put(AttrPlanner, s.Planner)
	put(AttrLeaving, s.Leaving)
	put(AttrFreed, s.Freed)
	put(AttrAt, millis(s.At))
	wants := make([]string, len(s.Wants))
	for i, want := range s.Wants {
		wants[i] = want.String()
	}
	put(AttrWants, wants)
}

// Decode reads the stored form. What it cannot read is a [*MalformedError] that
// names the attribute; attributes it does not know are passed over.
func Decode(item Item) (Record, error) {
	in := reader{item: item}
	key := in.key()
	if version := in.number(AttrVersion); version != Version {
		in.fail(AttrVersion, fmt.Sprintf("must be %d, is %d", Version, version))
	}
	var r Record
	switch key.Kind {
	case KindLease:
		r = in.row(key)
	case KindSeat:
		r = in.seat(key)
	}
	if in.err == nil && r != nil {
		in.err = r.Validate()
	}
	if in.err != nil {
		return nil, &MalformedError{Key: key, Cause: in.err}
	}
	return r, nil
}

// reader reads attributes one after the other and keeps the first fault.
type reader struct {
	item Item
	err  error
}

func (in *reader) fail(attr, rule string) {
	if in.err == nil {
		in.err = invalid("attribute "+strconv.Quote(attr), rule)
	}
}

// value reads an attribute of one type; absent is that type's zero.
func value[T any](in *reader, attr, kind string) T {
	v, ok := in.item[attr].(T)
	if _, present := in.item[attr]; present && !ok {
		in.fail(attr, "must be "+kind)
	}
	return v
}

func (in *reader) text(attr string) string { return value[string](in, attr, "a string") }
func (in *reader) number(attr string) int64 {
	return value[int64](in, attr, "a whole number of 64 bits")
}
func (in *reader) flag(attr string) bool { return value[bool](in, attr, "a boolean") }

func (in *reader) set(attr string) []string {
	return slices.Sorted(slices.Values(value[[]string](in, attr, "a set of strings")))
}

func (in *reader) time(attr string) time.Time { return fromMillis(in.number(attr)) }

func (in *reader) key() Key {
	partition, name := in.text(AttrGroup), in.text(AttrKey)
	cut := max(strings.LastIndexByte(partition, '/'), 0)
	for _, kind := range []Kind{KindLease, KindSeat} {
		if group := partition[:cut]; partition == Partition(group, kind) {
			return Key{Group: group, Kind: kind, Name: name}
		}
	}
	in.fail(AttrGroup, "must end in a kind that is known")
	return Key{Group: partition, Name: name}
}

func (in *reader) row(key Key) Row {
	r := Row{
		Group: key.Group, Shard: key.Name, Parents: in.set(AttrParents),
		Counter: in.number(AttrCounter), WriteID: WriteID(in.text(AttrWriteID)), Generation: in.number(AttrGeneration),
		Owner:     Owner{Name: in.text(AttrOwner), Incarnation: Incarnation(in.text(AttrIncarnation)), Task: in.text(AttrTask)},
		OfferedTo: Incarnation(in.text(AttrOffer)),
		Checkpoint: checkpoint.Checkpoint{
			Mark:       checkpoint.Mark{Position: in.text(AttrPosition), State: string(value[[]byte](in, AttrState, "binary"))},
			Generation: in.number(AttrCheckpointGeneration), At: in.time(AttrCheckpointAt),
		},
		Finished: in.flag(AttrFinished), Quarantined: in.flag(AttrQuarantined), Removed: in.flag(AttrRemoved),
		Failures: Failures{Count: in.number(AttrFailures), Last: in.number(AttrFailedGeneration), Errors: in.number(AttrErrors)},
	}
	r.Last = in.last(r.Generation)
	r.Past = History(in.text(AttrPast))
	if _, err := r.Past.transfers(r.Generation); err != nil {
		in.fail(AttrPast, err.Error())
	}
	return r
}

func (in *reader) seat(key Key) Seat {
	s := Seat{
		Group: key.Group, Incarnation: Incarnation(key.Name), WriteID: WriteID(in.text(AttrWriteID)), Beat: in.number(AttrBeat),
		Name: in.text(AttrName), Task: in.text(AttrTask), TTL: time.Duration(in.number(AttrTTL)) * time.Millisecond,
		MaxShards: in.number(AttrMaxShards), Planner: in.text(AttrPlanner), At: in.time(AttrAt),
		Says: Says{Leaving: in.flag(AttrLeaving), Freed: in.number(AttrFreed)},
	}
	if n := in.number(AttrTTL); n < 0 || n > rebalance.MaxDuration.Milliseconds() {
		in.fail(AttrTTL, "must be between 0 and a day")
	}
	for _, text := range in.set(AttrWants) {
		if want, ok := parseWant(text); ok {
			s.Wants = append(s.Wants, want)
		}
	}
	s.Wants = slices.CompactFunc(byShard(s.Wants), func(a, b Want) bool { return a.Shard == b.Shard })
	return s
}

// parseWant reads what Want.String gives. The shard comes last: it may hold
// spaces. A want that cannot be read is not served, as any want may be; it is no
// reason to take its worker, who is alive, for unreadable.
func parseWant(text string) (Want, bool) {
	fields := strings.SplitN(text, " ", 6)
	if len(fields) < 6 {
		return Want{}, false
	}
	generation, errGeneration := strconv.ParseInt(fields[0], 10, 64)
	terms, errTerms := parseTerms(fields[1:5])
	w := Want{Shard: fields[5], Generation: generation, Terms: terms}
	return w, errGeneration == nil && errTerms == nil && w.validate() == nil
}

// parseTerms reads the four words of Terms.String. A mode or an after-drain that this
// version does not know was written by a newer one, and is served as eager and force, which
// never makes two handlers run.
func parseTerms(words []string) (rebalance.Terms, error) {
	mode, drain, after, prepare := words[0], words[1], words[2], words[3]
	if mode != "" && mode != rebalance.Cooperative.String() {
		mode = rebalance.Eager.String()
	}
	if after != "" && after != rebalance.Wait.String() {
		after = rebalance.Force.String()
	}
	var t rebalance.Terms
	err := t.UnmarshalText([]byte(mode + " " + drain + " " + after + " " + prepare))
	return t.Fill(0), err
}
