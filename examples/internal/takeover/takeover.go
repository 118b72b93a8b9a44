// Package takeover plays the scenario that makes fences necessary, so that an example of a
// sink need only contain its sink: worker a is paused in the middle of a write, worker b claims
// its shard, and then a wakes up and completes its write.
package takeover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strconv"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

const (
	// Group is the group of both workers.
	Group = "sinks"
	// Shard is the only shard.
	Shard = "shard-0"
	// Records is how many records the shard has, numbered from 1.
	Records = 4

	ttl      = time.Second // short for this example; the default is 10 s
	pausedAt = 3           // the record during whose write a is paused
)

// A Write makes the effect of one record. It calls pause at the point where a pause does the
// most harm. pause blocks worker a during one record and no other write; it reports whether
// it has blocked.
//
// The context does not end with the tenure. A process that wakes up may do anything before
// its contexts end, so a fence must not rely on them.
type Write func(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error

var errSilence = errors.New("the scenario does not continue")

// A scenario is the state of a run of Play.
type scenario struct {
	store lease.Store
	write Write
	out   *log.Logger

	paused chan *member  // receives the worker that is paused
	wake   chan struct{} // closed when that worker may continue
	late   chan error    // receives the result of its write
	done   chan struct{} // receives a value when all records are written
}

// A member is a worker of the scenario.
type member struct {
	name  string
	link  *storetest.Link
	stop  context.CancelFunc
	ended chan error
}

// Play plays the scenario and prints its steps. late is the result of the write that a
// completes after it was replaced; err is an error of the scenario itself.
func Play(ctx context.Context, store lease.Store, out io.Writer, write Write) (late, err error) {
	p := &scenario{
		store: store, write: write, out: log.New(out, "", 0),
		paused: make(chan *member, 1), wake: make(chan struct{}), late: make(chan error, 1), done: make(chan struct{}, 1),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 30*ttl, errSilence)
	defer cancel()
	wakeUp := sync.OnceFunc(func() { close(p.wake) })
	var members []*member
	defer func() {
		wakeUp()
		for _, m := range members {
			m.stop()
		}
		for _, m := range members {
			err = errors.Join(err, <-m.ended)
		}
	}()
	for _, name := range []string{"a", "b"} {
		m, err := p.join(ctx, name)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
		if err := p.wait(ctx, name); err != nil {
			return nil, err
		}
	}
	p.out.Println("a wakes up, and cannot know that")
	wakeUp()
	return <-p.late, nil
}

// join starts a worker.
func (p *scenario) join(ctx context.Context, name string) (*member, error) {
	m := &member{name: name, link: storetest.NewLink(p.store), ended: make(chan error, 1)}
	w, err := shardlease.New(m.link, shardlease.Static(Shard), shardlease.Config{
		Group: Group, Name: name, TTL: ttl, Handoff: rebalance.Eager, Drain: ttl,
	})
	if err != nil {
		return nil, err
	}
	ctx, m.stop = context.WithCancel(ctx)
	go func() { m.ended <- w.Run(ctx, p.handler(m)) }()
	return m, nil
}

// scene waits until a is paused, or until b has written everything.
func (p *scenario) wait(ctx context.Context, name string) error {
	done := p.done
	if name == "a" {
		done = nil
	}
	select {
	case m := <-p.paused:
		m.link.Silence()
		p.out.Printf("%s is paused in its write of record %d, and sends no heartbeats", m.name, pausedAt)
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// handler processes the records of the shard, starting at the checkpoint.
func (p *scenario) handler(m *member) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		p.out.Printf("%s holds %s, generation %d", m.name, Shard, t.Generation())
		before, err := strconv.Atoi(cmp.Or(t.Checkpoint().Position, "0"))
		if err != nil {
			return err
		}
		for record := before + 1; record <= Records; record++ {
			paused := false
			err := p.write(context.WithoutCancel(ctx), t, record, func() bool {
				if paused = m.name == "a" && record == pausedAt; paused {
					p.paused <- m
					<-p.wake
				}
				return paused
			})
			p.out.Printf("  %s writes record %d: %s", m.name, record, outcome(err))
			if paused {
				p.late <- err
				return err
			}
			if err := errors.Join(err, t.Commit(t.Context(), strconv.Itoa(record))); err != nil {
				return err
			}
		}
		select {
		case p.done <- struct{}{}:
		default: // done has a value already
		}
		<-ctx.Done()
		return nil
	}
}

func outcome(err error) string {
	if err != nil {
		return fmt.Sprintf("refused: %v", err)
	}
	return "done"
}
