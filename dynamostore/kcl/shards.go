package kcl

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Shard describes a shard as Kinesis lists it.
type Shard struct {
	// Name is the shard id.
	Name string
	// Parents are the parents of the shard: up to two.
	Parents []string
	// StartingHashKey and EndingHashKey are the first and the last hash key, in decimal.
	StartingHashKey, EndingHashKey string
}

// A RangeError reports a shard whose hash keys are unknown, or cannot be read by the KCL.
type RangeError struct{ Shard, Rule string }

func (e *RangeError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("shard %.64q: hash keys: %s", e.Shard, e.Rule)
}

// children maps each parent to the sorted names of its children.
func (o ExportOptions) children(rows []lease.Row) map[string][]string {
	all := map[string][]string{}
	add := func(child string, parents []string) {
		for _, parent := range parents {
			if !slices.Contains(all[parent], child) {
				all[parent] = append(all[parent], child)
			}
		}
	}
	for _, row := range rows {
		add(row.Shard, row.Parents)
	}
	for _, s := range o.Shards {
		add(s.Name, s.Parents)
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}

// complete adds to the next leases what the rows lack, from the leases in the table or, if
// these lack it too, from ExportOptions.Shards.
func (o ExportOptions) complete(next, there []Lease) error {
	var errs []error
	for i := range next {
		l, old := &next[i], find(there, next[i].Shard)
		if l.Sequence == "" {
			l.Sequence = cmp.Or(o.Unstarted, trimHorizon)
			if old != nil && unstarted(old.Sequence) {
				l.Sequence, l.Sub = old.Sequence, old.Sub
			}
		}
		if old != nil && l.Sequence == old.Sequence && l.Sub == old.Sub {
			l.Pending, l.PendingSub, l.PendingState = old.Pending, old.PendingSub, old.PendingState
		}
		at := slices.IndexFunc(o.Shards, func(s Shard) bool { return s.Name == l.Shard })
		switch {
		case old != nil && old.StartingHashKey != "" && old.EndingHashKey != "":
			l.StartingHashKey, l.EndingHashKey = old.StartingHashKey, old.EndingHashKey
		case at >= 0:
			s := o.Shards[at]
			l.StartingHashKey, l.EndingHashKey = s.StartingHashKey, s.EndingHashKey
			errs = append(errs, s.check())
		case l.Sequence != shardEnd: // Kinesis may no longer list a finished shard
			errs = append(errs, &RangeError{l.Shard, "the table has none, and ExportOptions.Shards does not list the shard"})
		}
		if at >= 0 && len(l.Parents) == 0 {
			l.Parents = o.Shards[at].Parents
		}
	}
	return errors.Join(errs...)
}

// check returns an error if the KCL cannot read the hash keys. The KCL requires the first hash
// key to be less than the last one.
func (s Shard) check() error {
	from, okFrom := new(big.Int).SetString(s.StartingHashKey, 10)
	to, okTo := new(big.Int).SetString(s.EndingHashKey, 10)
	if !okFrom || !okTo || from.Sign() < 0 || to.BitLen() > 128 || from.Cmp(to) >= 0 {
		return &RangeError{s.Name, "must be two decimal numbers of up to 128 bits, the first one less than the second one"}
	}
	return nil
}

func find(leases []Lease, shard string) *Lease {
	at := slices.IndexFunc(leases, func(l Lease) bool { return l.Shard == shard })
	if at < 0 {
		return nil
	}
	return &leases[at]
}

// describe sets those of the parents, the children and the hash keys that the item lacks.
func (l Lease) describe(u *update, item map[string]types.AttributeValue) {
	for _, a := range []struct {
		name   string
		values []string
	}{{attrParents, l.Parents}, {attrChildren, l.Children}} {
		if len(a.values) > 0 && len(set(item, a.name)) == 0 {
			u.set(a.name, &types.AttributeValueMemberSS{Value: a.values})
		}
	}
	if l.StartingHashKey != "" && (text(item, attrFrom) == "" || text(item, attrTo) == "") {
		u.set(attrFrom, &types.AttributeValueMemberS{Value: l.StartingHashKey})
		u.set(attrTo, &types.AttributeValueMemberS{Value: l.EndingHashKey})
	}
}
