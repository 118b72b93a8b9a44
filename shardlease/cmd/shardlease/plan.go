package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// mostAdded bounds --add, so that a typing error does not take all memory.
const mostAdded = 10_000

func (o *observer) planCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "plan", Short: "Shows what the next plan would change", Args: arguments,
		Long: `Runs the planner on the live table without writing anything, and shows each shard that the next plan would
assign to another worker than the present plan does. OWNER is the worker that holds the shard, PLANNED the one
to which the present plan assigns it; without a complete plan both are the owner. CAUSE is why the plan would
move the shard, and NOTE which operator wants that, and why; a shard without a worker moves for no cause. With
--add it shows what happens if workers join, with --remove if workers are gone.

The dry run obeys limits, cordons, drains, pauses, pins and ordered moves (a raise moves nothing), and gives
nothing to workers that are unwell or leaving. If the fleet has a planner of its own, which this command does not
have, it shows what the built-in planner would do, and says so. Which shards exactly move to workers that are
not there yet depends on their random incarnations; how many move does not. An owner that has no seat any more
is marked as gone, and no plan counts it.`,
		Example: "  shardlease plan\n  shardlease plan --add 2\n  shardlease plan --remove host-1 -o json",
	}
	f := formatFlag(c, allFormats()...)
	add := c.Flags().Int("add", 0, "pretend that `N` more workers run")
	remove := c.Flags().StringSlice("remove", nil, "pretend that the workers with this `NAME` are gone; may be repeated")
	o.completeFlag(c, "remove", workerNames)
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if *add < 0 || *add > mostAdded {
			return usage("--add must be from 0 to %d", mostAdded)
		}
		s, err := o.look(ctx)
		if err != nil {
			return err
		}
		if err := needsWorkers(s, "plan"); err != nil {
			return err
		}
		for _, name := range *remove {
			if !slices.Contains(workerNames(s), name) {
				return missing("no such worker %s in group %s", quoted(name), quoted(s.Group))
			}
		}
		return o.show(s, planResult(s, foresee(s, o.now(), newcomers(s, *add), *remove)), f)
	})
	return c
}

// newcomers returns the seats of workers that do not exist. They are like the first one that does.
func newcomers(s *inspect.Snapshot, n int) (seats []lease.Seat) {
	like := lease.Seat{TTL: time.Second} // a seat without a lease time is one that cannot be read
	if len(s.Workers) > 0 {
		like.MaxShards = s.Workers[0].Seat.MaxShards
	}
	for i := range n {
		name := fmt.Sprintf("new-%d", i+1)
		like.Name, like.Incarnation, like.Beat = name, lease.Incarnation(name), 1
		seats = append(seats, like)
	}
	return seats
}

type planHead struct {
	scope
	Planner   string     `json:"planner"`             // whose plan is shown
	PlannedBy string     `json:"plannedBy,omitempty"` // the fleet's planner, if this command does not have it
	Shards    int        `json:"shards"`
	Moves     int        `json:"moves"`
	Unplaced  int        `json:"unplaced"`
	Workers   []loadView `json:"workers"`
}

type loadView struct {
	ownerView
	load
}

type planMove struct {
	Shard   string     `json:"shard"`
	Owner   *ownerView `json:"owner,omitempty"`
	Planned *ownerView `json:"planned,omitempty"`
	To      *ownerView `json:"to,omitempty"`
	Cause   string     `json:"cause,omitempty"`
	Note    string     `json:"note,omitempty"` // by whom and why, if an operator has caused the move
}

// planResult returns what changes, then the workers with the number of their shards.
func planResult(s *inspect.Snapshot, f *forecast) *result {
	head := planHead{scope: scopeOf(s), Planner: rebalance.Even{}.Name(), Shards: len(f.To)}
	if s.Plan != nil && s.Plan.Planner != head.Planner {
		head.PlannedBy = s.Plan.Planner
	}
	r := &result{kind: "plan", item: "move", grid: grid{columns: cols("SHARD", "OWNER", "PLANNED", "TO", "CAUSE", "~NOTE", "+OWNER INCARNATION", "+TO INCARNATION")}}
	for i, to := range f.To {
		var owner, planned, next lease.Owner
		name, target := f.assigned[i].Name, "unplaced"
		if of := s.Shard(name); of != nil {
			owner = of.Owner
		}
		if at := f.assigned[i].Owner; at != rebalance.Nobody {
			planned = f.Seats[at].Owner()
		}
		if f.Placed(i) {
			if to == f.assigned[i].Owner {
				continue
			}
			next = f.Seats[to].Owner()
			target = called(next)
		} else {
			head.Unplaced++
		}
		holder := cmp.Or(called(owner), "nobody")
		if !owner.IsZero() && layout.SeatOf(f.Seats, owner.Incarnation) == rebalance.Nobody {
			holder += " (gone)"
		}
		r.names = append(r.names, name)
		cause := f.Cause(i)
		r.items = append(r.items, planMove{name, ownerOf(owner), ownerOf(planned), ownerOf(next), causeOf(cause.Why), cause.Note})
		r.grid.add(name, holder, cmp.Or(called(planned), "nobody"), target, causeOf(cause.Why), cause.Note, string(owner.Incarnation), string(next.Incarnation))
	}
	head.Moves = len(r.items) - head.Unplaced
	loads := grid{columns: cols("WORKER", ">HELD", ">PLANNED", ">THEN", "+INCARNATION")}
	for at, seat := range f.Seats {
		of := f.loads[at]
		head.Workers = append(head.Workers, loadView{*ownerOf(seat.Owner()), of})
		loads.add(called(seat.Owner()), strconv.Itoa(of.Held), strconv.Itoa(of.Planned), strconv.Itoa(of.Then), string(seat.Incarnation))
	}
	loads.foot = []string{head.summary(s)}
	r.head, r.more = head, []grid{loads}
	if len(r.items) == 0 {
		r.grid = grid{foot: []string{"A new plan would be the same."}}
	}
	return r
}

// called returns what a worker is called: its name, or its incarnation if its seat cannot be read.
func called(o lease.Owner) string { return cmp.Or(o.Name, string(o.Incarnation)) }

// summary returns the last line of the plan.
func (h *planHead) summary(s *inspect.Snapshot) string {
	line := fmt.Sprintf("%d of %s would be assigned to another worker", h.Moves, counted(h.Shards, "shard"))
	if h.Unplaced > 0 {
		line += fmt.Sprintf("; %d unplaced, because no worker has room", h.Unplaced)
	}
	if h.PlannedBy != "" {
		line += fmt.Sprintf("; planned by %s, which this command does not have; shown: %s", clean(h.PlannedBy), h.Planner)
	}
	if pause := pauseOf(s); pause != nil {
		line += "; held shards stay where they are while this wish stands: " + clean(pause.String())
	}
	return line
}
