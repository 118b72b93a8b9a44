package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The table does not answer some calls of a worker.

// TestOneWriteAtATime: the writes of one kind of record fail, each so slowly that the next one is due before. No worker
// has two writes of one record under way (member.oneAtATime), and all go on.
func TestOneWriteAtATime(t *testing.T) {
	t.Parallel()
	for kind, after := range map[lease.Kind]time.Duration{
		lease.KindLease: 5 * time.Second, lease.KindSeat: 2 * time.Second, lease.KindPlan: 2 * beat, lease.KindTarget: 5 * time.Second, lease.KindWishes: 5 * time.Second,
	} {
		f := newFleet(t, 24, 12, rebalance.Eager)
		f.fail(after, func(_ *member, o engine.Output) bool { return sends(o, kind) })
		f.wish(f.look("nothing", time.Second))
		since := f.Now()
		if kind == lease.KindTarget {
			f.join()
		}
		for range 60 {
			for _, n := range f.up() {
				for _, h := range n.Handlers {
					n.flush(h)
				}
			}
			f.Run(500 * time.Millisecond)
		}
		again := false
		for _, n := range f.nodes {
			again = again || len(n.writes(kind, since)) > 1
		}
		if !again {
			t.Errorf("no worker has written a %v again", kind)
		}
		f.deaf = nil
		f.until(time.Minute, f.held)
	}
}

// committing returns a fleet whose workers may not be without commits for long, and which has settled.
func committing(t *testing.T, shards, workers int) *fleet {
	f := newFleet(t, shards, 0, rebalance.Eager)
	f.config.CommitTimeout = 15 * time.Second
	for range workers {
		f.join()
	}
	f.until(time.Minute, f.even)
	f.Run(30 * time.Second)
	return f
}

// marking lets all handlers commit once a second.
func (f *fleet) marking(d time.Duration) {
	for range d / time.Second {
		for _, n := range f.up() {
			for _, h := range slices.Clone(n.Handlers) {
				if !h.Soft {
					n.flush(h)
				}
			}
		}
		f.Run(time.Second)
	}
}

// TestAWorkerThatCannotWriteRows: the table takes the heartbeats of a worker, and no write of a row. After CommitTimeout
// the worker winds its handlers down and gives up its seat, once, and the others process its shards. It reports the fault,
// and its end when its writes pass again.
func TestAWorkerThatCannotWriteRows(t *testing.T) {
	f := committing(t, 12, 3)
	n := f.nodes[1]
	n.mute = func(o engine.Output) bool { return sends(o, lease.KindLease) }
	since := f.Now()
	f.marking(14 * time.Second)
	if told := n.reports(event.CommitsFail); len(told) > 0 || len(n.reports(event.Lost)) > 0 {
		t.Errorf("before CommitTimeout: %v", told)
	}
	f.marking(10 * time.Second)
	if told := n.reports(event.CommitsFail); len(told) == 0 || told[0].Over {
		t.Errorf("commits fail: %v", told)
	}
	if n.Engine.Status().Incarnation != "" {
		t.Error("it does not rest before it takes another seat")
	}
	lost := n.reports(event.Lost)
	if len(lost) != 1 || lost[0].Cause != event.CauseStalled || lost[0].at > since+20*time.Second {
		t.Errorf("the seat was lost: %v", lost)
	}
	for _, e := range n.reports(event.Draining) {
		if e.Cause != event.CauseStalled {
			t.Errorf("a handler winds down as %v", e.Cause)
		}
	}
	f.until(5*time.Second, f.held)
	f.marking(time.Minute)
	n.mute = nil
	f.until(2*time.Minute, f.even)
	f.marking(time.Minute)
	if told := n.reports(event.CommitsFail); !told[len(told)-1].Over {
		t.Errorf("when its writes pass: %v", told)
	}
	if !f.even() {
		t.Errorf("%v", f.counts())
	}
}

// TestALoneWorkerKeepsItsSeat: nobody could take its shards over, so it reports that its commits fail, and goes on.
func TestALoneWorkerKeepsItsSeat(t *testing.T) {
	f := committing(t, 4, 1)
	n := f.nodes[0]
	n.mute = func(o engine.Output) bool { return sends(o, lease.KindLease) }
	f.marking(time.Minute)
	n.mute = nil
	f.marking(20 * time.Second)
	told := n.reports(event.CommitsFail)
	if len(told) < 3 || told[1].Count != 4 || !told[len(told)-1].Over {
		t.Errorf("commits fail: %v", told)
	}
	if ended := n.reports(event.Ended); len(ended) > 0 || len(n.Handlers) != 4 {
		t.Errorf("ended: %v", ended)
	}
}

// TestOneRowThatCannotBeWritten: one row of a worker is not written, and its other handlers are quiet. The worker writes
// one of their rows to find out which it is, keeps its seat, and ends no tenure.
func TestOneRowThatCannotBeWritten(t *testing.T) {
	f := committing(t, 8, 2)
	n := f.nodes[0]
	h := n.Handlers[0]
	n.mute = func(o engine.Output) bool { send, is := o.(engine.Send); return is && send.Write.Key().Name == h.Shard }
	since := f.Now()
	n.flush(h)
	f.Run(2 * time.Minute)
	probed := map[string]int{}
	for _, s := range n.writes(lease.KindLease, since) {
		probed[s.Output.(engine.Send).Write.Key().Name]++
	}
	if len(n.reports(event.Lost))+len(n.reports(event.Ended)) > 0 || len(n.Handlers) != 4 {
		t.Errorf("one row is not written: lost %v, ended %v", n.reports(event.Lost), n.reports(event.Ended))
	}
	if len(probed) != 2 {
		t.Errorf("it has written the rows %v, want the one that fails and another one", probed)
	}
	if told := n.reports(event.CommitsFail); len(told) == 0 || told[0].Shard != h.Shard {
		t.Errorf("commits fail: %v", told)
	}
}

// TestASlowStoreIsReported: the shell finds the store slow. That is reported once, and its end too.
func TestASlowStoreIsReported(t *testing.T) {
	f := newFleet(t, 1, 1, rebalance.Eager)
	n, slow := f.nodes[0], errors.New("answers take too long")
	for _, err := range []error{slow, slow, nil, nil} {
		n.Step(engine.StoreSlow{Err: err})
	}
	if told := n.reports(event.StoreFault); len(told) != 2 || told[0].Over || !errors.Is(told[0].Err, slow) || !told[1].Over {
		t.Errorf("reports: %v", told)
	}
}

// TestAnotherFaultOfTheSource: a fault of the source is reported once, although its text has another number each time.
// Another fault is reported at once.
func TestAnotherFaultOfTheSource(t *testing.T) {
	f := newFleet(t, 1, 1, rebalance.Eager)
	n := f.nodes[0]
	for _, text := range []string{"request 1 was denied", "request 22 was denied", "no route", "no route"} {
		n.Step(engine.Source{Err: errors.New(text)})
	}
	told := n.reports(event.SourceFault)
	if len(told) != 2 || told[0].Err.Error() != "request 1 was denied" || told[1].Err.Error() != "no route" {
		t.Errorf("reports: %v", told)
	}
	n.Step(f.source)
	if told = n.reports(event.SourceFault); len(told) != 3 || !told[2].Over {
		t.Errorf("when it lists again: %v", told)
	}
}
