package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A watched world is one whose workers have a deathwatch.
func newWatched(t testing.TB, shards int, names string, ttl time.Duration) *fleet {
	w := newTwins(t, shards)
	w.wires = new(virtual.Wires)
	c := config(rebalance.Cooperative)
	c.TTL, c.Audit = ttl, max(ttl, time.Minute)
	w.enterAll(names, c)
	w.until(3*ttl, w.even)
	w.Run(3 * ttl)
	return w
}

// deletions returns how many deletions of seats the other workers have sent since then.
func (f *fleet) deletions(since time.Duration) (n int) {
	for _, node := range f.nodes {
		own := node.Engine.Status().Incarnation
		for _, s := range node.sent {
			send, ok := s.Output.(engine.Send)
			if ok && s.at >= since && send.Write.Op == lease.OpDelete && send.Write.Key().Kind == lease.KindSeat && send.Write.Key().Name != string(own) {
				n++
			}
		}
	}
	return n
}

// TestProvenDeaths: the shards of killed workers are held again in less than a second, whatever the lease time,
// also those of the planner, of two workers that die together, and of all workers but two. If only one is left, it has
// nobody to ask whether the refusals come from its own side, so the lease time decides.
func TestProvenDeaths(t *testing.T) {
	t.Parallel()
	for _, ttl := range fixture.Sample(1, []time.Duration{time.Minute, 10 * time.Second}) {
		for _, dies := range []string{"a", "b", "c", "d", "e", "ab", "de", "abcd", "abcdef", "abcdefg"} {
			w := newWatched(t, 40, "abcdefgh", ttl)
			since := w.Now()
			for _, name := range dies {
				w.named(string(name)).Kill()
			}
			most := time.Second
			if len(dies) == 7 {
				most = ttl + ttl/3 + time.Second/2
			}
			if took := w.until(2*ttl, w.held); took > most {
				t.Errorf("T = %v, %s die: all are held after %v", ttl, dies, took)
			}
			w.Run(ttl)
			if n := w.deletions(since); n != len(dies) {
				t.Errorf("T = %v, %s die: %d deletions of seats", ttl, dies, n)
			}
			for _, n := range w.nodes {
				for _, e := range n.reports(event.PeerEvicted) {
					if n.Up() && e.Err == nil && len(dies) < 7 {
						t.Errorf("%s evicts %s and does not say why", n.Name, e.Peer)
					}
				}
			}
		}
	}
}

// TestDeathsOneByOne: three workers die within a second. Plans after such evictions may follow each other
// by a quarter of a second.
func TestDeathsOneByOne(t *testing.T) {
	w := newWatched(t, 40, "abcdefgh", time.Minute)
	for _, name := range "bdf" {
		w.Run(300 * time.Millisecond)
		w.named(string(name)).Kill()
	}
	if took := w.until(time.Minute, w.held); took > 400*time.Millisecond {
		t.Errorf("all are held %v after the last death", took)
	}
}

// TestSilenceProvesNothing: connections that break, an address that does not answer, a peer that answers
// with nonsense, a paused process.
func TestSilenceProvesNothing(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	since, b := w.Now(), w.named("b")
	w.wires.Lie = func(_, to *virtual.Process, truth engine.Shown) engine.Shown {
		if to.Name == "b" {
			return engine.Silent
		}
		return truth
	}
	w.wires.Cut(&b.Process)
	w.Run(10 * time.Second)
	b.Pause()
	w.Run(5 * time.Second)
	b.Resume(nil)
	w.Run(10 * time.Second)
	if n := w.deletions(since); n > 0 || len(w.named("a").reports(event.Unwatched)) == 0 {
		t.Errorf("%d deletions; reported: %v", n, w.named("a").reports(event.Unwatched))
	}
	w.wires.Lie = nil
	w.Run(time.Minute)
	if told := w.named("a").reports(event.Unwatched); !told[len(told)-1].Over {
		t.Errorf("the peer answers again, and the last report is %v", told[len(told)-1])
	}
	b.Kill()
	if took := w.until(time.Minute, w.held); took > time.Second {
		t.Errorf("the connection was made again, and b is missed after %v", took)
	}
}

// refuses returns the lie that the address of a process refuses connections.
func refuses(name string) func(_, to *virtual.Process, truth engine.Shown) engine.Shown {
	return func(_, to *virtual.Process, truth engine.Shown) engine.Shown {
		if to.Name == name {
			return engine.Refuses
		}
		return truth
	}
}

// TestAddressThatNeverAnswered: an address that refuses connections from the first attempt proves nothing: it
// may be wrong. Nor does one where other workers answer.
func TestAddressThatNeverAnswered(t *testing.T) {
	for _, lie := range []engine.Shown{engine.Refuses, engine.Replies} {
		w := newTwins(t, 12)
		w.wires = &virtual.Wires{Lie: func(_, to *virtual.Process, truth engine.Shown) engine.Shown {
			if to.Name == "b" {
				return lie
			}
			return truth
		}}
		w.enterAll("abc", config(rebalance.Cooperative))
		w.Run(time.Minute)
		if n := w.deletions(0); n > 0 || !w.even() {
			t.Errorf("%d deletions; held: %v", n, w.counts())
		}
		if told := w.named("a").reports(event.Unwatched); len(told) == 0 || told[0].Err == nil {
			t.Errorf("reported: %v", told)
		}
		w.named("b").Kill() // its lease time shows that
		w.until(14*time.Second, w.held)
	}
}

// TestWrongProof: the address of a living worker refuses connections. The worker is evicted once, as if it had
// died: its shards move and no promise is broken. It then hides its address for ten lease times.
func TestWrongProof(t *testing.T) {
	for _, lie := range []engine.Shown{engine.Refuses, engine.Replies} {
		w := newWatched(t, 12, "abc", 10*time.Second)
		b := w.named("b")
		w.wires.Lie = func(_, to *virtual.Process, truth engine.Shown) engine.Shown {
			if to.Name == "b" {
				return lie
			}
			return truth
		}
		since := w.Now()
		w.wires.Cut(&b.Process)
		w.Run(5 * time.Second)
		if n := w.deletions(since); n != 1 || len(b.reports(event.Misjudged)) != 1 || w.seat(b).Address != "" {
			t.Fatalf("%d deletions; %v; the seat is %v", n, b.reports(event.Misjudged), w.seat(b))
		}
		w.until(20*time.Second, w.even)
		w.Run(70 * time.Second)
		if n := w.deletions(since); n != 1 {
			t.Errorf("after the first mistake %d more", n-1)
		}
		w.wires.Lie = nil
		w.Run(40 * time.Second)
		told := b.reports(event.Misjudged)
		if last := told[len(told)-1]; !last.Over || w.seat(b).Address != "b" {
			t.Errorf("after ten lease times: %v, and the seat is %+v", last, w.seat(b))
		}
		b.Kill()
		if took := w.until(time.Minute, w.held); took > time.Second {
			t.Errorf("the address is believed again, and b is missed after %v", took)
		}
	}
}

// TestMeshRefusesTheLiving: the sidecar of a worker refuses all connections that the worker makes. It evicts nobody,
// neither among three workers nor among two. When the sidecar is back, a death is noticed at once again.
func TestMeshRefusesTheLiving(t *testing.T) {
	for _, names := range []string{"abc", "ab"} {
		w := newWatched(t, 12, names, 10*time.Second)
		since := w.Now()
		w.wires.Lie = func(from, _ *virtual.Process, truth engine.Shown) engine.Shown {
			if from.Name == "a" {
				return engine.Refuses
			}
			return truth
		}
		for _, name := range names[1:] {
			w.wires.Cut(&w.named(string(name)).Process)
		}
		w.Run(30 * time.Second)
		if n := w.deletions(since); n > 0 || !w.even() || len(w.named("a").reports(event.Unwatched)) == 0 {
			t.Errorf("%s: %d deletions; held: %v; reported: %v", names, n, w.counts(), w.named("a").reports(event.Unwatched))
		}
		w.wires.Lie = nil
		w.Run(time.Minute)
		w.named("b").Kill()
		if took := w.until(time.Minute, w.held); took > time.Second {
			t.Errorf("%s: b is missed after %v", names, took)
		}
	}
}

// TestRestartAtTheSameAddress: a process is killed, and the next one of the machine answers at once.
func TestRestartAtTheSameAddress(t *testing.T) {
	w := newWatched(t, 12, "abc", time.Minute)
	b := w.named("b")
	b.Kill()
	c := config(rebalance.Cooperative)
	c.TTL, c.Name, c.Deathwatch, c.Address = time.Minute, "b", true, "b"
	b.Boot(w.Now(), func() virtual.Engine { return virtual.New(c, b.Moment()) })
	if took := w.until(time.Minute, w.held); took > 1500*time.Millisecond {
		t.Errorf("all are held after %v", took)
	}
	w.until(5*time.Second, w.even)
}

// TestDeafWorker: a worker whose listener has failed removes its address from its seat, and is not taken for
// dead.
func TestDeafWorker(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	b, since := w.named("b"), w.Now()
	b.Step(engine.Deaf{Err: errors.New("accept: no more files")})
	w.Run(100 * time.Millisecond)
	if at := w.seat(b); at.Address != "" || len(b.reports(event.Unwatched)) != 1 {
		t.Errorf("the seat is %+v; reported: %v", at, b.reports(event.Unwatched))
	}
	w.Run(4 * time.Second)
	w.wires.Lie = refuses("b")
	w.wires.Cut(&b.Process)
	w.Run(30 * time.Second)
	if n := w.deletions(since); n > 0 {
		t.Errorf("%d deletions", n)
	}
}

// TestAddressIsHiddenFirst: the address vanishes from the seat, and the connections break before the watchers
// have listed the seats again. The heartbeat without the address refuses their deletions.
func TestAddressIsHiddenFirst(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	b := w.named("b")
	b.Step(engine.Deaf{Err: errors.New("accept: no more files")})
	w.Run(10 * time.Millisecond) // the heartbeat is stored
	w.wires.Lie = refuses("b")
	w.wires.Cut(&b.Process)
	w.Run(30 * time.Second)
	b.never(event.Lost)
}

// TestCleanStopIsNoDeath: the seat of a worker that has stopped is gone before its address refuses. Nobody
// deletes a seat that is gone.
func TestCleanStopIsNoDeath(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	b, since := w.named("b"), w.Now()
	b.Step(engine.Stop{})
	w.until(time.Minute, b.Engine.Done)
	b.Kill()
	w.Run(30 * time.Second)
	if n := w.deletions(since); n > 0 {
		t.Errorf("%d deletions", n)
	}
}

// TestHeartbeatOnItsWay: the last heartbeat of a killed worker arrives after another worker has listed the seats for
// its death, and before the deletion. The deletion is refused, and made again on the new heartbeat.
func TestHeartbeatOnItsWay(t *testing.T) {
	w := newWatched(t, 12, "ab", time.Minute) // so that a alone deletes the seat
	b, late := w.named("b"), false
	beat, err := protocol.NextBeat(w.seat(b), w.seat(b).Says, w.stamp())
	if err != nil {
		t.Fatal(err)
	}
	w.slow = func(_ *member, o engine.Output) time.Duration {
		if send, ok := o.(engine.Send); ok && send.Write.Op == lease.OpDelete && !late {
			_, err := w.table.Write(b.Sender(), beat)
			late = err == nil
		}
		return 0
	}
	since := w.Now()
	b.Kill()
	if took := w.until(time.Minute, func() bool { return w.seat(b).Incarnation == "" }); took > time.Second || !late {
		t.Errorf("the seat is gone after %v; the heartbeat was late: %t", took, late)
	}
	w.until(time.Second, w.held)
	if n := w.deletions(since); n != 2 {
		t.Errorf("%d deletions, and the first one was refused", n)
	}
}

// TestDeathwatchCostsNothing: a settled fleet makes the same calls with a deathwatch as without.
func TestDeathwatchCostsNothing(t *testing.T) {
	t.Parallel()
	calls := func(wires *virtual.Wires) (n int) {
		w := newTwins(t, 40)
		w.wires = wires
		w.enterAll("abcdefgh", config(rebalance.Cooperative))
		w.until(time.Minute, w.even)
		w.Run(time.Minute)
		clear(w.calls)
		w.Run(fixture.Size(3*time.Minute, 10*time.Minute))
		for _, count := range w.calls {
			n += count
		}
		return n
	}
	with, without := calls(new(virtual.Wires)), calls(nil)
	if d := with - without; d*100 > without || -d*100 > without {
		t.Errorf("%d calls with a deathwatch, %d without", with, without)
	}
}

// TestProvenDeathsInALargeFleet: only the watchers keep connections. They evict at once, and the one that plans knocks at
// the workers whose shards it has changed, and at no others: all are held again in less than a second, whatever the size of
// the fleet and the lease time.
func TestProvenDeathsInALargeFleet(t *testing.T) {
	t.Parallel()
	for _, workers := range fixture.Size([]int{12, 24}, []int{12, 100, 1000}) {
		f := newFleet(t, 2*workers, 0, rebalance.Cooperative)
		f.wires = new(virtual.Wires)
		f.config.TTL = time.Minute
		for range workers {
			f.join()
		}
		f.until(5*time.Minute, f.even)
		f.Run(3 * time.Minute)
		watchers := f.watchers()
		for _, dies := range []*member{f.named("w005"), watchers[0], watchers[7]} {
			if !dies.Up() {
				continue
			}
			clear(f.calls)
			since := f.Now()
			dies.Kill()
			if took := f.until(time.Minute, f.held); took > time.Second {
				t.Errorf("%d workers: after the death of %s all are held after %v", workers, dies.Name, took)
			}
			if knocks, changed := f.knocks(since), f.calls["target swap"]; knocks == 0 || knocks > changed {
				t.Errorf("%d workers: after the death of %s %d knocks, and %d targets have changed", workers, dies.Name, knocks, changed)
			}
			f.Run(2 * time.Minute)
		}
	}
}

// TestNobodyKnocksInASmallFleet: every worker of a small fleet watches, and sees the plan soon.
func TestNobodyKnocksInASmallFleet(t *testing.T) {
	w := newWatched(t, 40, "abcdefgh", 10*time.Second)
	w.named("c").Kill()
	w.until(time.Minute, w.held)
	if n := w.knocks(0); n > 0 {
		t.Errorf("%d knocks", n)
	}
}

// knocks returns how often workers have connected once more since then, so that others read the plan.
func (f *fleet) knocks(since time.Duration) (n int) {
	for _, node := range f.nodes {
		for _, s := range node.sent {
			if _, ok := s.Output.(engine.Knock); ok && s.at >= since {
				n++
			}
		}
	}
	return n
}

// TestVisitedWorkerReadsThePlan: a worker of a large fleet that does not watch reads the plan when somebody connects to
// it, and so that the answer is no older than the visit. A hostile client causes three such reads in a heartbeat interval
// at most.
func TestVisitedWorkerReadsThePlan(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20, 0, rebalance.Cooperative)
	f.wires = new(virtual.Wires)
	for range 10 {
		f.join()
	}
	f.until(3*time.Minute, f.even)
	f.Run(time.Minute)
	at := slices.IndexFunc(f.nodes, func(n *member) bool { return !slices.Contains(f.watchers(), n) })
	n := f.nodes[at]
	since := f.Now()
	for range 600 {
		n.Step(engine.Visited{})
		f.Run(100 * time.Millisecond)
	}
	reads := 0
	for _, s := range n.sent {
		list, ok := s.Output.(engine.List)
		if ok && s.at >= since && list.Query.Kind == lease.KindSeat && !list.Query.Eventually {
			reads++
		}
	}
	if beats := int(time.Minute / (f.config.TTL / 3)); reads < 2*beats || reads > 3*beats+1 {
		t.Errorf("%d consistent reads of the plan in a minute", reads)
	}
}

// TestEarlierAddressProvesNothing: an attempt to reach an address that the peer has published before is answered
// late.
func TestEarlierAddressProvesNothing(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	b, since := w.seat(w.named("b")), w.Now()
	w.named("a").Step(engine.Linked{Peer: b.Incarnation, Address: "another", Shows: engine.Refuses})
	w.named("a").Step(engine.Linked{Peer: "nobody", Address: "b", Shows: engine.Refuses})
	w.Run(5 * time.Second)
	if n := w.deletions(since); n > 0 {
		t.Errorf("%d deletions", n)
	}
}

// TestPeerAnswersAgain: the address refuses a connection, and the next attempt succeeds before the seats are
// listed.
func TestPeerAnswersAgain(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	b, since := w.seat(w.named("b")), w.Now()
	for _, name := range []string{"a", "c"} {
		w.named(name).Step(engine.Linked{Peer: b.Incarnation, Address: "b", Shows: engine.Refuses})
		w.named(name).Step(engine.Linked{Peer: b.Incarnation, Address: "b", Shows: engine.Answers})
	}
	w.Run(5 * time.Second)
	if n := w.deletions(since); n > 0 {
		t.Errorf("%d deletions", n)
	}
}

// TestOldProof: a worker is paused as soon as it has a proof, and does not reach the address after the pause. The peer
// has lived all the time.
func TestOldProof(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{4 * time.Second, time.Hour} {
		w := newWatched(t, 12, "abc", 10*time.Second)
		a, b := w.named("a"), w.named("b")
		shows := engine.Refuses
		w.wires.Lie = func(from, to *virtual.Process, truth engine.Shown) engine.Shown {
			if from.Name == "a" && to.Name == "b" {
				return shows
			}
			return truth
		}
		w.wires.Cut(&b.Process)
		w.Run(1500 * time.Microsecond)
		a.Pause()
		shows = engine.Silent
		w.Run(pause)
		a.Resume(nil)
		w.Run(20 * time.Second)
		b.never(event.Lost)
		w.wires.Lie = nil
		w.Run(time.Minute)
		b.Kill()
		if took := w.until(time.Minute, w.held); took > time.Second {
			t.Errorf("after a pause of %v b is missed after %v", pause, took)
		}
	}
}

// TestReasonOfAProof: the event of an eviction says what has proven the death, whatever the attempts show that come
// after the proof.
func TestReasonOfAProof(t *testing.T) {
	for _, later := range []engine.Shown{engine.Silent, engine.Refuses, engine.Answers} {
		w := newWatched(t, 12, "abc", time.Minute)
		a, b, proof := w.named("a"), w.seat(w.named("b")), errors.New("proof")
		a.Step(engine.Linked{Peer: b.Incarnation, Address: "b", Shows: engine.Refuses, Err: proof})
		if later != engine.Answers {
			a.Step(engine.Linked{Peer: b.Incarnation, Address: "b", Shows: later, Err: errors.New("later")})
		}
		for at := len(a.sent); len(a.reports(event.PeerEvicted)) == 0; w.Run(50 * time.Microsecond) {
			for ; at < len(a.sent); at++ {
				if send, ok := a.sent[at].Output.(engine.Send); ok && send.Write.Op == lease.OpDelete {
					a.Step(engine.Linked{Peer: b.Incarnation, Address: "b", Shows: later, Err: errors.New("later")})
				}
			}
		}
		if told := a.reports(event.PeerEvicted); !errors.Is(told[0].Err, proof) {
			t.Errorf("%d: reported: %v", later, told)
		}
	}
}

// TestExpiryIsNoMisjudgement: a worker that was paused for longer than its lease time, or that publishes no address,
// loses its seat by right.
func TestExpiryIsNoMisjudgement(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	b := w.named("b")
	b.Pause()
	w.Run(30 * time.Second)
	b.Resume(nil)
	w.Run(30 * time.Second)
	if told := b.reports(event.Misjudged); len(told) > 0 || w.seat(b).Address != "b" {
		t.Errorf("after a pause: %v; the seat is %+v", told, w.seat(b))
	}
	w.wires = nil
	d := w.enter("d", config(rebalance.Cooperative))
	w.until(time.Minute, w.even)
	w.write(protocol.Evict(w.seat(d)))
	w.Run(30 * time.Second)
	if told := d.reports(event.Misjudged); len(told) > 0 || len(d.reports(event.Lost)) != 1 {
		t.Errorf("without an address: %v, %v", told, d.reports(event.Lost))
	}
}

// TestRestoreIsNoMisjudgement: the table goes back in time, and lacks the seats. Nobody was taken for dead, so no worker
// hides its address.
func TestRestoreIsNoMisjudgement(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	w.table.Verified = lease.ErrWentBack
	for _, name := range []string{"a", "b", "c"} {
		w.write(protocol.Evict(w.seat(w.named(name))))
	}
	w.Run(10 * time.Second)
	for _, n := range w.nodes {
		if told := n.reports(event.Misjudged); len(told) > 0 && !told[len(told)-1].Over || w.seat(n).Address == "" {
			t.Errorf("%s reports %v; its seat is %+v", n.Name, told, w.seat(n))
		}
	}
	w.table.Verified = nil // the table is adopted
	w.until(time.Minute, w.even)
	w.named("b").Kill()
	if took := w.until(time.Minute, w.held); took > time.Second {
		t.Errorf("b is missed after %v", took)
	}
}

// links returns how many links workers have asked for.
func (f *fleet) links() (n int) {
	for _, of := range f.nodes {
		for _, s := range of.sent {
			if _, link := s.Output.(engine.Link); link {
				n++
			}
		}
	}
	return n
}

// open returns the peers to which a worker has asked for links and not ended them.
func (n *member) open() (open []lease.Incarnation) {
	for _, o := range n.sent {
		switch o := o.Output.(type) {
		case engine.Link:
			open = append(open, o.Peer)
		case engine.Unlink:
			open = slices.DeleteFunc(open, func(inc lease.Incarnation) bool { return inc == o.Peer })
		}
	}
	return open
}

// TestOnlyWatchersHaveLinks: in a fleet of 20 workers the eight watchers have one link to each other worker. A link
// ends when its worker has left. No link is made to a seat before its first heartbeat.
func TestOnlyWatchersHaveLinks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 40, 0, rebalance.Cooperative)
	f.wires = new(virtual.Wires)
	for range 20 {
		f.join()
	}
	check := func(when string) {
		t.Helper()
		watchers := 0
		for _, n := range f.up() {
			if open := n.open(); len(open) > 0 {
				if watchers++; len(open) != len(f.up())-1 {
					t.Errorf("%s: %s has %d links", when, n.Name, len(open))
				}
			}
		}
		if watchers != lease.MaxWatchers {
			t.Errorf("%s: %d workers have links", when, watchers)
		}
	}
	f.until(3*time.Minute, f.even)
	f.Run(30 * time.Second)
	check("20 workers")
	f.nodes[3].Step(engine.Stop{})
	f.until(2*time.Minute, f.nodes[3].Engine.Done)
	f.nodes[3].Kill()
	f.until(time.Minute, f.even)
	f.Run(30 * time.Second)
	check("one has left")
	seat, err := protocol.Sit(lease.Seat{Group: "g", Incarnation: "late", Name: "late", TTL: time.Hour}, f.stamp())
	next := seat.Next.(lease.Seat)
	next.Address = f.nodes[0].Name
	seat.Next = next
	f.write(seat, err)
	f.Run(30 * time.Second)
	check("a seat is not confirmed")
}

// TestLinksOutliveASeat: a worker that has lost its seat keeps its links to the others.
func TestLinksOutliveASeat(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	a, before := w.named("a"), w.links()
	w.write(protocol.Evict(w.seat(a)))
	w.Run(30 * time.Second)
	if len(a.reports(event.Lost)) != 1 || !w.even() {
		t.Fatalf("lost %v, held %v", a.reports(event.Lost), w.counts())
	}
	if n := w.links() - before; n != 0 { // the others see no address: it seems to have been misjudged
		t.Errorf("%d links are made", n)
	}
}

// TestNewcomerIsWatchedAtOnce: a newcomer connects to the others, which list the seats because of that. If it dies
// a moment later, its death is proven.
func TestNewcomerIsWatchedAtOnce(t *testing.T) {
	w := newWatched(t, 12, "abc", time.Minute)
	c := config(rebalance.Cooperative)
	c.TTL, c.Audit = time.Minute, time.Minute
	d := w.enter("d", c)
	w.Run(1500 * time.Millisecond)
	inc := d.Engine.Status().Incarnation
	d.Kill()
	gone := func() bool { return w.seat(d).Incarnation != inc }
	if took := w.until(time.Minute, gone); took > time.Second {
		t.Errorf("the seat is gone after %v", took)
	}
}

// TestVisitorsCostLittle: a hostile client connects ten times a second. The workers list the seats three times more
// in a heartbeat interval at most.
func TestVisitorsCostLittle(t *testing.T) {
	w := newWatched(t, 12, "abc", 10*time.Second)
	clear(w.calls)
	for range 600 {
		w.named("b").Step(engine.Visited{})
		w.Run(100 * time.Millisecond)
	}
	listings := 0
	for what, n := range w.calls {
		if strings.HasPrefix(what, "list seat") || strings.HasPrefix(what, "page of seat") {
			listings += n
		}
	}
	if listings > 3*20+3*20 {
		t.Errorf("%d listings of the seats in a minute", listings)
	}
}
