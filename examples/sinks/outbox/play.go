package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A play runs two relays. Something happens to the first one, c, and the second one, d, sends the rest.
type play struct {
	store  lease.Store
	shards []string
	ttl    time.Duration
	raise  []shardlease.Target
	relay  relay
	slow   time.Duration // how long each send of d takes
	mishap
}

// A mishap is what happens to the first relay: at the nth time that it comes to a step, its process is killed or paused.
type mishap struct {
	step   string // one of steps
	nth    int
	paused time.Duration // after this time it wakes up, and cannot know that it was replaced; 0: it was killed
}

// The steps of a relay, in their order: before and after each call that leaves its process.
var steps = []string{"reading", "read", "sending", "sent", "marking", "marked"}

var (
	errKilled = errors.New("the process was killed")
	errNobody = errors.New("the relays do not continue")
)

// run returns when everything is sent, and the first relay has come to its end.
func (p *play) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 24*time.Hour, errNobody)
	defer cancel()
	c := &process{mishap: p.mishap, box: p.relay.box, link: storetest.NewLink(p.store), times: map[string]int{}, hit: make(chan struct{}), wake: make(chan struct{})}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	wake := sync.OnceFunc(func() { close(c.wake) })
	first, err := p.join(ctx, c.link, "c", func(_ context.Context, t *shardlease.Tenure) error {
		return c.relay(p.relay).handle(life, t) // a process that wakes up may do anything before its contexts end
	})
	defer func() { end(); wake(); first() }()
	if err != nil {
		return err
	}
	select {
	case <-c.hit:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	second, err := p.join(ctx, storetest.NewLink(p.store), "d", slowly(p.relay, p.slow).handle)
	defer second()
	if err != nil {
		return err
	}
	if p.paused > 0 {
		sleep(ctx, p.paused)
		wake()
	}
	for left := true; left && err == nil; err = errors.Join(err, context.Cause(ctx)) {
		sleep(ctx, p.relay.idle)
		left, err = p.left(ctx)
	}
	if p.paused > 0 {
		sleep(ctx, time.Minute) // what c still does, it does at once
	}
	return err
}

// left reports whether an effect is not marked as sent.
func (p *play) left(ctx context.Context) (bool, error) {
	for _, shard := range p.shards {
		if effects, err := p.relay.box.unsent(ctx, shard, 1); err != nil || len(effects) > 0 {
			return true, err
		}
	}
	return false, nil
}

// join starts a worker, and returns how to stop it.
func (p *play) join(ctx context.Context, store lease.Store, name string, handle shardlease.Handler) (stop func(), err error) {
	w, err := shardlease.New(store, shardlease.Static(p.shards...), shardlease.Config{
		Group: "relays", Name: name, TTL: p.ttl, Drain: p.ttl, Handoff: rebalance.Eager, Targets: p.raise,
	})
	if err != nil {
		return func() {}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx, handle)
	}()
	return func() { cancel(); <-ended }, nil
}

// A process is the first relay, with its mishap.
type process struct {
	mishap
	box  box
	link *storetest.Link
	hit  chan struct{} // closed when the mishap happens
	wake chan struct{} // closed when the process may continue

	mu    sync.Mutex
	times map[string]int // by step
	dead  bool
}

// at is called at each step.
func (p *process) at(step string) error {
	p.mu.Lock()
	p.times[step]++
	now, dead := step == p.step && p.times[step] == p.nth, p.dead
	p.dead = p.dead || now && p.paused == 0
	p.mu.Unlock()
	if now {
		p.link.Silence()
		close(p.hit)
		<-p.wake
	}
	if dead || now && p.paused == 0 {
		return errKilled
	}
	return nil
}

func (p *process) unsent(ctx context.Context, shard string, most int) (effects []effect, err error) {
	if err = p.at("reading"); err == nil {
		effects, err = p.box.unsent(context.WithoutCancel(ctx), shard, most)
	}
	return effects, errors.Join(err, p.at("read"))
}

func (p *process) sent(ctx context.Context, h lease.Hold, done []effect) (err error) {
	if err = p.at("marking"); err == nil {
		err = p.box.sent(context.WithoutCancel(ctx), h, done)
	}
	return errors.Join(err, p.at("marked"))
}

// relay returns the relay of this process.
func (p *process) relay(r relay) relay {
	r.box = p
	return through(r, func(ctx context.Context, e effect, to target) error {
		err := p.at("sending")
		if err == nil {
			err = to.send(ctx, e)
		}
		err = errors.Join(err, p.at("sent"))
		if errors.Is(err, errKilled) {
			err = errors.Join(err, errRefused) // a dead process does not try again
		}
		return err
	})
}

// slowly returns a relay each of whose sends takes a while.
func slowly(r relay, takes time.Duration) relay {
	return through(r, func(ctx context.Context, e effect, to target) error {
		sleep(ctx, takes)
		return to.send(ctx, e)
	})
}

// through returns a relay that sends in another way.
func through(r relay, send func(ctx context.Context, e effect, to target) error) relay {
	targets := map[string]target{}
	for name, to := range r.targets {
		targets[name] = sender(func(ctx context.Context, e effect) error { return send(ctx, e, to) })
	}
	r.targets = targets
	return r
}

type sender func(ctx context.Context, e effect) error

func (s sender) send(ctx context.Context, e effect) error { return s(ctx, e) }

// Targets are one of each kind.
type targets struct {
	queue  *queue
	mail   *mailer
	stream *stream
}

func newTargets(window time.Duration) targets {
	return targets{&queue{window: window, seen: map[string]time.Time{}}, new(mailer), &stream{last: map[string]int64{}}}
}

func (t targets) all() map[string]target {
	return map[string]target{"queue": t.queue, "mail": t.mail, "stream": t.stream}
}

// A verdict says how what a target has done differs from what was staged.
type verdict struct {
	lost, twice int
	disorder    bool // the first of each effect stand in another order than they were staged
}

// judge compares what was staged for a target with what the target has done.
func judge(staged, done []effect) (v verdict) {
	times, last := map[string]int{}, map[string]int64{}
	for _, e := range done {
		if times[e.id]++; times[e.id] > 1 {
			v.twice++
			continue
		}
		v.disorder = v.disorder || e.sequence < last[e.shard]
		last[e.shard] = e.sequence
	}
	for _, e := range staged {
		if times[e.id] == 0 {
			v.lost++
		}
	}
	return v
}

// only returns the effects for one target.
func only(effects []effect, target string) (of []effect) {
	for _, e := range effects {
		if e.target == target {
			of = append(of, e)
		}
	}
	return of
}
