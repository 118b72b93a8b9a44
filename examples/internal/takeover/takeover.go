// Package takeover plays what a fence is for, so that an example of a sink need show
// nothing but its sink: worker a is paused in the middle of a write, b takes its shard
// over, and a wakes up and goes on.
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
	// Shard is the one there is.
	Shard = "shard-0"
	// Records is how many records it has, numbered from 1.
	Records = 4

	ttl = time.Second // the default is 10 s; this is to be short
	hit = 3           // the record in whose write a is paused
)

// A Write has the effect of one record. It calls pause where a pause would hurt most.
// There a is held up in the write of one record, and nobody is in any other; pause
// reports whether it was.
//
// The context does not end with the tenure. A process that wakes up may do anything
// before its contexts end, and a fence must not rest on them.
type Write func(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error

var errSilence = errors.New("nothing has happened for too long")

// A play is a story while it is told.
type play struct {
	store lease.Store
	write Write
	out   *log.Logger

	paused chan *member  // who it was
	wake   chan struct{} // closed when it may go on
	late   chan error    // what came of its write
	done   chan struct{} // told when everything is written
}

// A member is a worker of the story.
type member struct {
	name string
	link *storetest.Link
	stop context.CancelFunc
	gone chan error
}

// Play tells the story. It returns what the write of a came to, when a had been
// replaced and woken up, and what went wrong with the story itself.
func Play(ctx context.Context, store lease.Store, out io.Writer, write Write) (late, err error) {
	p := &play{
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
			err = errors.Join(err, <-m.gone)
		}
	}()
	for _, name := range []string{"a", "b"} {
		m, err := p.join(ctx, name)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
		if err := p.scene(ctx, name); err != nil {
			return nil, err
		}
	}
	p.out.Println("a wakes up, and cannot know that")
	wakeUp()
	return <-p.late, nil
}

// join starts a worker.
func (p *play) join(ctx context.Context, name string) (*member, error) {
	m := &member{name: name, link: storetest.NewLink(p.store), gone: make(chan error, 1)}
	w, err := shardlease.New(m.link, shardlease.Static(Shard), shardlease.Config{
		Group: Group, Name: name, TTL: ttl, Handoff: rebalance.Eager, Drain: ttl,
	})
	if err != nil {
		return nil, err
	}
	ctx, m.stop = context.WithCancel(ctx)
	go func() { m.gone <- w.Run(ctx, p.handler(m)) }()
	return m, nil
}

// scene waits until a is paused, or until b has written everything.
func (p *play) scene(ctx context.Context, name string) error {
	done := p.done
	if name == "a" {
		done = nil
	}
	select {
	case m := <-p.paused:
		m.link.Silence()
		p.out.Printf("%s is paused in its write of record %d; nobody hears its heart beat", m.name, hit)
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// handler processes the records of the shard from where it was left.
func (p *play) handler(m *member) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		p.out.Printf("%s holds %s, generation %d", m.name, Shard, t.Generation())
		before, err := strconv.Atoi(cmp.Or(t.Checkpoint().Position, "0"))
		if err != nil {
			return err
		}
		for record := before + 1; record <= Records; record++ {
			paused := false
			err := p.write(context.WithoutCancel(ctx), t, record, func() bool {
				if paused = m.name == "a" && record == hit; paused {
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
		default: // told before
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
