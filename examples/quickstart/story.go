package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A story is the show: a fleet, what happens to it, and what was seen of that.
type story struct {
	options options
	store   opened
	screen  *screen
	fleet   *fleet
	group   string

	painter sync.WaitGroup
	curtain context.CancelFunc // ends the drawing

	mu        sync.Mutex
	transfers map[lease.Reason]int
	told      map[string]int // how often, by kind and worker
}

func newStory(o options, store opened, sc *screen) *story {
	// Runs that share a table do not see each other.
	group := "quickstart-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	s := &story{
		options: o, store: store, screen: sc, group: group, curtain: func() {},
		fleet:     newFleet(store.Store, group, o.handoff, o.shards, o.ttl()),
		transfers: map[lease.Reason]int{}, told: map[string]int{},
	}
	s.fleet.observe, s.fleet.refused = s.observe, s.refused
	return s
}

// tell goes through the acts.
func (s *story) tell(ctx context.Context) error {
	s.screen.print("",
		fmt.Sprintf("%s: a stream of %d shards, a record in each every %s, and who may work on them.", s.paint(bold, "shardlease"), s.options.shards, millis(perRecord)),
		fmt.Sprintf("Leases are %s and last %s. Handoff is %s.", s.store.where, whole(s.fleet.ttl), s.paint(bold, s.options.handoff.String())),
		"Whoever holds the lease of a shard processes it. With each change of hands the lease gets a new",
		"generation, and what still comes from an older one is refused.")
	s.draw(ctx)
	for _, act := range []func(context.Context) error{
		s.share, s.join, s.kill, s.pause, s.leave, s.compare, s.finish,
	} {
		if err := errors.Join(act(ctx), s.screen.fault()); err != nil {
			return err
		}
		if err := sleep(ctx, breath); err != nil {
			return err
		}
	}
	return s.sum()
}

// breath is a pause between two acts, for those who watch.
const breath = 700 * time.Millisecond

// moment waits for something and notes when it was. Then it lets the workers finish
// telling of it: their events come a moment later.
func (s *story) moment(ctx context.Context, wait func(context.Context) error) (time.Time, error) {
	err := wait(ctx)
	at := time.Now()
	return at, errors.Join(err, sleep(ctx, 30*time.Millisecond))
}

// among waits until the work is even among some workers.
func (s *story) among(members []*member) func(context.Context) error {
	return func(ctx context.Context) error { return s.fleet.even(ctx, members...) }
}

// draw keeps the board on the screen, if that is one.
func (s *story) draw(ctx context.Context) {
	if !s.screen.live {
		return
	}
	ctx, s.curtain = context.WithCancel(ctx)
	s.painter.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		defer s.screen.draw(nil)
		for ctx.Err() == nil {
			if rows, err := s.fleet.rows(ctx); err == nil {
				s.screen.draw(s.board(rows))
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
}

// show prints the board where it is not drawn all the time.
func (s *story) show(ctx context.Context) error {
	if s.screen.live {
		return nil
	}
	rows, err := s.fleet.rows(ctx)
	if err == nil {
		s.screen.print(s.board(rows)...)
	}
	return err
}

// close ends the drawing and the fleet.
func (s *story) close() error {
	s.curtain()
	s.painter.Wait()
	s.fleet.close()
	return s.screen.fault()
}

// share: the first workers divide the shards among themselves.
func (s *story) share(ctx context.Context) error {
	s.screen.heading(fmt.Sprintf("%d workers start", s.options.workers))
	began := time.Now()
	for i := range s.options.workers {
		if _, err := s.fleet.join(ctx, fmt.Sprintf("worker-%d", i+1)); err != nil {
			return err
		}
	}
	at, err := s.moment(ctx, s.among(s.fleet.all()))
	if err != nil {
		return err
	}
	s.screen.good(at, "even after %s; no leader says who gets what: all workers make the same plan", spell(at.Sub(began)))
	return s.show(ctx)
}

// join: one more worker gets its share by planned moves.
func (s *story) join(ctx context.Context) error {
	name := fmt.Sprintf("worker-%d", s.options.workers+1)
	s.screen.heading(name + " joins")
	began := time.Now()
	if _, err := s.fleet.join(ctx, name); err != nil {
		return err
	}
	at, err := s.moment(ctx, s.among(s.fleet.all()))
	if err != nil {
		return err
	}
	moves := s.fleet.probe.since(began)
	fewest := ""
	if len(moves) == s.options.shards/len(s.fleet.all()) {
		fewest = ", the fewest possible"
	}
	s.screen.good(at, "even again after %s with %s%s", spell(at.Sub(began)), plural(len(moves), "move"), fewest)
	s.screen.good(at, "%s", cost(moves))
	return s.show(ctx)
}

// cost says what planned moves cost, at worst.
func cost(moves []move) string {
	gap, overlap := worst(moves)
	switch {
	case overlap == 0:
		return fmt.Sprintf("each move: a gap of at most %s, while nobody processed the shard; no overlap", millis(gap))
	case gap == 0:
		return fmt.Sprintf("each move: an overlap of at most %s, while two processed the shard; no gap", millis(overlap))
	}
	return fmt.Sprintf("each move: a gap of at most %s, or an overlap of at most %s", millis(gap), millis(overlap))
}

func worst(moves []move) (gap, overlap time.Duration) {
	for _, m := range moves {
		gap, overlap = max(gap, m.gap), max(overlap, m.overlap)
	}
	return gap, overlap
}

// kill: a worker dies, and its lease runs out.
func (s *story) kill(ctx context.Context) error {
	victim := s.fleet.all()[1]
	s.screen.heading(victim.name + " is killed")
	shards := s.holds(victim)
	began := time.Now()
	victim.host.enter(killed)
	s.fleet.probe.vanish(victim.name)
	s.screen.say("%s dies while it holds %s, and can tell nobody", s.who(victim.name), plural(shards, "shard"))
	at, err := s.moment(ctx, s.fleet.served)
	if err != nil {
		return err
	}
	s.screen.good(at, "all processed again after %s: %s", spell(at.Sub(began)), s.ranOut())
	if err := s.fleet.even(ctx, s.living()...); err != nil {
		return err
	}
	return s.show(ctx)
}

// ranOut explains why that took as long as it did.
func (s *story) ranOut() string {
	return fmt.Sprintf("its lease ran out %s after its last heartbeat", whole(s.fleet.ttl))
}

// holds is how many shards a worker processes now.
func (s *story) holds(m *member) int {
	now, _ := s.fleet.probe.serving()
	return now.by[m.name]
}

// living are the members that run.
func (s *story) living() []*member {
	return slices.DeleteFunc(s.fleet.all(), func(m *member) bool { return m.quiet() || m.hasLeft() })
}

// leave: a clean stop waits for nothing to run out.
func (s *story) leave(ctx context.Context) error {
	m := s.fleet.all()[0]
	s.screen.heading(m.name + " leaves in good order")
	shards, began := s.holds(m), time.Now()
	s.screen.say("%s is told to stop, as a deploy would do it", s.who(m.name))
	m.stop()
	at, err := s.moment(ctx, func(ctx context.Context) error {
		select {
		case <-m.gone:
			return errors.Join(m.err, s.fleet.served(ctx))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		return err
	}
	s.screen.good(at, "it has handed over its %s and is gone after %s: no lease had to run out", plural(shards, "shard"), spell(at.Sub(began)))
	s.screen.good(at, "%s", cost(s.fleet.probe.since(began)))
	if err := s.fleet.even(ctx, s.living()...); err != nil {
		return err
	}
	return s.show(ctx)
}

// observe is told what the workers of the fleet do.
func (s *story) observe(m *member, e event.Event) {
	if m.quiet() {
		return // it cannot tell anybody
	}
	switch e.Kind {
	case event.Started:
		s.tally(e.Reason)
		s.screen.say("%s  %s → %s  %s", e.Shard, s.who(e.Transfer.From), s.who(e.Worker), why(e))
	case event.Ended:
		if e.Cause == event.CauseFinished {
			s.tally(lease.ReasonFinished)
		}
	case event.PeerEvicted:
		if s.count(e.Kind, e.Peer) == 1 && e.Peer != e.Worker { // others may have come to the same conclusion
			s.screen.say("%s has seen no heartbeat of %s for %s, and strikes it off the table", s.who(e.Worker), s.who(e.Peer), whole(s.fleet.ttl))
		}
	case event.Joined:
		if s.count(e.Kind, e.Worker) > 1 {
			s.screen.say("%s has noticed that its lease is gone, and joins again as if it were new", s.who(e.Worker))
		}
	}
}

func (s *story) tally(r lease.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transfers[r]++
}

// count is how often a worker was told of in this way.
func (s *story) count(kind event.Kind, worker string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := kind.String() + " " + worker
	s.told[key]++
	return s.told[key]
}

// who is a worker's name in its colour.
func (s *story) who(name string) string {
	if name == "" {
		return "nobody  "
	}
	i := slices.IndexFunc(s.fleet.all(), func(m *member) bool { return m.name == name })
	return s.paint(hue(max(i, 0)), name)
}

// why explains a transfer.
func why(e event.Event) string {
	text := map[lease.Reason]string{
		lease.ReasonInitial:      "nobody had it before",
		lease.ReasonHandoff:      "a planned move",
		lease.ReasonExpired:      "its owner's lease had run out",
		lease.ReasonReleased:     "its owner has let go of it",
		lease.ReasonDrainTimeout: "its owner did not wind down in time",
	}[e.Reason]
	if e.Gap > 0 {
		text += fmt.Sprintf(", with a gap of %s", millis(e.Gap))
	}
	return fmt.Sprintf("%-9s %s", e.Reason, text)
}
