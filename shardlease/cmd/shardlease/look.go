package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An observer shows the group that it reads. Its commands change nothing.
type observer struct {
	*reader
	out, problems io.Writer
}

// tell reports on the standard error what a listing cannot show.
func (o *observer) tell(s *inspect.Snapshot) error {
	if s.Restored {
		fmt.Fprintln(o.problems, "shardlease: the table was restored, and the workers claim nothing until it is adopted:", clean(s.RestoredWhy))
	}
	for _, u := range s.Unreadable {
		fmt.Fprintf(o.problems, "shardlease: %s %s cannot be read: %s\n", u.Key.Kind, quoted(u.Key.Name), clean(u.Cause.Error()))
	}
	if n := len(s.Unreadable); n > 0 {
		return fmt.Errorf("%s cannot be read", counted(n, "record"))
	}
	return nil
}

// show prints a result, then what the listing cannot show.
func (o *observer) show(s *inspect.Snapshot, r *result, f *format) error {
	if err := r.print(o.out, f); err != nil {
		return err
	}
	return o.tell(s)
}

func (o *observer) groupsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "groups", Short: "Lists the groups of the table", Args: arguments,
		Long: `Lists the groups of the table, with the number of their lease rows and seats.

It scans the keys of the whole table, which costs as much as reading all of it, and needs the permission
dynamodb:Scan. No other command scans the table.`,
		Example: "  shardlease groups --table leases",
	}
	f := formatFlag(c, allFormats()...)
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if err := o.at.needsTable(); err != nil {
			return err
		}
		groups, err := o.tables.Groups(ctx, o.at.table)
		if err != nil {
			return err
		}
		fields := groupFields()
		r := &result{kind: "groups", item: "group", grid: grid{columns: columnsOf(fields)}}
		for _, g := range groups {
			r.names = append(r.names, g.name)
		}
		addItems(r, fields, groups...)
		return r.print(o.out, f)
	})
	return c
}

func (o *observer) lsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "Lists the shards of the group", Args: arguments,
		Long: `Lists the shards of the group: the state, the owner, the generation, the failed attempts, how long the
shard has been in its state, and how long ago its last checkpoint was accepted. An age with ~ is told by
the clock of another machine; the format wide shows more columns and shortens no name.`,
		Example: "  shardlease ls\n  shardlease ls --state free,quarantined -o name\n  shardlease ls --worker host-1 -o json\n  shardlease ls --attempts 1 --sort attempts",
	}
	f := formatFlag(c, allFormats()...)
	positions := positionsFlag(c)
	states := c.Flags().StringSlice("state", nil, "only shards in these `STATES`, separated by commas: "+stateNames())
	worker := c.Flags().String("worker", "", "only shards that the workers named `WORKER` hold")
	pick := newPick(c)
	o.completeFlag(c, "task", taskNames)
	o.completeFlag(c, "sort", func(*inspect.Snapshot) []string { return slices.Sorted(maps.Keys(sortOrders())) })
	o.completeFlag(c, "state", func(*inspect.Snapshot) []string { return strings.Split(stateNames(), ", ") })
	o.completeFlag(c, "worker", workerNames)
	c.RunE = do(func(ctx context.Context, _ []string) error {
		for _, state := range *states {
			if !slices.Contains(inspect.States(), inspect.State(state)) {
				return usage("unknown --state %q: it must be one of %s", state, stateNames())
			}
		}
		if err := pick.check(); err != nil {
			return err
		}
		s, err := o.look(ctx)
		if err != nil {
			return err
		}
		fields := shardFields(*positions)
		r := &result{kind: "shards", item: "shard", head: scopeOf(s), grid: gridOf(s, columnsOf(fields))}
		for _, of := range pick.from(s) {
			wanted := len(*states) == 0 || slices.Contains(*states, string(of.State))
			if !wanted || *worker != "" && of.Owner.Name != *worker {
				continue
			}
			r.names = append(r.names, of.Name)
			addItems(r, fields, of)
		}
		return o.show(s, r, f)
	})
	return c
}

func stateNames() string {
	var names []string
	for _, state := range inspect.States() {
		names = append(names, string(state))
	}
	return strings.Join(names, ", ")
}

// describeMove returns a move in a few words.
func describeMove(m *inspect.Move) string {
	if m == nil {
		return ""
	}
	text := fmt.Sprintf("%s to %s", m.Phase, m.To.Name)
	if m.Mode.Validate() == nil {
		text += ", " + m.Mode.String()
	}
	if m.Why != 0 {
		text += ", " + m.Why.String()
	}
	if m.For.Known {
		text += ", for " + old(m.For)
	}
	if m.Note != "" {
		text += " (" + m.Note + ")"
	}
	return text
}

func (o *observer) workersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "workers", Short: "Lists the workers of the group", Args: arguments,
		Long: `Lists the seats of the group: how many shards each worker holds, how many the plan assigns to it, how many
are in a move, and how long ago its last heartbeat was. Two workers may have the same name, but never the
same incarnation. With --observe the command watches the heartbeats, and BEATING says whether they move.`,
		Example: "  shardlease workers\n  shardlease workers --observe 12s -o wide",
	}
	f := formatFlag(c, allFormats()...)
	lasts := c.Flags().Duration("observe", 0, "watch the group for so long first")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		s, err := o.observe(ctx, *lasts, -1)
		if err != nil {
			return err
		}
		fields := workerFields()
		r := &result{kind: "workers", item: "worker", head: scopeOf(s), grid: gridOf(s, columnsOf(fields))}
		for i := range s.Workers {
			of := &s.Workers[i]
			r.names = append(r.names, of.Seat.Name)
			addItems(r, fields, of)
		}
		return o.show(s, r, f)
	})
	return c
}

func workerState(w *inspect.Worker) string {
	state := "well"
	switch {
	case w.Dead:
		state = "dead"
	case !w.Seat.Confirmed():
		state = "joining"
	case w.Health != "":
		state = "unwell: " + w.Health
	case w.Leaves:
		state = "leaving"
	}
	switch w.Wish {
	case "":
	case lease.WishCordon:
		state = "cordoned, " + state
	case lease.WishDrain:
		state = "drained, " + state
	default:
		state = "wish " + string(w.Wish) + ", " + state
	}
	return state
}

func limit(n int64) string {
	if n <= 0 {
		return ""
	}
	return number(n)
}

func (o *observer) wishesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "wishes", Short: "Lists the cordons, drains, pauses, pins, moves and raises", Args: arguments,
		Long: `Lists the wishes of all operators: cordons, drains, pauses, pins, moves and raises, with their ends. A
wish that has ended has no effect; a worker removes it soon. 'shardlease lift' ends a wish. If the record of the wishes
cannot be read, the exit code is 1; 'shardlease lift all' deletes that record.`,
		Example: "  shardlease wishes",
	}
	f := formatFlag(c, allFormats()...)
	c.RunE = do(func(ctx context.Context, _ []string) error {
		s, err := o.look(ctx)
		if err != nil {
			return err
		}
		fields := wishFields(o.now())
		r := &result{kind: "wishes", item: "wish", head: scopeOf(s), grid: grid{columns: columnsOf(fields)}}
		for _, w := range s.Wishes {
			r.names = append(r.names, strings.TrimSpace(string(w.Kind)+" "+w.Subject))
		}
		addItems(r, fields, s.Wishes...)
		if err := r.print(o.out, f); err != nil {
			return err
		}
		return wishesFault(s)
	})
	return c
}

// wishesFault returns an error if the record of the wishes cannot be read. Unreadable records of other kinds do
// not concern the command.
func wishesFault(s *inspect.Snapshot) error {
	for _, u := range s.Unreadable {
		if u.Key.Kind == lease.KindWishes {
			return fmt.Errorf("the wishes cannot be read: %w", u.Cause)
		}
	}
	return nil
}

// transfers returns the changes of hands that a row remembers, newest first. The one that ended the tenure of the last error
// has this error as its note.
func transfers(row lease.Row) []lease.Transfer {
	list := append([]lease.Transfer{row.Last}, row.History()...)
	for i := range list {
		list[i] = row.Noted(list[i])
	}
	return list
}
