package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (o *observer) journalCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "journal", Short: "Lists what operators have done, newest first", Args: arguments,
		Long: `Lists what operators and their programs have done to the group in the last 90 days, newest first: commands for
shards and workers, wishes and their ends, adoptions and repairs, each with the author and the reason. An
entry is written after the act. The command warns the person who acts if an entry could not be written, and
then it is missing here.`,
		Example: "  shardlease journal --since 24h\n  shardlease journal -o json",
	}
	f := formatFlag(c, allFormats()...)
	since := c.Flags().Duration("since", 0, "only acts in the last so long; 0: all")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if err := o.at.needsGroup(); err != nil {
			return err
		}
		from, err := o.open(ctx)
		if err != nil {
			return err
		}
		acts, unread := shardlease.Supervisor{Store: readOnly{from}, Group: o.at.group}.Journal(ctx, o.since(*since))
		if unread != nil && !errors.Is(unread, lease.ErrMalformed) {
			return unread
		}
		if len(acts) == 0 { // does the group exist?
			if _, err := o.look(ctx); err != nil {
				return err
			}
		}
		slices.Reverse(acts)
		fields := actFields()
		r := &result{kind: "acts", item: "act", head: scope{Group: o.at.group, At: stamp(o.now())}, grid: grid{columns: columnsOf(fields)}}
		for _, act := range acts {
			r.names = append(r.names, act.Did)
		}
		addItems(r, fields, acts...)
		return errors.Join(r.print(o.out, f), unread)
	})
	return c
}

func actFields() []field[lease.Act] {
	type of = lease.Act
	return []field[of]{
		{title: "TIME", json: "at", value: func(a of) any { return a.At }},
		{title: "ACT", json: "act", value: func(a of) any { return a.Did }},
		{title: "SUBJECT", json: "subject,omitempty", value: func(a of) any { return a.Subject }},
		{title: "TO", json: "to,omitempty", value: func(a of) any { return a.To }},
		{title: "+UNTIL", json: "until,omitempty", value: func(a of) any { return a.Until }},
		{title: "+>GENERATION", json: "generation,omitempty", value: func(a of) any { return unlessZero(big(a.Generation)) }},
		{title: ">ROWS", json: "rows,omitempty", value: func(a of) any { return unlessZero(a.Rows) }},
		{title: "BY", json: "by", value: func(a of) any { return a.By }},
		{title: "~WHY", json: "why,omitempty", value: func(a of) any { return a.Why }},
	}
}

// unlessZero returns a number, or nothing.
func unlessZero[N ~int64](n N) any {
	if n == 0 {
		return nil
	}
	return n
}

// readOnly is a store of which nothing is written.
type readOnly struct{ inspect.Lister }

func (readOnly) Write(context.Context, lease.Write) (lease.Record, error) {
	return nil, errors.New("this command does not write")
}

// record adds an act to the journal that no method of Supervisor has carried out.
func (op *operator) record(ctx context.Context, by string, act lease.Act) {
	s, _, err := op.supervise(ctx, by)
	if err == nil {
		err = s.Record(ctx, act)
	}
	if err != nil {
		op.unjournaled(act, err)
	}
}

// unjournaled reports an act that was carried out and is not in the journal.
func (op *operator) unjournaled(act lease.Act, err error) {
	fmt.Fprintf(op.problems, "shardlease: done, but the journal may lack this %s: %s\n", clean(act.Did), clean(err.Error()))
}

// uncounted reports ended tenures that are not in the counts of the group.
func (op *operator) uncounted(ended int64, err error) {
	fmt.Fprintf(op.problems, "shardlease: done, but the counts of ended tenures may lack %d: %s\n", ended, clean(err.Error()))
}
