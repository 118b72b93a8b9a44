package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	perRecord  = 50 * time.Millisecond  // how often a shard gets a record
	perCommit  = 200 * time.Millisecond // how long a mark waits to be written
	namePrefix = "shard-"               // and the number
)

// A fleet is what runs: workers that share the shards of one stream.
type fleet struct {
	store  lease.Store
	group  string
	mode   rebalance.Mode
	ttl    time.Duration
	shards []string
	stream *stream
	sink   sink
	probe  *probe

	observe func(*member, event.Event) // what a worker tells
	refused func(*member, error)       // what the sink refuses

	mu      sync.Mutex
	members []*member
}

func newFleet(store lease.Store, group string, mode rebalance.Mode, shards int, ttl time.Duration) *fleet {
	f := &fleet{
		store: store, group: group, mode: mode, ttl: ttl, stream: newStream(perRecord), probe: newProbe(),
		observe: func(*member, event.Event) {}, refused: func(*member, error) {},
	}
	for i := range shards {
		f.shards = append(f.shards, fmt.Sprintf("%s%02d", namePrefix, i))
	}
	return f
}

// join runs one more worker.
func (f *fleet) join(ctx context.Context, name string) (*member, error) {
	m := &member{name: name, fleet: f, host: newHost(f.store), gone: make(chan struct{})}
	w, err := shardlease.New(m.host, shardlease.Static(f.shards...), shardlease.Config{
		Group: f.group, Name: name, Handoff: f.mode,
		TTL: f.ttl, Drain: f.ttl, MoveCooldown: -1, // let shards move as soon as the story does
		Commit:  checkpoint.Policy{Every: perCommit},
		Order:   checkpoint.Decimal,
		Observe: func(e event.Event) { f.observe(m, e) },
	})
	if err != nil {
		return nil, err
	}
	ctx, m.stop = context.WithCancel(ctx)
	f.mu.Lock()
	f.members = append(f.members, m)
	f.mu.Unlock()
	go func() {
		defer close(m.gone)
		m.err = w.Run(ctx, m.process)
	}()
	return m, nil
}

// all gives the members, in the order in which they joined.
func (f *fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members)
}

// rows is what the table says.
func (f *fleet) rows(ctx context.Context) ([]lease.Row, error) {
	return shardlease.Supervisor{Store: f.store, Group: f.group}.List(ctx)
}

// even waits until all shards are processed, each by one worker, and no worker has
// two more than another.
func (f *fleet) even(ctx context.Context, among ...*member) error {
	return f.probe.until(ctx, "even", func(s serving) bool {
		least, most, sum := len(f.shards), 0, 0
		for _, m := range among {
			n := s.by[m.name]
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		return s.some == len(f.shards) && s.twice == 0 && sum == len(f.shards) && most-least <= 1
	})
}

// served waits until every shard is processed by somebody, and each by one.
func (f *fleet) served(ctx context.Context) error {
	return f.probe.until(ctx, "served", func(s serving) bool { return s.some == len(f.shards) && s.twice == 0 })
}

// close ends everything: the living stop, the dead are buried, and so are those that
// are about to fall asleep.
func (f *fleet) close() {
	for _, m := range f.all() {
		if state, _ := m.host.now(); state != up {
			m.host.enter(buried)
		}
		m.stop()
	}
	for _, m := range f.all() {
		<-m.gone
	}
}

// number is the shard's number in the stream.
func number(shard string) int {
	n, _ := strconv.Atoi(shard[len(namePrefix):])
	return n
}
