// Leader elects a leader with a group that has one shard: the worker that holds the shard is
// the leader. The generation of the shard is the leader's fencing token; it grows with every
// change of the leader.
//
//	go run ./examples/leader
//
// There are two candidates. The leader steps down, and the other candidate leads at once,
// because nothing has to expire. Then the new leader is cut off from the lease table. It stops
// leading by its own clock, before its lease expires for the others. The first candidate leads
// again, and a late write of the old leader is refused because of its token.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

const ttl = time.Second // short for this example; the default is 10 s

// A candidate is a worker that leads while it holds the only shard.
type candidate struct {
	name    string
	link    *storetest.Link
	reports chan<- report
	stop    context.CancelFunc
	done    chan error
}

// A report is sent by a candidate when it begins to lead, and when it stops.
type report struct {
	from  *candidate
	token int64
	ended *shardlease.EndError // why it stopped; nil if it began
}

func newCandidate(ctx context.Context, name string, store lease.Store, reports chan<- report) (*candidate, error) {
	c := &candidate{name: name, link: storetest.NewLink(store), reports: reports, done: make(chan error, 1)}
	w, err := shardlease.New(c.link, shardlease.Static("leader"), shardlease.Config{
		Group: "cluster-1", Name: name, TTL: ttl,
		Handoff: rebalance.Eager, // no leader for a moment is better than two
		Drain:   ttl,
	})
	if err != nil {
		return nil, err
	}
	ctx, c.stop = context.WithCancel(ctx)
	go func() { c.done <- w.Run(ctx, c.lead) }()
	return c, nil
}

// lead is the handler: it runs while this candidate is the leader.
func (c *candidate) lead(ctx context.Context, t *shardlease.Tenure) error {
	c.reports <- report{from: c, token: t.Generation()}
	<-ctx.Done() // a real leader would work until then, and pass its token to each sink
	end, _ := errors.AsType[*shardlease.EndError](context.Cause(ctx))
	c.reports <- report{from: c, token: t.Generation(), ended: end}
	return nil
}

// A register is the sink of the leaders. It stores the highest token so far and refuses lower
// ones, in the same step as the write, because a leader that was replaced may not know it.
type register struct{ highest int64 }

func (r *register) write(token int64) error {
	if token < r.highest {
		return fmt.Errorf("token %d is too old: a later leader has token %d", token, r.highest)
	}
	r.highest = token
	return nil
}

// An election is the state of this example.
type election struct {
	out      io.Writer
	store    memstore.Store
	reports  chan report
	running  []*candidate
	register register
}

func run(ctx context.Context, out io.Writer) error {
	e := &election{out: out, reports: make(chan report, 16)}
	err := e.steps(ctx)
	for _, c := range e.running {
		c.stop()
	}
	for _, c := range e.running {
		err = errors.Join(err, <-c.done)
	}
	return err
}

func (e *election) steps(ctx context.Context) error {
	one, err := e.add(ctx, "one")
	if err != nil {
		return err
	}
	if _, err := e.leader(ctx, "after it was started"); err != nil {
		return err
	}
	if _, err := e.add(ctx, "two"); err != nil {
		return err
	}
	fmt.Fprintln(e.out, "two is a candidate too, and waits; one steps down")
	one.stop() // this ends its context, as SIGTERM does in a program
	two, err := e.leader(ctx, "later: nothing had to expire")
	if err != nil {
		return err
	}
	if _, err := e.add(ctx, "one"); err != nil {
		return err
	}
	fmt.Fprintln(e.out, "one is a candidate again; two is cut off from the lease table")
	two.from.link.Silence()
	if _, err := e.leader(ctx, fmt.Sprintf("later: the lease time is %v", ttl)); err != nil {
		return err
	}
	return e.late(two)
}

// add starts a candidate.
func (e *election) add(ctx context.Context, name string) (*candidate, error) {
	c, err := newCandidate(ctx, name, &e.store, e.reports)
	if err == nil {
		e.running = append(e.running, c)
	}
	return c, err
}

// leader waits for the next candidate that begins to lead.
func (e *election) leader(ctx context.Context, when string) (report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*ttl, errors.New("no candidate leads"))
	defer cancel()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return report{}, context.Cause(ctx)
		case n := <-e.reports:
			took := time.Since(began).Round(time.Millisecond)
			if n.ended == nil {
				fmt.Fprintf(e.out, "  %s leads, with token %d, %v %s\n", n.from.name, n.token, took, when)
				return n, e.register.write(n.token)
			}
			fmt.Fprintf(e.out, "  %s stops leading after %v. Cause: %v\n", n.from.name, took, n.ended.Cause.Error())
		}
	}
}

// late makes a write of an earlier leader arrive late.
func (e *election) late(old report) error {
	err := e.register.write(old.token)
	if err == nil {
		return fmt.Errorf("a late write of %s was not refused", old.from.name)
	}
	fmt.Fprintf(e.out, "a late write of %s is refused: %v\n", old.from.name, err)
	return nil
}
