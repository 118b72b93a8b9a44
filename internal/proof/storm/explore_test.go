package storm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var exploreBudget = flag.Int("explore.states", 0, "about how many states at most TestExplore visits for each story within wide bounds")

// A world is one state of everything: the table, the network with its delayed writes, two workers,
// and the judge.
type world struct {
	store  *memstore.Store
	judge  *judge.Store
	net    *Network
	actors [2]actor
	late   [2]lease.Record // a row that each actor has read but not yet received
	faults int             // how many faults may still happen
	story  *story
	path   []string
	made   map[string]bool // every move that any world has made; all worlds share it
}

// A story is a subset of the transitions. All of them together have too many states to explore to
// any depth, so each story has those that can interfere with each other.
type story struct {
	name  string
	held  bool   // whether a holds the shard at the beginning, and both actors know it
	moves string // the names of the transitions that the actors may use
	bounds
}

// bounds keep the number of states finite.
type bounds struct {
	writes int // how many writes each actor makes at most
	faults int // how many faults happen at most
}

// Each story is explored within small bounds, completely if tests are long, and within wide bounds. The budget of states
// limits all other explorations.
var (
	small = bounds{writes: 2, faults: 1}
	wide  = bounds{writes: 3, faults: 2}
)

func stories() []story {
	return []story{
		{"start", false, "begin claim commit release remove revive", bounds{}},
		{"crash", true, "claim recover commit release", bounds{}},
		{"cooperative", true, "commit offer withdraw take recover", bounds{}},
		{"eager", true, "commit yield recover seize", bounds{}},
		{"end", true, "commit finish recover remove revive claim", bounds{}},
		{"operator", true, "claim commit force-release quarantine unquarantine rewind", bounds{}},
		{"adoption", true, "commit progress adopt claim recover", bounds{}},
	}
}

func newWorld(s *story) *world {
	store := new(memstore.Store)
	check := judge.NewStore(store, checkpoint.Decimal)
	w := &world{
		store: store, judge: check, net: NewNetwork(check, 0, Rates{}),
		actors: [2]actor{newActor("a"), newActor("b")},
		faults: s.faults, story: s,
		made: map[string]bool{},
	}
	if s.held {
		w.prepare("begin")
		w.prepare("claim")
	}
	return w
}

// prepare lets actor a make one move without faults, and lets actor b read the row. The move does
// not count.
func (w *world) prepare(name string) {
	a, b := &w.actors[0], &w.actors[1]
	for _, m := range a.moves(b.owner()) {
		if m.name != name {
			continue
		}
		write, err := m.make(a.stamp(m))
		reply, errWrite := w.judge.Write(context.Background(), write)
		if err = errors.Join(err, a.copy.Send(write), a.answered(reply, errWrite, w.judge), b.saw(reply.(lease.Row), w.judge)); err != nil {
			panic(err)
		}
	}
	a.writes++
}

// prepared returns how many of an actor's writes do not count.
func (w *world) prepared(i int) int {
	if i == 0 && w.story.held {
		return 2
	}
	return 0
}

func (w *world) clone(step string) *world {
	c := *w
	c.store = w.store.Clone()
	c.judge = w.judge.Clone(c.store)
	c.net = w.net.Clone(c.judge, 0)
	c.path = append(slices.Clip(w.path), step)
	return &c
}

func (w *world) row() lease.Record {
	r, err := w.store.Get(context.Background(), theRow())
	if err != nil {
		return nil
	}
	return r
}

// explore calls visit with every world that is one step away, and the promise that the step broke.
func (w *world) explore(visit func(*world, error)) {
	for i := range w.actors {
		w.exploreReads(i, visit)
		a := &w.actors[i]
		if open, busy := a.copy.Open(); busy {
			w.exploreFates(i, "repeat", open, visit)
		} else if a.writes < w.story.writes+w.prepared(i) {
			w.exploreMoves(i, visit)
		}
		if w.faults > 0 && a.copy.Row().Generation > 0 {
			c := w.clone(a.name + " reborn")
			c.actors[i].reborn()
			c.faults--
			visit(c, nil)
		}
	}
	for i, held := range w.net.Held() {
		c := w.clone("arrives: " + string(held.ID()))
		visit(c, c.net.Arrive(context.Background(), i))
	}
}

func (w *world) exploreMoves(i int, visit func(*world, error)) {
	for _, m := range w.actors[i].moves(w.actors[1-i].owner()) {
		if !slices.Contains(strings.Fields(w.story.moves), m.name) {
			continue
		}
		write, err := m.make(w.actors[i].stamp(m))
		if err != nil {
			continue
		}
		w.made[m.name] = true
		sent := *w
		sent.actors[i].writes++
		if err := sent.actors[i].copy.Send(write); err != nil {
			visit(&sent, err)
			continue
		}
		sent.exploreFates(i, m.name+" "+string(write.ID()), write, visit)
	}
}

// exploreReads: an actor reads the row, and receives it at once or, as a fault, later.
func (w *world) exploreReads(i int, visit func(*world, error)) {
	if w.late[i] != nil {
		c := w.clone(w.actors[i].name + " receives the row that it read")
		c.late[i] = nil
		visit(c, c.actors[i].saw(w.late[i].(lease.Row), c.judge))
	}
	now, there := w.row().(lease.Row)
	if !there || now.Compare(w.actors[i].copy.Row()) == 0 {
		return
	}
	c := w.clone(w.actors[i].name + " reads and receives the row")
	visit(c, c.actors[i].saw(now, c.judge))
	if w.faults > 0 && w.late[i] == nil {
		c := w.clone(w.actors[i].name + " reads, to receive the row later")
		c.late[i] = now
		c.faults--
		visit(c, nil)
	}
}

func (w *world) exploreFates(i int, what string, move lease.Write, visit func(*world, error)) {
	for fate := range Fates {
		if fate != Delivered && w.faults == 0 {
			break
		}
		c := w.clone(fmt.Sprintf("%s: %s, %v", w.actors[i].name, what, fate))
		if fate != Delivered {
			c.faults--
		}
		reply, err := c.net.Suffer(context.Background(), move, fate)
		visit(c, c.actors[i].answered(reply, err, c.judge))
	}
}

// fingerprint returns a hash of everything in the world that can matter later.
func (w *world) fingerprint(h *maphash.Hash) uint64 {
	h.Reset()
	// A row is identified by the write that made it, and by the checkpoint that a transfer kept.
	row := func(r lease.Record) {
		if r == nil {
			h.WriteByte('-')
			return
		}
		row := r.(lease.Row)
		h.WriteString(string(row.WriteID) + "|" + strconv.FormatInt(row.Counter, 10) + "|" + row.Checkpoint.Position + "|" +
			strconv.FormatInt(row.Checkpoint.Generation, 36) + "|" + strconv.FormatInt(row.Generation, 36) + "\n")
	}
	row(w.row())
	// A write is identified by its id, and by the row from which it was made.
	write := func(w lease.Write) {
		h.WriteString(string(w.ID()) + ",")
		row(w.Old)
	}
	for i := range w.actors {
		a := &w.actors[i]
		open, busy := a.copy.Open()
		fmt.Fprintf(h, "%d %d %t %d %t ", a.life, a.writes, a.tenure, a.hold.Generation, busy)
		write(open)
		row(a.copy.Row())
		row(w.late[i])
	}
	for _, held := range w.net.Held() {
		write(held)
	}
	fmt.Fprint(h, w.faults, w.judge.Writes())
	return h.Sum64()
}

// TestExplore explores, breadth first, everything that two actors can do to one shard, with the
// real transitions and memstore behind the network: each write may be delivered, lost, stored
// without an answer, late, or repeated; each read may be received late; each worker may continue
// under a new incarnation at any time. Every state is checked against the promises, and every
// answer is compared with what really happened.
func TestExplore(t *testing.T) {
	total := 0
	budget := fixture.Or(*exploreBudget, 1_500, 8_000)
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			s.bounds = small
			states, complete := explore(t, &s, fixture.Size(budget, math.MaxInt))
			if !complete && fixture.Long() {
				t.Error("the story was not explored completely")
			}
			s.bounds = wide
			more, _ := explore(t, &s, budget)
			total += states + more
		})
	}
	t.Logf("%d states in total", total)
	if want := fixture.Size(10_000, 100_000); total < want {
		t.Errorf("%d states, want at least %d", total, want)
	}
}

func explore(t *testing.T, s *story, budget int) (states int, complete bool) {
	var h maphash.Hash
	start := newWorld(s)
	seen := map[uint64]bool{start.fingerprint(&h): true}
	level, depth := []*world{start}, 0
	for ; len(level) > 0 && len(seen) < budget; depth++ {
		var next []*world
		for _, w := range level {
			w.explore(func(c *world, err error) {
				if err = errors.Join(err, c.judge.Err()); err != nil {
					t.Fatalf("%v\nafter:\n  %s", err, strings.Join(c.path, "\n  "))
				}
				if key := c.fingerprint(&h); !seen[key] {
					seen[key] = true
					next = append(next, c)
				}
			})
			if len(seen) >= budget {
				break
			}
		}
		level = next
	}
	for name := range strings.FieldsSeq(s.moves) {
		if !start.made[name] && (name != "begin" || !s.held) {
			t.Errorf("no world made the move %q", name)
		}
	}
	complete = len(level) == 0
	t.Logf("%d writes each, %d faults: %d states, depth %d, complete: %t", s.writes, s.faults, len(seen), depth, complete)
	return len(seen), complete
}
