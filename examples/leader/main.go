// Leader elects a leader: a group with one shard, and whoever holds it leads. Its
// generation is the fencing token of the leader, and grows with every change.
//
//	go run ./examples/leader
//
// Two candidates. The one that leads steps down, and the other takes over without
// waiting for anything to expire. Then that one is cut off from the lease table: it
// stops leading by its own clock before its lease has run out for the others; the
// first leads again, and what the old one still sends is refused by its token.
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

const ttl = time.Second // the default is 10 s; this is to be short

// A candidate is a worker that leads while it holds the one shard there is.
type candidate struct {
	name string
	link *storetest.Link
	news chan<- news
	stop context.CancelFunc
	gone chan error
}

// News is what a candidate tells: that it leads, or that it does no more, and why.
type news struct {
	from  *candidate
	token int64
	ended *shardlease.EndError // nil: it has begun to lead
}

func stand(ctx context.Context, name string, store lease.Store, tell chan<- news) (*candidate, error) {
	c := &candidate{name: name, link: storetest.NewLink(store), news: tell, gone: make(chan error, 1)}
	w, err := shardlease.New(c.link, shardlease.Static("leader"), shardlease.Config{
		Group: "cluster-1", Name: name, TTL: ttl,
		Handoff: rebalance.Eager, // better nobody leads for a moment than two
		Drain:   ttl,
	})
	if err != nil {
		return nil, err
	}
	ctx, c.stop = context.WithCancel(ctx)
	go func() { c.gone <- w.Run(ctx, c.lead) }()
	return c, nil
}

// lead is called when this candidate has become the leader.
func (c *candidate) lead(ctx context.Context, t *shardlease.Tenure) error {
	c.news <- news{from: c, token: t.Generation()}
	<-ctx.Done() // a real leader would do its work until then, and pass its token on
	end, _ := errors.AsType[*shardlease.EndError](context.Cause(ctx))
	c.news <- news{from: c, token: t.Generation(), ended: end}
	return nil
}

// A register is what leaders write to. It knows the highest token it has seen and
// refuses lower ones, in the same step as the write: a leader that was replaced may
// not know it.
type register struct{ highest int64 }

func (r *register) write(token int64) error {
	if token < r.highest {
		return fmt.Errorf("token %d is too old: there is a leader with %d", token, r.highest)
	}
	r.highest = token
	return nil
}

// An election is the story of this example.
type election struct {
	out      io.Writer
	store    memstore.Store
	news     chan news
	running  []*candidate
	register register
}

func run(ctx context.Context, out io.Writer) error {
	e := &election{out: out, news: make(chan news, 16)}
	err := e.hold(ctx)
	for _, c := range e.running {
		c.stop()
	}
	for _, c := range e.running {
		err = errors.Join(err, <-c.gone)
	}
	return err
}

func (e *election) hold(ctx context.Context) error {
	one, err := e.stand(ctx, "one")
	if err != nil {
		return err
	}
	if _, err := e.leader(ctx, "after it was started"); err != nil {
		return err
	}
	if _, err := e.stand(ctx, "two"); err != nil {
		return err
	}
	fmt.Fprintln(e.out, "two is a candidate, too, and waits; one steps down")
	one.stop() // its context ends, as that of a program that is told to stop
	two, err := e.leader(ctx, "later: nothing had to expire")
	if err != nil {
		return err
	}
	if _, err := e.stand(ctx, "one"); err != nil {
		return err
	}
	fmt.Fprintln(e.out, "one is a candidate again; two is cut off from the lease table")
	two.from.link.Silence()
	if _, err := e.leader(ctx, fmt.Sprintf("later: a lease lasts %v", ttl)); err != nil {
		return err
	}
	return e.late(two)
}

// stand adds a candidate.
func (e *election) stand(ctx context.Context, name string) (*candidate, error) {
	c, err := stand(ctx, name, &e.store, e.news)
	if err == nil {
		e.running = append(e.running, c)
	}
	return c, err
}

// leader waits for the next one to lead.
func (e *election) leader(ctx context.Context, when string) (news, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*ttl, errors.New("nobody leads"))
	defer cancel()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return news{}, context.Cause(ctx)
		case n := <-e.news:
			took := time.Since(began).Round(time.Millisecond)
			if n.ended == nil {
				fmt.Fprintf(e.out, "  %s leads, with token %d, %v %s\n", n.from.name, n.token, took, when)
				return n, e.register.write(n.token)
			}
			fmt.Fprintf(e.out, "  %s stops leading after %v. Cause: %v\n", n.from.name, took, n.ended.Cause.Error())
		}
	}
}

// late lets a write of an earlier leader arrive.
func (e *election) late(old news) error {
	err := e.register.write(old.token)
	if err == nil {
		return fmt.Errorf("a late write of %s was not refused", old.from.name)
	}
	fmt.Fprintf(e.out, "a late write of %s is refused: %v\n", old.from.name, err)
	return nil
}
