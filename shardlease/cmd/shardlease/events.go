package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (o *observer) eventsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "events", Short: "Lists what has happened in the group, and follows what happens", Args: arguments,
		Long: `Lists the changes of hands that the rows remember, oldest first. With --follow it then watches the group and
prints what changes, until it is interrupted: changes of hands, moves, workers that join and leave, plans,
wishes. A change of hands that it has missed is recovered from the row's history. Lines are in order of time, as
far as the clocks of the workers agree, and come a few seconds late for it. Watching costs about as much as one
more worker.`,
		Example: "  shardlease events --since 1h\n  shardlease events --follow\n  shardlease events --follow -o jsonl",
	}
	f := formatFlag(c, asTable, asWide, asJSON, asLines, asYAML, asNames)
	follow := c.Flags().BoolP("follow", "f", false, "watch the group until the command is interrupted")
	since := c.Flags().Duration("since", 0, "only changes in the last so long; 0: all, and with --follow none")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if *follow && f.name != asTable && f.name != asWide && f.name != asLines {
			return usage("--follow prints lines: use -o table, wide or jsonl")
		}
		if *follow {
			return o.follow(ctx, *since, f)
		}
		s, err := o.look(ctx)
		if err != nil {
			return err
		}
		r := &result{kind: "events", item: "event", head: scopeOf(s), grid: grid{columns: columnsOf(eventFields())}}
		past := pastEvents(s, o.since(*since))
		for _, e := range past {
			r.names = append(r.names, e.Subject)
		}
		addItems(r, eventFields(), past...)
		return o.show(s, r, f)
	})
	return c
}

func eventFields() []field[occurrence] {
	type of = occurrence
	return []field[of]{
		{title: "TIME", json: "at", value: func(e of) any { return e.At }},
		{title: "KIND", json: "event", value: func(e of) any { return e.Kind }},
		{title: "SUBJECT", json: "subject,omitempty", value: func(e of) any { return e.Subject }},
		{title: "~=TEXT", json: "text", value: func(e of) any { return e.Text }},
		{json: "transfer", value: func(e of) any {
			if e.Transfer == nil {
				return nil
			}
			return transferOf(*e.Transfer)
		}},
	}
}

// An occurrence is something that happened at one time.
type occurrence struct {
	At            time.Time
	Kind, Subject string
	Text          string
	Transfer      *lease.Transfer
}

// pastEvents returns the changes of hands that the rows remember, oldest first.
func pastEvents(s *inspect.Snapshot, since time.Time) (past []occurrence) {
	for _, t := range pastOf(s, "", since) {
		past = append(past, occurrence{t.At, string(inspect.ChangeTransfer), t.shard, t.String(), &t.Transfer})
	}
	return past
}

// follow prints what changes until ctx ends, which is no error.
func (o *observer) follow(ctx context.Context, since time.Duration, f *format) error {
	from, err := o.open(ctx)
	if err != nil {
		return err
	}
	var last *inspect.Snapshot
	var waiting queue
	var failing error
	for s, err := range inspect.Watch(ctx, from, o.at.group, o.watching(0, -1)) {
		switch {
		case ctx.Err() != nil:
			return printEvents(o.out, waiting.all(), f)
		case err != nil && last == nil:
			return err
		}
		var list []occurrence
		if err != nil {
			list = waiting.all() // the next look may be long in coming
		} else {
			waiting.add(o.newEvents(last, s, since), s.At)
			list, last = waiting.take(s.RowsAt), s
		}
		if err := printEvents(o.out, list, f); err != nil {
			return err
		}
		o.tellFailing(&failing, err)
	}
	return printEvents(o.out, waiting.all(), f)
}

// tellFailing reports on the standard error when looks begin to fail, when they fail for another reason, and when they succeed
// again. The error of the look before is in last.
func (o *observer) tellFailing(last *error, err error) {
	missing := func(err error) bool { return errors.Is(err, lease.ErrNotFound) }
	begin, end := "the table does not answer: ", "the table answers again"
	if missing(cmp.Or(err, *last)) {
		begin, end = "", "the group exists now"
	}
	switch {
	case err != nil && (*last == nil || missing(err) != missing(*last)):
		fmt.Fprintln(o.problems, "shardlease: "+begin+clean(err.Error()))
	case err == nil && *last != nil:
		fmt.Fprintln(o.problems, "shardlease: "+end)
	}
	*last = err
}

// newEvents returns what has changed since the last snapshot; after the first one, what happened in
// the time before.
func (o *observer) newEvents(last, s *inspect.Snapshot, since time.Duration) []occurrence {
	if last == nil {
		if since <= 0 {
			return nil
		}
		return pastEvents(s, o.since(since))
	}
	return changes(last, s)
}

// changes returns what has changed between two snapshots, by time.
func changes(last, s *inspect.Snapshot) (list []occurrence) {
	for _, change := range inspect.Diff(last, s) {
		list = append(list, occurrence{change.At, string(change.Kind), change.Subject, change.Text, change.Transfer})
	}
	return list
}

// printEvents prints a line for each event.
func printEvents(out io.Writer, list []occurrence, f *format) error {
	for _, e := range list {
		if f.name == asLines {
			if err := writeLine(out, "event", objectOf(eventFields(), e)); err != nil {
				return err
			}
			continue
		}
		subject := clean(e.Subject)
		if f.name == asTable {
			subject = cut(subject, mostColumns)
		}
		if _, err := fmt.Fprintf(out, "%s  %-10s  %s  %s\n", moment(e.At), clean(e.Kind), subject, clean(e.Text)); err != nil {
			return err
		}
	}
	return nil
}
