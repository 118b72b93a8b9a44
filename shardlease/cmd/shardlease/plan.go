package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// mostAdded bounds --add, so that a typing error does not take all memory.
const mostAdded = 10_000

func (p *program) planCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "plan", Short: "Shows the moves that the next plan would make", Args: arguments,
		Long: `Runs the planner on the live table without writing anything, and shows the moves. With --add it shows what
happens if workers join, with --remove if workers are gone.

The dry run obeys limits, cordons, drains, pauses and pins, and gives nothing to workers that are unwell or
leaving. It uses the built-in planner. Which shards exactly move to workers that are not there yet depends
on their random incarnations; how many move does not.`,
		Example: "  shardlease plan\n  shardlease plan --add 2\n  shardlease plan --remove host-1 -o json",
	}
	f := formatFlag(c, allFormats()...)
	add := c.Flags().Int("add", 0, "pretend that `N` more workers run")
	remove := c.Flags().StringSlice("remove", nil, "pretend that the workers with this `NAME` are gone; may be repeated")
	p.completeFlag(c, "remove", workerNames)
	c.RunE = p.do(func(ctx context.Context, _ []string) error {
		if *add < 0 || *add > mostAdded {
			return usage("--add must be from 0 to %d", mostAdded)
		}
		s, err := p.look(ctx)
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
		return p.show(s, planResult(s, foresee(s, p.now(), newcomers(s, *add), *remove)), f)
	})
	return c
}

// newcomers returns the seats of workers that do not exist. They are like the first one that does.
func newcomers(s *inspect.Snapshot, n int) (seats []lease.Seat) {
	var like lease.Seat
	if len(s.Workers) > 0 {
		like = lease.Seat{MaxShards: s.Workers[0].Seat.MaxShards}
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
	Planner  string     `json:"planner"`
	Shards   int        `json:"shards"`
	Moves    int        `json:"moves"`
	Unplaced int        `json:"unplaced"`
	Workers  []loadView `json:"workers"`
}

type loadView struct {
	ownerView
	Now  int `json:"now"`
	Then int `json:"then"`
}

type planMove struct {
	Shard string     `json:"shard"`
	From  *ownerView `json:"from,omitempty"`
	To    *ownerView `json:"to,omitempty"`
}

// planResult returns the moves, then the workers with the number of their shards.
func planResult(s *inspect.Snapshot, f *forecast) *result {
	head := planHead{scope: scopeOf(s), Planner: rebalance.Even{}.Name(), Shards: len(f.to)}
	r := &result{kind: "plan", item: "move", grid: grid{columns: cols("SHARD", "FROM", "TO", "+FROM INCARNATION", "+TO INCARNATION")}}
	for i, to := range f.to {
		if to == rebalance.Nobody {
			head.Unplaced++
		} else if to == f.view.Shards[i].Owner && f.seats[to].Owner() == f.owners[i] {
			continue
		}
		from, next := f.owners[i], lease.Owner{}
		target := "unplaced"
		if to != rebalance.Nobody {
			next = f.seats[to].Owner()
			target = next.Name
		}
		name := f.view.Shards[i].Name
		r.names = append(r.names, name)
		r.items = append(r.items, planMove{name, ownerOf(from), ownerOf(next)})
		r.grid.add(name, cmp.Or(from.Name, "nobody"), target, string(from.Incarnation), string(next.Incarnation))
	}
	head.Moves = len(r.items) - head.Unplaced
	loads := grid{columns: cols("WORKER", ">NOW", ">THEN", "+INCARNATION")}
	for at, seat := range f.seats {
		head.Workers = append(head.Workers, loadView{*ownerOf(seat.Owner()), f.held[at], f.loads[at]})
		loads.add(seat.Name, strconv.Itoa(f.held[at]), strconv.Itoa(f.loads[at]), string(seat.Incarnation))
	}
	summary := fmt.Sprintf("%d of %s would move", head.Moves, counted(head.Shards, "shard"))
	if head.Unplaced > 0 {
		summary += fmt.Sprintf("; %d unplaced, because no worker has room", head.Unplaced)
	}
	if s.Plan != nil && s.Plan.Planner != "" && s.Plan.Planner != head.Planner {
		summary += fmt.Sprintf("; the fleet's planner is %s, and may decide otherwise", s.Plan.Planner)
	}
	if at := slices.IndexFunc(s.Wishes, func(w lease.Wish) bool { return w.Kind == lease.WishPause && w.Stands(s.At) }); at >= 0 {
		summary += "; held shards stay where they are while this wish stands: " + clean(s.Wishes[at].String())
	}
	loads.foot = []string{summary}
	r.head, r.more = head, []grid{loads}
	if len(r.items) == 0 {
		r.grid = grid{foot: []string{"No shard would move."}}
	}
	return r
}
