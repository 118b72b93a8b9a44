package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A scene is a group of real workers, which a test may disturb, and the terminal of an operator. It belongs into a
// bubble.
type scene struct {
	*world
	t      *testing.T
	actors []*actor
	typed  []string      // the commands that have changed something
	over   chan struct{} // closed when handlers that hang may return
	names  []string      // what an incident remembers

	mu     sync.Mutex
	shards []string
	ails   map[string]ailment // of the handlers, by worker and shard; * stands for all
}

// An ailment is what is wrong with a handler.
type ailment string

const (
	works  ailment = ""
	hangs  ailment = "hangs"  // it ignores its contexts
	fails  ailment = "fails"  // it returns an error
	silent ailment = "silent" // it neither marks nor calls anything else
	alive  ailment = "alive"  // it calls Alive, and marks nothing
	fat    ailment = "fat"    // it stores a large state
)

// An actor is a worker that a test disturbs.
type actor struct {
	*storetest.Link
	table lease.Store
	name  string
	stop  context.CancelFunc
	ended chan error
	dead  bool
}

func newScene(t *testing.T) *scene {
	s := &scene{world: newWorld(), t: t, over: make(chan struct{}), ails: map[string]ailment{}}
	s.tables.groups[place{"leases", "orders"}] = true
	s.list(6)
	return s
}

// list makes the source list so many shards.
func (s *scene) list(shards int) {
	var names []string
	for i := range shards {
		names = append(names, fmt.Sprintf("shard-%d", i))
	}
	s.lists(names...)
}

// lists makes the source list these shards.
func (s *scene) lists(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = names
}

// Shards lists the source of all workers.
func (s *scene) Shards(context.Context) (list []shardlease.Shard, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.shards {
		list = append(list, shardlease.Shard{Name: name})
	}
	return list, nil
}

// join starts workers with the usual configuration.
func (s *scene) join(names ...string) {
	for _, name := range names {
		s.joinAs(name, shardlease.Config{})
	}
}

// joinAs starts a worker.
func (s *scene) joinAs(name string, config shardlease.Config) *actor {
	s.t.Helper()
	return s.start(name, config, s.handler(name))
}

// start starts a worker with a handler of its own.
func (s *scene) start(name string, config shardlease.Config, handler shardlease.Handler) *actor {
	s.t.Helper()
	a := &actor{table: s.tables.link("leases"), name: name, ended: make(chan error, 1)}
	a.Link = storetest.NewLink(a.table)
	config.Group, config.Name = "orders", name
	if config.Handoff == nil {
		config.Handoff = rebalance.Eager
	}
	w, err := shardlease.New(a.Link, s, config)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	a.stop, s.actors = stop, append(s.actors, a)
	go func() { a.ended <- w.Run(ctx, handler) }()
	return a
}

// worker returns the running worker of that name.
func (s *scene) worker(name string) *actor {
	s.t.Helper()
	at := slices.IndexFunc(s.actors, func(a *actor) bool { return a.name == name && !a.dead })
	if at < 0 {
		s.t.Fatalf("no worker %s runs", name)
	}
	return s.actors[at]
}

// kill ends processes as kill -9 does.
func (s *scene) kill(names ...string) {
	for _, name := range names {
		a := s.worker(name)
		a.dead = true
		a.Cut()
		a.stop()
	}
}

// leave shuts workers down gracefully.
func (s *scene) leave(names ...string) {
	for _, name := range names {
		a := s.worker(name)
		a.dead = true
		a.stop()
		if err := <-a.ended; err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
		a.ended <- nil
	}
}

// end stops all workers that still run.
func (s *scene) end() {
	close(s.over)
	for _, a := range s.actors {
		a.stop()
	}
	for _, a := range s.actors {
		if err := <-a.ended; err != nil && !a.dead {
			s.t.Errorf("%s: %v", a.name, err)
		}
	}
}

// refuse makes the table deny the writes of a worker for which deny returns true; nil: none.
func (a *actor) refuse(deny func(lease.Write) bool) {
	a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if deny != nil && deny(w) {
			return nil, denied{errors.New("not authorized to perform dynamodb:UpdateItem")}
		}
		return send()
	})
}

// about reports writes of the row of a shard.
func about(shard string) func(lease.Write) bool {
	return func(w lease.Write) bool { return w.Key().Kind == lease.KindLease && w.Key().Name == shard }
}

// untouched reports writes of the row of a shard, until the shard changes hands.
func (s *scene) untouched(shard string) func(lease.Write) bool {
	held := s.snapshot().Shard(shard).Row.Generation
	return func(w lease.Write) bool {
		r, _ := s.tables.all["leases"].Get(s.t.Context(), w.Key())
		row, _ := r.(lease.Row)
		return about(shard)(w) && row.Generation == held
	}
}

// ail sets what is wrong with the handlers of a shard on a worker; * stands for all.
func (s *scene) ail(how ailment, worker, shard string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ails[worker+"/"+shard] = how
}

// heal repairs all handlers. A call that hangs continues to hang.
func (s *scene) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ails)
}

func (s *scene) ailment(worker, shard string) ailment {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range []string{worker + "/" + shard, worker + "/*", "*/" + shard, "*/*"} {
		if how := s.ails[key]; how != works {
			return how
		}
	}
	return works
}

// handler returns the handler of a worker. It marks a position each second, unless something is wrong.
func (s *scene) handler(worker string) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		n, _ := strconv.Atoi(t.Checkpoint().Position)
		for {
			err, state := error(nil), ""
			switch s.ailment(worker, t.Shard().Name) {
			case hangs:
				<-s.over
				return nil
			case fails:
				return errors.New("the disk is full")
			case alive:
				t.Alive()
			case fat:
				state = strings.Repeat("x", 4000)
				fallthrough
			case works:
				n++
				err = t.MarkState(strconv.Itoa(n), state)
			}
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				if s.ailment(worker, t.Shard().Name) == hangs {
					<-s.over
				}
				return nil
			case <-time.After(time.Second):
			}
		}
	}
}

// exec executes a command on a terminal. The answer is what the operator types when the command asks.
func (s *scene) exec(answer string, args ...string) (out string, code int) {
	var text, problems bytes.Buffer
	s.answer = cmp.Or(answer, "-")
	s.world.exec(s.t.Context(), &text, &problems, args...)
	if text.Len() == 0 {
		return problems.String(), s.code
	}
	return text.String(), s.code
}

// give executes a command that must succeed.
func (s *scene) give(answer string, args ...string) string {
	s.t.Helper()
	out, code := s.exec(answer, args...)
	if code != 0 {
		s.t.Errorf("%v: exit code %d: %s", args, code, out)
	}
	return out
}

// types types a command that changes something, and that must succeed.
func (s *scene) types(args ...string) {
	s.t.Helper()
	c, rest, err := new(program).root().Find(args)
	if err != nil {
		s.t.Fatal(err)
	}
	s.typed = append(s.typed, strings.TrimPrefix(c.CommandPath(), "shardlease "))
	answer := ""
	if len(rest) > 0 {
		answer = rest[0]
	}
	if c.Flags().Lookup("why") != nil {
		args = append(args, "--why", "test")
	}
	if c.Flags().Lookup("yes") != nil && c.Flags().Lookup("generation") == nil {
		args, answer = append(args, "--yes"), ""
	}
	s.give(answer, args...)
}

// snapshot looks at the group.
func (s *scene) snapshot() *inspect.Snapshot {
	s.t.Helper()
	snapshot, err := inspect.Look(s.t.Context(), s.tables.link("leases"), "orders", inspect.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	return snapshot
}

// incarnation returns the incarnation of a worker.
func (s *scene) incarnation(name string) string {
	s.t.Helper()
	for _, w := range s.snapshot().Workers {
		if w.Seat.Name == name {
			return string(w.Seat.Incarnation)
		}
	}
	s.t.Fatalf("%s has no seat", name)
	return ""
}
