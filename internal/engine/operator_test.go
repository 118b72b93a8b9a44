package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An operator looks at the table, and writes by hand.
type operator struct {
	testing.TB
	table  *virtual.Table
	now    func() time.Duration
	stamps int
}

func (o *operator) plan() lease.Plan { return o.table.Plan("g") }

func (o *operator) wishes() lease.Wishes { return o.table.Wishes("g") }

// row returns the row of a shard; a zero row if there is none.
func (o *operator) row(shard string) lease.Row { return o.table.Row("g", shard) }

// offered returns the tenure whose shard is offered; a zero tenure if none is.
func (o *operator) offered() (id engine.Tenure) {
	for _, r := range o.table.Records("g", lease.KindLease) {
		if r := r.(lease.Row); r.OfferedTo != "" {
			return engine.Tenure{Shard: r.Shard, Generation: r.Generation}
		}
	}
	return id
}

// seat returns the seat of a worker; a zero seat if it has none.
func (o *operator) seat(n *member) lease.Seat {
	seat, _ := o.table.Read(lease.Key{Group: "g", Kind: lease.KindSeat, Name: string(n.Engine.Status().Incarnation)}).(lease.Seat)
	return seat
}

func (o *operator) stamp() protocol.Stamp {
	o.stamps++
	return protocol.Stamp{ID: lease.WriteID(fmt.Sprint("by-hand-", o.stamps)), At: o.later(0)}
}

// later returns the wall time in a while.
func (o *operator) later(d time.Duration) time.Time { return virtual.Epoch().Add(o.now() + d) }

// write makes a write that nobody but the test makes, and returns what it stored.
func (o *operator) write(w lease.Write, err error) lease.Record {
	o.Helper()
	var r lease.Record
	if err == nil {
		r, err = o.table.Write(virtual.Sender{}, w)
	}
	if err != nil {
		o.Fatal(err)
	}
	return r
}

// release takes a shard from its owner.
func (o *operator) release(shard string) {
	o.Helper()
	row := o.row(shard)
	o.write(protocol.ForceRelease(row, seen(row), o.stamp()))
}

// seen is a command about a row as it stands.
func seen(row lease.Row) protocol.Command {
	return protocol.Command{Seen: row.Generation, By: "operator"}
}

// command makes a command, and the wish by which workers notice it.
func (o *operator) command(shard string, write func(lease.Row, protocol.Command) (lease.Write, error)) {
	o.Helper()
	row := o.row(shard)
	o.write(write(row, seen(row)))
	o.wish(o.look(shard, time.Minute))
}

func (o *operator) quarantine(shard string) {
	o.Helper()
	o.command(shard, func(r lease.Row, c protocol.Command) (lease.Write, error) {
		return protocol.Quarantine(r, c, lease.ReasonForced, o.stamp())
	})
}

func (o *operator) unquarantine(shard string) {
	o.Helper()
	o.command(shard, func(r lease.Row, c protocol.Command) (lease.Write, error) {
		return protocol.Unquarantine(r, c, o.stamp())
	})
}

// look returns the wish by which workers notice a command.
func (o *operator) look(shard string, lasts time.Duration) lease.Wish {
	return lease.Wish{Kind: protocol.WishLook, Subject: shard, By: "operator", Until: o.later(lasts)}
}

// wish replaces the wishes of operators.
func (o *operator) wish(list ...lease.Wish) {
	o.Helper()
	o.write(protocol.SetWishes(o.wishes(), list, o.stamp()))
}

// Advice is what a test writes in the place of a planner.
type advice struct{ f *fleet }

// target returns the target of a worker, which has one page.
func (a advice) target(n *member) lease.Target {
	for _, r := range a.f.table.Records("g", lease.KindTarget) {
		if of, ok := r.(lease.Target); ok && of.Incarnation == n.Engine.Status().Incarnation {
			return of
		}
	}
	a.f.Fatalf("%s has no target", n.Name)
	return lease.Target{}
}

// put writes a page of a target over what is there.
func (a advice) put(next lease.Target) {
	a.f.Helper()
	was, _ := a.f.table.Read(next.Key()).(lease.Target)
	a.f.write(protocol.WriteTarget(was, next, a.f.stamp()))
}

// open opens the next revision in the name of the planner of the last one.
func (a advice) open() int64 {
	a.f.Helper()
	p := a.f.plan()
	a.f.write(protocol.OpenPlan(p, protocol.Opening{By: p.By, Planner: p.Planner}, a.f.stamp()))
	return a.f.plan().Revision
}

// finish finishes the open revision, with the inputs of the one before, so that no plan is due.
func (a advice) finish() {
	a.f.Helper()
	p := a.f.plan()
	a.f.write(protocol.ClosePlan(p, p.Revision, p.By.Incarnation, p.Finding, a.f.stamp()))
}

// revise writes a revision in which the targets of all workers are changed.
func (a advice) revise(change func(n *member, of *lease.Target)) {
	a.f.Helper()
	targets := map[*member]lease.Target{}
	for _, n := range a.f.up() {
		of := a.target(n)
		of.Hold = slices.Clone(of.Hold)
		change(n, &of)
		slices.SortFunc(of.Hold, func(a, b lease.Assigned) int { return strings.Compare(a.Shard, b.Shard) })
		targets[n] = of
	}
	revision := a.open()
	for _, n := range a.f.up() {
		of := targets[n]
		of.Revision = revision
		a.put(of)
	}
	a.finish()
}

// assign writes a revision that moves shards to these workers. With hints, the targets of their
// owners say so.
func (a advice) assign(to map[string]*member, hints bool) {
	a.f.Helper()
	a.revise(func(n *member, of *lease.Target) {
		of.Give = nil
		for shard, successor := range to {
			had := len(of.Hold)
			of.Hold = slices.DeleteFunc(of.Hold, func(a lease.Assigned) bool { return a.Shard == shard })
			if len(of.Hold) < had && hints {
				of.Give = append(of.Give, lease.Give{Shard: shard, To: successor.Engine.Status().Incarnation})
			}
			if n == successor {
				of.Hold = append(of.Hold, lease.Assigned{Shard: shard})
			}
		}
	})
}

// give writes a revision with this shard, which no worker has held, in the target of the worker.
func (a advice) give(to *member, child lease.Assigned) {
	a.f.Helper()
	a.revise(func(n *member, of *lease.Target) {
		if n == to {
			of.Hold = append(of.Hold, child)
		}
	})
}
