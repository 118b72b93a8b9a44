package dynamostore

import (
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A spoilt is an item that cannot be read, and what a repair keeps of it. One attribute after the other is added to an item
// that can be read, and stays if the item can be read with it. So the reader of package lease decides what is valid, and
// nothing here repeats its rules.
type spoilt struct {
	key  lease.Key
	raw  map[string]types.AttributeValue
	item lease.Item // raw with the types of a lease.Item where the attributes have one
	kept lease.Item // the attributes that can be read together
	lost []string   // the others
}

func newSpoilt(k lease.Key, raw map[string]types.AttributeValue) *spoilt {
	of := &spoilt{key: k, raw: raw, item: lease.Item{}}
	for name, value := range raw {
		of.item[name] = plain(value)
	}
	return of
}

// refusal returns why the item is not to be repaired; empty: it is.
func (of *spoilt) refusal() lease.Rule {
	if _, err := decode(of.raw); err == nil {
		return protocol.ErrReadable
	}
	if version, ok := of.item[attr.Version].(int64); ok && version > attr.Format {
		return protocol.ErrNewer
	}
	return ""
}

// mend returns the record as it should be; nil: there is nothing to keep.
func (of *spoilt) mend(by, why string, st protocol.Stamp) (lease.Record, error) {
	if of.key.Kind == lease.KindSeat {
		return of.seat(), nil
	}
	r, aside := of.row()
	next, err := protocol.Mend(r, protocol.Command{By: by, Note: why}, aside, st)
	if err != nil {
		return nil, err
	}
	return next, nil
}

// begin makes kept the least that can be read.
func (of *spoilt) begin(with lease.Item) {
	of.kept = lease.Item{attr.Group: attr.Partition(of.key.Group, of.key.Kind), attr.Key: of.key.Name, attr.Version: int64(attr.Format)}
	maps.Copy(of.kept, with)
	if _, ok := of.item[attr.Version].(int64); !ok {
		of.lost = append(of.lost, attr.Version)
	}
}

// adds adds attributes if the item can be read with them, and reports whether it can.
func (of *spoilt) adds(more lease.Item) bool {
	next := maps.Clone(of.kept)
	maps.Copy(next, more)
	if _, err := lease.Decode(next); err != nil {
		return false
	}
	of.kept = next
	return true
}

// keep adds an attribute of the item, if there is one. Otherwise the attribute is lost.
func (of *spoilt) keep(names ...string) (all bool) {
	more := lease.Item{}
	for _, name := range names {
		if value, there := of.item[name]; there {
			more[name] = value
		}
	}
	if len(more) == 0 || of.adds(more) {
		return true
	}
	of.lose(names...)
	return false
}

// lose notes those of the attributes that the item has.
func (of *spoilt) lose(names ...string) {
	for _, name := range names {
		if _, there := of.item[name]; there {
			of.lost = append(of.lost, name)
		}
	}
}

// demands are the attributes with which a worker limits what it gets, asks for it, and says what it has done. A heartbeat
// stores only what has changed, so the worker would never store them again.
var demands = []string{attr.MaxShards, attr.Leaving, attr.Wants, attr.Raised}

// seat returns the seat without the attributes that cannot be read; nil: the seat is to be deleted, because it lacks
// what every seat has, or one of the demands is lost.
func (of *spoilt) seat() lease.Record {
	always := []string{attr.WriteID, attr.Name, attr.TTL, attr.Beat}
	of.begin(lease.Item{})
	for _, name := range always {
		if value, there := of.item[name]; there {
			of.kept[name] = value
		}
	}
	if _, err := lease.Decode(of.kept); err != nil {
		of.lose(always...)
		return nil
	}
	for _, name := range formatAttributes(lease.KindSeat) {
		if name == attr.Version || slices.Contains(always, name) {
			continue
		}
		if kept := of.keep(name); !kept && slices.Contains(demands, name) {
			of.lose(always...)
			return nil
		}
	}
	r, _ := lease.Decode(of.kept)
	return r
}

// afterHeartbeat returns the seat as it should be, if of is the seat of before, and its worker alone has written since: what
// could not be read is as it was, and so is every attribute that is none of the format.
func (of *spoilt) afterHeartbeat(before *spoilt) (next lease.Record, only bool) {
	if of.key.Kind != lease.KindSeat || of.refusal() != "" {
		return nil, false
	}
	next = of.seat()
	return next, reflect.DeepEqual(of.damage(), before.damage())
}

// damage returns what no heartbeat changes of a seat of which seat was called.
func (of *spoilt) damage() map[string]types.AttributeValue {
	left := maps.Clone(of.raw)
	for _, name := range formatAttributes(lease.KindSeat) {
		_, isText := of.item[name].(string)
		_, isNumber := of.item[name].(int64)
		beats := name == attr.WriteID && isText || name == attr.Beat && isNumber
		if beats || !slices.Contains(of.lost, name) {
			delete(left, name)
		}
	}
	return left
}

// row returns what can be read of a row, and whether the shard has to be set aside because its state is not known.
func (of *spoilt) row() (r lease.Row, aside bool) {
	generation, known := of.generation()
	of.begin(lease.Item{attr.WriteID: "-", attr.Counter: int64(1), attr.Generation: generation, attr.Last: "forced\t\t-\t0\t-"})
	if id, _ := of.item[attr.WriteID].(string); id == "" {
		of.lost = append(of.lost, attr.WriteID)
	}
	if n, ok := of.item[attr.Counter].(int64); !ok || n < 1 || !of.adds(lease.Item{attr.Counter: n}) {
		of.lost = append(of.lost, attr.Counter)
	}
	if !known {
		of.lost = append(of.lost, attr.Generation)
	}
	for _, name := range []string{attr.Finished, attr.Quarantined, attr.Removed} {
		aside = !of.keep(name) || aside
	}
	aside = !of.checkpoint(generation) || aside
	of.keep(attr.Parents)
	for _, name := range []string{attr.Failures, attr.FailedGeneration, attr.Errors, attr.FailedBy, attr.LastError} {
		of.keep(name)
	}
	_, held := of.item[attr.Incarnation]
	switch owned := of.keep(attr.Owner, attr.Incarnation, attr.Task); {
	case held && !owned && (of.kept[attr.Finished] != nil || of.kept[attr.Removed] != nil): // which of them is true?
		aside = true
		for _, name := range []string{attr.Finished, attr.Removed} {
			if of.kept[name] != nil {
				delete(of.kept, name)
				of.lost = append(of.lost, name)
			}
		}
	case owned:
		of.keep(attr.Offer)
	}
	history := known && of.history()
	if !history {
		of.lose(attr.Last, attr.Past)
	}
	aside = !of.delay(held, history) || aside
	record, _ := lease.Decode(of.kept)
	r, _ = record.(lease.Row)
	if !history {
		r.Last, r.Past = lease.Transfer{}, ""
	}
	return r, aside
}

// generation returns the highest generation that can be read in the item, and whether it is that of the row.
func (of *spoilt) generation() (highest int64, known bool) {
	own, ok := of.item[attr.Generation].(int64)
	highest = max(own, 1)
	for _, name := range []string{attr.Generation, attr.CheckpointGeneration, attr.FailedGeneration} {
		n, _ := of.item[name].(int64)
		if digits, is := of.item[name].(string); is { // the type is lost, and not the number
			n, _ = strconv.ParseInt(digits, 10, 64)
		}
		highest = max(highest, n)
	}
	return highest, ok && own == highest
}

// checkpoint keeps the checkpoint, and reports whether it could. A position without its state, or a state without its
// position, would mean something else to a handler.
func (of *spoilt) checkpoint(generation int64) bool {
	accepted, isNumber := of.item[attr.CheckpointGeneration].(int64)
	if _, there := of.item[attr.CheckpointGeneration]; there && (!isNumber || !of.adds(lease.Item{attr.CheckpointGeneration: accepted})) {
		of.lost, accepted = append(of.lost, attr.CheckpointGeneration), 0
	}
	of.keep(attr.CheckpointAt)
	mark := lease.Item{}
	for _, name := range []string{attr.Position, attr.State} {
		if value, there := of.item[name]; there {
			mark[name] = value
		}
	}
	if len(mark) == 0 {
		return true
	}
	if accepted == 0 { // it was accepted under some generation up to this one
		mark[attr.CheckpointGeneration] = generation
	}
	if of.adds(mark) {
		return true
	}
	of.lose(attr.Position, attr.State)
	return false
}

// delay keeps the reservation that a command has left, and the lock delay, and reports whether it could keep the delay. The
// owner shows whose delay it is, or, where nobody holds the row, the last change of hands. Without that a delay means nothing.
func (of *spoilt) delay(held, history bool) bool {
	of.keep(attr.ReservedFor, attr.Reserved)
	_, there := of.item[attr.LockDelay]
	switch known := held && of.kept[attr.Incarnation] != nil || !held && history; {
	case !there:
		return true
	case known:
		return of.keep(attr.LockDelay)
	}
	of.lose(attr.LockDelay)
	return false
}

// history keeps the changes of hands, as many as can be read, and reports whether it could keep the last one.
func (of *spoilt) history() bool {
	last, there := of.item[attr.Last]
	if !there || !of.adds(lease.Item{attr.Last: last}) {
		return false
	}
	of.keep(attr.Past)
	return true
}
