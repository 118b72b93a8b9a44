package sim

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An operator makes the writes of an operator's commands.
type operator struct {
	w    *world
	wall time.Duration // how far the operator's clock is off
}

func (o *operator) stamp() protocol.Stamp {
	w := o.w
	id := lease.WriteID("op" + virtual.Epoch().Add(time.Duration(w.Unique())).Format("150405.000000000"))
	return protocol.Stamp{ID: id, At: virtual.Epoch().Add(w.Now() + o.wall)}
}

// write makes the write of a command.
func (o *operator) write(write lease.Write, err error) error {
	if err == nil {
		_, err = o.w.table.Write(virtual.Sender{}, write)
	}
	return err
}

// release takes a shard away from its owner, and asks the workers to look at the row.
func (o *operator) release(row lease.Row) (released bool) {
	w := o.w
	if row.Generation == 0 || row.Owner.IsZero() || w.faults.backup.went || w.net.down {
		return false
	}
	err := o.write(protocol.ForceRelease(row, protocol.Command{Seen: row.Generation, By: "supervisor", Note: "because"}, o.stamp()))
	if err != nil {
		w.blame("force-release: %v", err)
		return false
	}
	o.wish(func(list []lease.Wish) []lease.Wish { // a command removes its own wishes that have ended, too
		now := o.stamp().At
		look := lease.Wish{Kind: protocol.WishLook, Subject: row.Shard, By: "supervisor", Until: now.Add(time.Minute)}
		return append(slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(look) == 0 || !old.Stands(now) }), look)
	})
	return true
}

func forceRelease(f *faults, _ Fault, _ *node) (time.Duration, bool) {
	w := f.w
	return 0, w.operator.release(w.promises.Row(pick(w.chance, w.streams.all...).name))
}

// unquarantine takes every shard out of quarantine.
func (o *operator) unquarantine() {
	for _, s := range o.w.streams.all {
		row := o.w.promises.Row(s.name)
		if row.Generation == 0 || !row.Quarantined {
			continue
		}
		if write, err := protocol.Unquarantine(row, protocol.Command{Seen: row.Generation, By: "operator"}, o.stamp()); err == nil {
			_ = o.write(write, nil)
			o.w.silence.disturb()
		}
	}
}

// adopt adopts every row of a restored table.
func (o *operator) adopt() {
	o.w.trace("adopt", "", nil)
	for _, s := range o.w.streams.all {
		row := o.w.promises.Row(s.name)
		if row.Generation == 0 || row.Removed {
			continue
		}
		write, err := protocol.Adopt(row, "operator", o.stamp())
		if err != nil {
			o.w.blame("adoption: %v", err)
			return
		}
		_ = o.write(write, nil)
	}
}

// makeWishes makes some wishes. Each ends by itself, by the wall clock of a planner.
func makeWishes(f *faults, _ Fault, _ *node) (time.Duration, bool) {
	w := f.w
	return itself, !f.backup.went && !w.net.down && w.operator.wish(func(list []lease.Wish) []lease.Wish {
		for range 1 + w.IntN(4) {
			worker, shard := pick(w.chance, w.nodes...).Name, pick(w.chance, w.streams.all...).name
			next, names := lease.Wish{Kind: pick(w.chance, lease.WishKinds()...)}, map[string]string{"worker": worker, "shard": shard}
			if next.Kind == lease.WishRaise {
				next.Number = int64(w.Unique())
			}
			of, to, _ := next.Kind.Names()
			next.Subject, next.To = names[of], names[to]
			next.By, next.Until = "operator", w.operator.stamp().At.Add(f.upTo(10))
			list = append(slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(next) == 0 }), next)
		}
		return list
	})
}

func liftWishes(f *faults, _ *node) {
	f.w.operator.wish(func([]lease.Wish) []lease.Wish { return nil })
}

// wish changes the wishes. It reports whether it wrote them.
func (o *operator) wish(change func([]lease.Wish) []lease.Wish) bool {
	now := o.w.table.Wishes(group)
	list := change(slices.Clone(now.List))
	if len(list) == 0 && len(now.List) == 0 {
		return false
	}
	err := o.write(protocol.SetWishes(now, list, o.stamp()))
	if err != nil {
		o.w.blame("wishes: %v", err)
	}
	return err == nil
}
