package endtoend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

var (
	errDead    = errors.New("the process is dead")
	errPassing = errors.New("a failure that will pass")
)

// A member is one process of the fleet. It is killed or frozen by cutting it off from everything: its function, the stream
// and the table.
type member struct {
	*world
	batches bool // it runs RunBatch
	config  kinesis.Config
	link    *storetest.Link
	cancel  context.CancelFunc
	ended   chan struct{}

	mu        sync.Mutex
	dead      bool
	thawed    chan struct{} // nil: it is not frozen
	waiting   []fence.Token // of the calls of the function that were frozen
	consumers []*kinesis.Consumer
}

// enter starts a member.
func (w *world) enter() *member {
	ctx, cancel := context.WithCancel(w.Context())
	m := &member{world: w, batches: len(w.everybody)%2 == 0, config: w.configure(), link: storetest.NewLink(w.store), cancel: cancel, ended: make(chan struct{})}
	m.link.OnWrite(m.write)
	w.members, w.everybody = append(w.members, m), append(w.everybody, m)
	go m.run(ctx)
	return m
}

// run runs consumers until ctx ends: a consumer that cannot begin ends with an error, and is started again.
func (m *member) run(ctx context.Context) {
	defer close(m.ended)
	for {
		c, err := kinesis.New(m.dial(m), m.link, m.config)
		if err != nil {
			m.Error(err)
			return
		}
		m.mu.Lock()
		m.consumers = append(m.consumers, c)
		m.mu.Unlock()
		if m.batches {
			err = c.RunBatch(ctx, m.process)
		} else {
			err = c.Run(ctx, func(ctx context.Context, r kinesis.Record) error {
				_, err := m.process(ctx, []kinesis.Record{r})
				return err
			})
		}
		if ctx.Err() != nil {
			return
		}
		m.restarts.Add(1)
		if err == nil {
			m.Error("a consumer has ended without reason")
		}
		pause(ctx, time.Second)
	}
}

// configure returns the configuration of a member that starts now.
func (w *world) configure() kinesis.Config {
	config := kinesis.Config{
		Group: group, Handoff: w.handoff, InFlight: 500, Batch: 20, Idle: w.idle,
		DeadLetter: func(_ context.Context, r kinesis.Record, err error) error {
			// A member that was replaced may not know it: its dead letters are as stale as its effects.
			if !errors.Is(err, checkpoint.ErrStale) {
				w.Errorf("record %s of %s is left out: %v", r.Sequence, r.Shard, err)
			}
			return err
		},
		Worker: shardlease.Config{TTL: w.ttl, PollEvery: time.Second, MaxBackoff: 5 * time.Second},
	}
	for _, t := range w.topics {
		config.Streams = append(config.Streams, t.name)
	}
	w.read(&config)
	return config
}

// process stores records, one after the other. It fails now and then, before or after it has stored one.
func (m *member) process(ctx context.Context, batch []kinesis.Record) (int, error) {
	for i, r := range batch {
		pause(context.Background(), time.Duration(m.random(int(12*m.lasts/time.Duration(m.records))))) // about six lanes work at a time
		if !m.pass(ctx) {
			return i, errDead
		}
		if m.random(300) == 0 {
			return i, errPassing
		}
		if err := m.sink.write(ctx, r); err != nil {
			return i, err
		}
		if m.random(300) == 0 {
			return i, errPassing
		}
	}
	return len(batch), nil
}

// pass keeps a call of the function of a frozen member until it thaws, whatever has happened to its tenure: then the call
// goes on. It returns false if the member is dead, when the tenure has ended.
func (m *member) pass(ctx context.Context) bool {
	m.mu.Lock()
	dead, thawed := m.dead, m.thawed
	if token, ok := fence.FromContext(ctx); ok && thawed != nil {
		m.waiting = append(m.waiting, token)
	}
	m.mu.Unlock()
	if dead {
		<-ctx.Done()
		return false
	}
	if thawed != nil {
		<-thawed
		return m.pass(ctx)
	}
	return true
}

// reach returns an error if the member is dead. If it is frozen, reach waits.
func (m *member) reach(ctx context.Context) error {
	m.mu.Lock()
	dead, thawed := m.dead, m.thawed
	m.mu.Unlock()
	if dead {
		return errDead
	}
	if thawed == nil {
		return ctx.Err()
	}
	select {
	case <-thawed:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// write makes a write of the member's worker. A checkpoint must be at or before the first record without an effect. The
// write of a frozen member arrives when it thaws.
func (m *member) write(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
	if row, ok := w.Next.(lease.Row); ok && row.Checkpoint.Position != "" {
		m.covered(row)
	}
	m.mu.Lock()
	thawed := m.thawed
	m.mu.Unlock()
	if thawed == nil {
		return send()
	}
	<-thawed
	return m.store.Write(context.WithoutCancel(ctx), w)
}

// kill kills the member.
func (m *member) kill() {
	m.link.Cut()
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	m.leave()
	m.cancel()
}

// freeze freezes the member, and returns a function that thaws it.
func (m *member) freeze() (thaw func()) {
	thawed := make(chan struct{})
	m.link.Silence()
	m.mu.Lock()
	m.thawed = thawed
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		m.thawed = nil
		m.mu.Unlock()
		m.link.Heal()
		close(thawed)
	}
}

// frozen returns the tokens of the calls of the function that were frozen.
func (m *member) frozen() []fence.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.waiting)
}

// stop lets the member shut down, and waits for it.
func (m *member) stop() {
	m.leave()
	m.cancel()
	<-m.ended
}
