package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A reader reads the group that the flags name.
type reader struct {
	at     *place // the flags --table and --group
	tables tables
	env    environment // sets the flags before a completion
	now    func() time.Time
}

// open opens the group.
func (r *reader) open(ctx context.Context) (inspect.Lister, error) {
	if err := r.at.needsGroup(); err != nil {
		return nil, err
	}
	return r.tables.Reader(ctx, *r.at)
}

// look reads the whole group, without the counts of ends.
func (r *reader) look(ctx context.Context) (*inspect.Snapshot, error) { return r.lookBack(ctx, -1) }

// lookBack reads the whole group, and the counts of ends as far back as span.
func (r *reader) lookBack(ctx context.Context, span time.Duration) (*inspect.Snapshot, error) {
	from, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	s, err := inspect.Look(ctx, from, r.at.group, inspect.Options{Now: r.now, Ends: span})
	if err != nil {
		return nil, err
	}
	return r.existing(s)
}

// existing returns the snapshot, or an error if the group has no record at all. Then the name is mistyped, or no worker
// of the group has ever started. An empty list would look as if all were well.
func (r *reader) existing(s *inspect.Snapshot) (*inspect.Snapshot, error) {
	if s.Plan == nil && !s.Sessions && !s.Restored && len(s.Shards)+len(s.Workers)+len(s.Wishes)+len(s.Unreadable)+len(s.Ends) == 0 {
		return nil, missing("no such group %s: it has no record in table %s; 'shardlease groups' lists the groups", quoted(r.at.group), quoted(r.at.table))
	}
	return s, nil
}

// observe looks at the group again and again, and returns the last snapshot, whose ages are observed. The time lasts
// counts from the end of the first look to the last look. The first look itself does not count: it opens the table and
// lists all rows, which can take a second or more, and in that time nobody can see that a heartbeat stands still. The
// last look may take as long as its requests, each of which has a time limit of its own. The counts of ends are read as far
// back as ends; negative: not at all.
func (r *reader) observe(ctx context.Context, lasts, ends time.Duration) (last *inspect.Snapshot, err error) {
	if lasts < 0 {
		return nil, usage("--observe must not be negative")
	}
	if lasts == 0 {
		return r.look(ctx)
	}
	from, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.AfterFunc(lasts, cancel) // ends the watch if the first look gets no answer
	defer end.Stop()
	var began time.Time
	for s, fault := range inspect.Watch(within, from, r.at.group, r.watching(lasts, ends)) {
		switch {
		case fault == nil:
			last, err = s, nil
			if began.IsZero() && end.Stop() {
				began = time.Now()
			}
		case within.Err() == nil:
			last, err = nil, fault
		}
		if !began.IsZero() && time.Since(began) >= lasts {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case last == nil:
		return nil, fmt.Errorf("the table did not answer within %v", lasts)
	}
	return r.existing(last)
}

// watching returns the options of a watch of the given length, which reads the rows a few times.
func (r *reader) watching(lasts, ends time.Duration) inspect.WatchOptions {
	return inspect.WatchOptions{Options: inspect.Options{Now: r.now, Ends: ends}, Every: min(2*time.Second, lasts), RowsEvery: max(2*time.Second, lasts/8)}
}

// lookAt reads one shard, its parents and the seats.
func (r *reader) lookAt(ctx context.Context, shard string) (*inspect.Snapshot, *inspect.Shard, error) {
	if err := r.at.needsGroup(); err != nil {
		return nil, nil, err
	}
	if err := (lease.Key{Group: r.at.group, Kind: lease.KindLease, Name: shard}).Validate(); err != nil {
		return nil, nil, usage("%v", err)
	}
	from, err := r.tables.Reader(ctx, *r.at)
	if err != nil {
		return nil, nil, err
	}
	s, err := inspect.LookAt(ctx, from, r.at.group, shard, inspect.Options{Now: r.now})
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return nil, nil, err
	}
	var of *inspect.Shard
	if err == nil {
		of = s.Shard(shard)
	}
	if of == nil {
		record, _ := from.Get(ctx, lease.Plan{Group: r.at.group}.Key()) // decides only about a word
		plan, _ := record.(lease.Plan)
		return nil, nil, missing("no such %s %s in group %s", wordsOf(&inspect.Snapshot{Sessions: plan.Sessions}).shard, quoted(shard), quoted(r.at.group))
	}
	return s, of, nil
}

// since returns the time that lies so long ago; the zero time for 0.
func (r *reader) since(ago time.Duration) time.Time {
	if ago <= 0 {
		return time.Time{}
	}
	return r.now().Add(-ago)
}
