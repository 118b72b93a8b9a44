package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (o *observer) getCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get SHARD", Short: "Shows one shard with its parents", Args: arguments,
		Long: `Shows the row of one shard, its move, its parents, and what is wrong with it. The row is read consistently.
Of a lease by name it also shows which sessions wait for it, and for how long.
The generation is what the commands that change the shard need.`,
		Example:           "  shardlease get shard-7\n  shardlease get shard-7 -o json --positions",
		ValidArgsFunction: o.completeArgs(shardNames),
	}
	f := formatFlag(c, allFormats()...)
	positions := positionsFlag(c)
	c.RunE = do(func(ctx context.Context, args []string) error {
		s, of, err := o.lookAt(ctx, args[0])
		if err != nil {
			return err
		}
		warnings := warningsAbout(s.Warnings(), of.Name)
		view := slices.Concat(objectOf(detailFields(), s), objectOf(shardFields(*positions), of))
		if w := ordered(s, of); w != nil {
			view = append(view, entry{"ordered", objectOf(wishFields(s.At), *w)})
		}
		if len(warnings) > 0 {
			view = append(view, entry{"warnings", warningsOf(warnings)})
		}
		r := &result{kind: "shard", head: view, names: []string{of.Name}, grid: detail(s, of, warnings, *positions)}
		if err := r.print(o.out, f); err != nil {
			return err
		}
		_ = o.tell(s) // the shard itself can be read
		return nil
	})
	return c
}

// detailFields are the fields of get before those of the shard. Only JSON has them.
func detailFields() []field[*inspect.Snapshot] {
	type of = *inspect.Snapshot
	return []field[of]{
		{json: "group", value: func(s of) any { return s.Group }},
		{json: "sessions,omitempty", value: func(s of) any { return s.Sessions }},
		{json: "at", value: func(s of) any { return s.At }},
	}
}

// warningsAbout returns the warnings about one shard or worker.
func warningsAbout(all []inspect.Warning, subject string) (list []inspect.Warning) {
	for _, w := range all {
		if w.Subject == subject || slices.Contains(w.Subjects, subject) {
			list = append(list, w)
		}
	}
	return list
}

// field adds a line to the foot of the table: the name of a field, and its value.
func (g *grid) field(name, format string, args ...any) {
	g.foot = append(g.foot, fmt.Sprintf("%-*s ", fieldColumns, name)+fmt.Sprintf(format, args...))
}

// fieldColumns is the width of the name of a field.
const fieldColumns = 12

// detail returns a shard as lines, in which nothing is shortened.
func detail(s *inspect.Snapshot, of *inspect.Shard, warnings []inspect.Warning, positions bool) grid {
	var g grid
	add := g.field
	row := of.Row
	words := wordsOf(s)
	if s.Sessions {
		add("group kind", "sessions")
	}
	add(words.shard, "%s", of.Name)
	state := string(of.State)
	if of.Since.Known {
		state += " for " + old(of.Since)
	}
	if len(of.Blockers) > 0 {
		state += ", waits for " + strings.Join(of.Blockers, ", ")
	}
	add("state", "%s", state)
	if !of.Owner.IsZero() {
		add(words.owner, "%s", describeOwner(of.Owner))
	}
	if !of.Target.IsZero() && of.Target != of.Owner {
		add("target", "%s", describeOwner(of.Target))
	}
	if r := row.Reserved; r.For != "" {
		add("reserved", "for %s, until %s after the last change", r.For, span(r.Delay+r.Lasts))
	}
	if delay := row.Reserved.Delay; delay > 0 {
		add("lock delay", "%s from when a session first sees the last change", span(delay))
	}
	if of.Move != nil {
		add("move", "%s", describeMove(of.Move))
	}
	if w := ordered(s, of); w != nil {
		add("ordered", "%s", describeOrder(w))
	}
	addWaiters(&g, s, of)
	add("generation", "%d", row.Generation)
	if !s.Sessions || of.Attempts > 0 {
		add("attempts", "%d failed since the last progress", of.Attempts)
	}
	if text, generation := row.LastError(); text != "" && (of.LastFailure == nil || of.LastFailure.Note != text) { // otherwise below
		add("last error", "%s (under generation %d)", text, generation)
	}
	add("checkpoint", "%s", describeCheckpoint(of, positions))
	for _, parent := range row.Parents {
		state := "no row"
		if other := s.Shard(parent); other != nil {
			state = string(other.State)
		}
		add("parent", "%s, %s", parent, state)
	}
	add("last change", "%s", describeTransfer(row.Noted(row.Last)))
	if of.LastFailure != nil && of.LastFailure.Generation != row.Last.Generation {
		add("last failure", "%s", describeTransfer(*of.LastFailure))
	}
	add("size", "%d bytes", of.Size)
	for _, w := range warnings {
		add("warning", "%s: %s %s", w.Code, w.Text, w.Do)
	}
	return g
}

// describeOrder returns where, by whom, until when and why an operator moves a shard.
func describeOrder(w *lease.Wish) string {
	text := fmt.Sprintf("move to %s by %s", w.To, w.By)
	if !w.Until.IsZero() {
		text += ", until " + moment(w.Until)
	}
	if w.Why != "" {
		text += " (" + w.Why + ")"
	}
	return text
}

func describeOwner(o lease.Owner) string {
	text := fmt.Sprintf("%s, incarnation %s", o.Name, o.Incarnation)
	if o.Task != "" {
		text += ", task " + o.Task
	}
	return text
}

func describeCheckpoint(of *inspect.Shard, positions bool) string {
	c := of.Row.Checkpoint
	switch {
	case c.Generation == 0:
		return "none"
	case c.IsZero():
		return fmt.Sprintf("progress without a position %s ago, under generation %d", old(of.Checkpoint), c.Generation)
	case positions:
		return fmt.Sprintf("%s, state %s, accepted %s ago under generation %d", strconv.Quote(c.Position), strconv.Quote(c.State), old(of.Checkpoint), c.Generation)
	}
	return fmt.Sprintf("accepted %s ago under generation %d", old(of.Checkpoint), c.Generation)
}

// reason returns why a shard changed hands, and what a command did or which mode and cause the move had. For a claim,
// it returns why the shard was free.
func reason(t lease.Transfer) string {
	switch {
	case t.Created():
		return string(t.Reason) + ": created"
	case t.Claimed():
		return "claimed after " + string(t.Reason)
	case t.Did != "" && t.Did != string(t.Reason):
		return string(t.Reason) + ": " + t.Did
	case t.Mode.Validate() == nil && t.Why != 0:
		return string(t.Reason) + ": " + t.Mode.String() + ", " + t.Why.String()
	case t.Mode.Validate() == nil:
		return string(t.Reason) + ": " + t.Mode.String()
	}
	return string(t.Reason)
}

func describeTransfer(t lease.Transfer) string {
	text := fmt.Sprintf("%s at %s", reason(t), moment(t.At))
	if t.From != "" {
		text += " from " + t.From
	}
	if t.By != "" {
		text += " by " + t.By
	}
	if t.Note != "" {
		text += " (" + t.Note + ")"
	}
	return text + ", began generation " + number(t.Generation)
}

func (o *observer) historyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "history [SHARD]", Short: "Lists the last changes of hands, newest first", Args: arguments,
		Long: `Lists the changes of hands that the rows remember, newest first: of one shard, or of all shards. A row keeps
the last few changes. "initial: created" is the creation of the row, and "claimed after initial" its first claim.
"claimed after forced" is the claim of a shard that a command had freed before. With
--count the command prints how many tenures of the group have ended, by reason: of the last 90 days, or since
--since, in whole hours. The workers store these counts, also those of removed shards.`,
		Example:           "  shardlease history shard-7\n  shardlease history --since 1h\n  shardlease history --count --since 48h",
		ValidArgsFunction: o.completeArgs(shardNames),
	}
	f := formatFlag(c, allFormats()...)
	since := c.Flags().Duration("since", 0, "only changes in the last so long; 0: all")
	count := c.Flags().Bool("count", false, "count how tenures ended, by reason")
	c.RunE = do(func(ctx context.Context, args []string) error {
		if *count {
			return o.tally(ctx, args, *since, f)
		}
		var s *inspect.Snapshot
		var err error
		if len(args) == 1 {
			s, _, err = o.lookAt(ctx, args[0])
		} else {
			s, err = o.look(ctx)
		}
		if err != nil {
			return err
		}
		only := strings.Join(args, "")
		past := pastOf(s, only, o.since(*since))
		slices.Reverse(past)
		r := &result{kind: "transfers", item: "transfer", head: scopeOf(s), grid: gridOf(s, columnsOf(transferFields()))}
		for _, t := range past {
			r.names = append(r.names, t.shard)
		}
		addItems(r, transferFields(), past...)
		if only != "" { // an unreadable parent is not the shard that was asked for
			return r.print(o.out, f)
		}
		return o.show(s, r, f)
	})
	return c
}

// endsKept is for how long a table keeps the counts of ends.
const endsKept = 90 * 24 * time.Hour

// tally prints how the tenures of the group have ended.
func (o *observer) tally(ctx context.Context, args []string, since time.Duration, f *format) error {
	if len(args) > 0 {
		return usage("--count counts the tenures of all shards together: it takes no SHARD")
	}
	s, err := o.lookBack(ctx, cmp.Or(max(since, 0), endsKept))
	switch {
	case err != nil:
		return err
	case s.Uncounted != nil:
		return fmt.Errorf("the counts of ends cannot be read: %w", s.Uncounted)
	}
	r := &result{kind: "tallies", item: "tally", head: scopeOf(s), grid: gridOf(s, columnsOf(tallyFields()))}
	tallies := s.Tallies()
	for _, t := range tallies {
		r.names = append(r.names, string(t.Reason))
	}
	addItems(r, tallyFields(), tallies...)
	return o.show(s, r, f)
}

// A pastTransfer is a change of hands of a shard.
type pastTransfer struct {
	shard string
	lease.Transfer
}

// pastOf returns the changes of hands that the rows remember, oldest first: of one shard, or of all.
func pastOf(s *inspect.Snapshot, only string, since time.Time) (past []pastTransfer) {
	for i := range s.Shards {
		for _, t := range transfers(s.Shards[i].Row) {
			if (only == "" || only == s.Shards[i].Name) && !t.At.Before(since) {
				past = append(past, pastTransfer{s.Shards[i].Name, t})
			}
		}
	}
	slices.SortFunc(past, func(a, b pastTransfer) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.shard, b.shard), cmp.Compare(a.Generation, b.Generation))
	})
	return past
}
