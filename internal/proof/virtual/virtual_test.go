package virtual_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestTimeKeepsOrder: things happen by their time, and at one instant in the order in which they
// were put into the queue; also those that are put there meanwhile.
func TestTimeKeepsOrder(t *testing.T) {
	var w virtual.Time
	var got []string
	note := func(what string) func() { return func() { got = append(got, fmt.Sprint(w.Now(), " ", what)) } }
	for i := range 20 {
		w.After(time.Duration(i*7%5)*time.Second, note(fmt.Sprint(i)))
	}
	w.After(time.Second, func() { w.After(-time.Second, note("late")) })
	w.Run(time.Second)
	want := []string{"0s 0", "0s 5", "0s 10", "0s 15", "1s 3", "1s 8", "1s 13", "1s 18", "1s late"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	w.RunWhile(time.Hour, func() bool { return len(got) < 11 })
	if len(got) != 11 || w.Now() != time.Hour+time.Second {
		t.Errorf("%d things happened by %v, want 11 of 20", len(got), w.Now())
	}
}

// A script is an engine that records its inputs, and wants to be called at an instant.
type script struct {
	inputs []string
	wake   engine.Instant
	next   []engine.Output
}

func (s *script) Step(now engine.Moment, in engine.Input) ([]engine.Output, engine.Instant) {
	s.inputs = append(s.inputs, fmt.Sprintf("%v %T", time.Duration(now.Mono), in))
	out := s.next
	s.next = nil
	if now.Mono >= s.wake {
		s.wake = engine.Never
	}
	return out, s.wake
}

func (s *script) Done() bool            { return false }
func (s *script) Status() engine.Status { return engine.Status{} }
func (s *script) Clone() virtual.Engine { return new(*s) }
func (s *script) Hash() uint64          { return uint64(len(s.inputs)) }

// A machine runs scripts.
type machine struct {
	virtual.Process
	virtual.Quiet
	*script
	time virtual.Time
	did  []string
}

func boot(rate int64, s *script) *machine {
	m := &machine{script: s}
	m.Process = virtual.Process{Time: &m.time, Name: "m", Clock: virtual.Clock{Rate: rate}}
	m.Shell = m
	m.Boot(0, func() virtual.Engine { return s })
	return m
}

func (m *machine) Step(in engine.Input)  { m.Process.Step(in) }
func (m *machine) Moment() engine.Moment { return m.MomentOf("m") }
func (m *machine) Call(o engine.Output)  { m.note(o, nil) }
func (m *machine) Poll()                 { m.note(engine.Poll{}, nil) }

func (m *machine) Start(h *virtual.Handler, o engine.Start) { m.note(o, h) }
func (m *machine) Drain(h *virtual.Handler, o engine.Drain) { m.note(o, h) }
func (m *machine) Over(h *virtual.Handler, o engine.Over)   { m.note(o, h) }

func (m *machine) note(o engine.Output, h *virtual.Handler) {
	m.did = append(m.did, fmt.Sprintf("%T %t %d", o, h != nil, len(m.Handlers)))
}

// TestProcessWakesItsEngine: by its own clock, at the last moment that the engine has named.
func TestProcessWakesItsEngine(t *testing.T) {
	m := boot(500, &script{wake: engine.Instant(time.Second)}) // at half the speed
	m.time.Run(time.Second)
	m.wake = engine.Instant(800 * time.Millisecond)
	m.Step(engine.Stop{})
	m.time.Run(time.Hour)
	want := []string{"0s engine.Tick", "500ms engine.Stop", "800ms engine.Tick"}
	if !slices.Equal(m.inputs, want) {
		t.Errorf("got %q", m.inputs)
	}
}

// TestProcessPauses: what arrives in a pause happens after it, in order.
func TestProcessPauses(t *testing.T) {
	m := boot(1000, &script{wake: engine.Instant(time.Second)})
	m.Answer(1500*time.Millisecond, engine.Got{})
	m.Pause()
	m.time.Run(2 * time.Second)
	m.Step(engine.Stop{})
	if len(m.inputs) != 1 {
		t.Errorf("a paused process was given %q", m.inputs[1:])
	}
	m.Resume(nil)
	if want := []string{"2s engine.Tick", "2s engine.Got", "2s engine.Stop"}; !slices.Equal(m.inputs[1:], want) {
		t.Errorf("got %q", m.inputs[1:])
	}
}

// TestProcessDies: a request that a process has sent is served after its death; no answer reaches
// the process or its successor.
func TestProcessDies(t *testing.T) {
	m := boot(1000, &script{wake: engine.Never})
	served := 0
	serve := func() engine.Input { served++; return engine.Got{} }
	first := m.Sender()
	m.Deliver(time.Second, time.Second, serve)    // on its way to the table
	m.Deliver(time.Millisecond, time.Hour, serve) // on its way back
	m.Later(time.Minute, func() { t.Error("a dead process goes on") })
	m.time.Run(time.Millisecond)
	m.Kill()
	m.Step(engine.Stop{})
	m.Boot(m.time.Now(), func() virtual.Engine { return m.script })
	m.time.Run(2 * time.Hour)
	if want := []string{"0s engine.Tick", "0s engine.Tick"}; served != 2 || !slices.Equal(m.inputs, want) {
		t.Errorf("served %d times; got %q", served, m.inputs)
	}
	if m.Sender() == first {
		t.Error("two processes of one machine are one sender")
	}
}

// A one is a worker that runs a script.
type one struct {
	virtual.Worker
	*script
}

func (o *one) Step(in engine.Input) { o.Worker.Step(in) }
func (o *one) Call(engine.Output)   {}
func (o *one) Poll()                {}

// TestWorkerEndsItsHandlers: a handler of a worker returns a while after it was told to wind down, at once when it is over,
// and not at all if it is stuck.
func TestWorkerEndsItsHandlers(t *testing.T) {
	var clock virtual.Time
	tenure := func(shard string) engine.Tenure { return engine.Tenure{Shard: shard, Generation: 1} }
	o := &one{script: &script{wake: engine.Never}}
	o.Process, o.Winds, o.Shell = virtual.Process{Time: &clock, Name: "o"}, time.Minute, o
	o.Boot(0, func() virtual.Engine { return o.script })
	o.next = []engine.Output{
		engine.Start{Tenure: tenure("winds")}, engine.Start{Tenure: tenure("over")}, engine.Start{Tenure: tenure("runs")},
		engine.Drain{Tenure: tenure("winds")}, engine.Over{Tenure: tenure("over")},
	}
	o.Step(engine.Tick{})
	left := func() (names []string) {
		for _, h := range o.Handlers {
			names = append(names, h.Shard)
		}
		return names
	}
	for _, want := range [][]string{{"runs", "winds"}, {"runs"}} {
		clock.Run(59 * time.Second)
		if got := left(); !slices.Equal(got, want) {
			t.Errorf("after %v these run: %q, want %q", clock.Now(), got, want)
		}
	}
	if n := len(o.inputs); n != 4 || o.inputs[3] != "1m0s engine.Returned" {
		t.Errorf("got %q", o.inputs)
	}
	o.next, o.Stuck = []engine.Output{engine.Over{Tenure: tenure("runs")}}, true
	o.Step(engine.Tick{})
	if took, ok := clock.Until(time.Minute, time.Second, func() bool { return len(o.Handlers) == 0 }); ok || took <= time.Minute {
		t.Errorf("a stuck handler has returned after %v", took)
	}
	if !o.Return(tenure("runs"), true) || o.Return(tenure("runs"), true) || len(o.Handlers) > 0 {
		t.Errorf("after it was made to return, these run: %q", left())
	}
	o.next = []engine.Output{engine.Start{Tenure: tenure("killed")}}
	o.Step(engine.Tick{})
	if o.Kill(); len(o.Handlers) > 0 {
		t.Errorf("in a process that was killed these run: %q", left())
	}
}

// TestHostKnowsItsHandlers: a handler is among the others from after its start until it is
// removed, and a clone has handlers of its own.
func TestHostKnowsItsHandlers(t *testing.T) {
	a, b := engine.Tenure{Shard: "a", Generation: 1}, engine.Tenure{Shard: "b", Generation: 7}
	m := boot(1000, &script{wake: engine.Never})
	m.next = []engine.Output{
		engine.Start{Tenure: b}, engine.Start{Tenure: a}, engine.Drain{Tenure: a}, engine.Over{Tenure: engine.Tenure{Shard: "b"}},
	}
	m.Step(engine.Tick{})
	want := []string{"engine.Start true 0", "engine.Start true 1", "engine.Drain true 2", "engine.Over false 2"}
	if !slices.Equal(m.did, want) || m.Handlers[0].Tenure != a || !m.Handlers.Of(a).Soft || m.Handlers.Of(b).Over {
		t.Errorf("did %q; handlers %+v", m.did, m.Handlers)
	}
	c := m.Host.Clone()
	c.Handlers[1].Marks = 5
	if !c.Handlers.Remove(a) || c.Handlers.Remove(a) || len(m.Handlers) != 2 || m.Handlers.Of(b).Marks != 0 {
		t.Errorf("after a change of its clone: %+v", m.Handlers)
	}
}

// records sees what a table accepts.
type records []string

func (r *records) Accepted(by virtual.Sender, w lease.Write, after lease.Record) {
	*r = append(*r, fmt.Sprint(by.Name, " ", w.Op, " ", after != nil))
}

// TestTable: a table answers as its store does, except where a record is unreadable, a listing
// lags behind, or the table is another one.
func TestTable(t *testing.T) {
	var clock virtual.Time
	seen := new(records)
	table := virtual.Table{Store: new(memstore.Store), Watcher: seen, Time: &clock, Stale: func() (time.Duration, bool) { return time.Second, true }}
	sit := func(name string) lease.Key {
		w, err := protocol.Sit(lease.Seat{Group: "g", Incarnation: lease.Incarnation(name), Name: name, TTL: time.Second}, protocol.Stamp{ID: lease.WriteID(name), At: virtual.Epoch()})
		if err != nil {
			t.Fatal(err)
		}
		in := table.Serve(virtual.Sender{Name: name}, engine.Send{Write: w})
		if err := in.(engine.Settled).Err; err != nil {
			t.Fatal(err)
		}
		return w.Key()
	}
	list := func(eventually bool) engine.Listed {
		q := lease.Query{Group: "g", Kind: lease.KindSeat, Eventually: eventually}
		return table.Serve(virtual.Sender{}, engine.List{Query: q}).(engine.Listed)
	}
	a := sit("a")
	clock.Run(time.Second)
	sit("b")
	if late, now := list(true), list(false); len(late.Records) != 1 || len(now.Records) != 2 || table.Lagged != 1 {
		t.Errorf("a listing of a second ago has %d seats, one of now %d", len(late.Records), len(now.Records))
	}
	if want := (records{"a create true", "b create true"}); !reflect.DeepEqual(*seen, want) {
		t.Errorf("the watcher saw %q", *seen)
	}
	if seats := table.Seats("g"); len(seats) != 2 || table.Read(a).(lease.Seat).Name != seats[0].Name || table.Plan("g").Revision != 0 || table.Row("g", "a").Generation != 0 || table.Wishes("g").Group != "g" {
		t.Errorf("the table has the seats %v, %v as the first, and %v", seats, table.Read(a), table.Wishes("g"))
	}
	table.Unreadable = map[lease.Key]bool{a: true}
	got := table.Serve(virtual.Sender{}, engine.Get{Key: a}).(engine.Got)
	if in := list(false); len(in.Records) != 1 || len(in.Unreadable) != 1 || in.Unreadable[0].Key != a || !errors.Is(got.Err, lease.ErrMalformed) {
		t.Errorf("an unreadable seat: listed %v, read %v", in, got)
	}
	table.Restore(new(memstore.Store))
	table.Verified = lease.ErrWentBack
	if in := table.Serve(virtual.Sender{}, engine.Verify{}).(engine.Verified); in.Err == nil || len(list(true).Records) != 0 {
		t.Error("the table that was restored is the former")
	}
}
