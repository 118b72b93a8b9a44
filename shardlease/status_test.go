package shardlease_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// probed is the body of a probe's answer.
type probed struct {
	OK     bool
	Reason string
	Status struct {
		Phase, Unhealthy, Unready string
		Held                      int
		TrustSeconds              float64
	}
}

// probe calls one of the probes of a worker.
func probe(t *testing.T, w *shardlease.Worker, path string) (code int, body probed) {
	t.Helper()
	out := httptest.NewRecorder()
	w.Probes().ServeHTTP(out, httptest.NewRequest(http.MethodGet, path, nil))
	if err := json.Unmarshal(out.Body.Bytes(), &body); err != nil || out.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s answers %q: %v", path, out.Body, err)
	}
	if body.OK != (out.Code == http.StatusOK) || body.OK != (body.Reason == "") {
		t.Errorf("%s answers %d: %+v", path, out.Code, body)
	}
	return out.Code, body
}

// expect checks both probes; reason is a part of the reason why the worker is not ready.
func expect(t *testing.T, w *shardlease.Worker, live int, reason string) {
	t.Helper()
	if code, body := probe(t, w, "/livez"); code != live {
		t.Errorf("/livez: %d, %+v", code, body)
	}
	code, body := probe(t, w, "/readyz")
	if (code == http.StatusOK) != (reason == "") || !strings.Contains(body.Reason, reason) || body.Status.Unready != body.Reason {
		t.Errorf("/readyz: %d, %+v", code, body)
	}
}

// A jam is a handoff strategy that blocks while there is something in it.
type jam struct{ blocked atomic.Pointer[chan struct{}] }

func (j *jam) Terms(string, rebalance.Why) rebalance.Terms {
	if blocked := j.blocked.Load(); blocked != nil {
		<-*blocked
	}
	return rebalance.Terms{Mode: rebalance.Eager}
}

// TestStuckLoopIsNotAlive: a handoff strategy blocks the run loop, so the worker cannot send
// heartbeats, and only a restart helps: /livez fails after a lease time.
func TestStuckLoopIsNotAlive(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		j, store, source := &jam{}, new(memstore.Store), shardlease.Static("1", "2")
		other := join(t, store, source, shardlease.Config{}, count)
		w := join(t, store, source, shardlease.Config{Handoff: j}, count)
		pass(time.Minute)
		expect(t, w.Worker, http.StatusOK, "")
		blocked := make(chan struct{})
		j.blocked.Store(&blocked)
		go other.leave() // makes the worker request a shard
		pass(beat + time.Second)
		expect(t, w.Worker, http.StatusOK, "")
		pass(ttl)
		expect(t, w.Worker, http.StatusServiceUnavailable, "Handoff or Order may block")
		if s := w.Status(); s.Trust != 0 || s.Unhealthy == "" || s.Phase != "serving" {
			t.Errorf("the status is %+v", s)
		}
		j.blocked.Store(nil)
		close(blocked)
		pass(ttl)
		expect(t, w.Worker, http.StatusOK, "")
	})
}

// TestSilentTableIsNoReasonToRestart: the table answers nothing, and its client may ignore
// its contexts. The worker is neither ready nor healthy. But a restart does not bring the
// table back, so /livez answers 200 throughout, and also before and after Run.
func TestSilentTableIsNoReasonToRestart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		m := storetest.NewLink(new(memstore.Store))
		joinAs := func(name string) *member {
			return join(t, m, shardlease.Static("1"), shardlease.Config{Name: name}, count, func(w *shardlease.Worker) { expect(t, w, http.StatusOK, "it is not running") })
		}
		w := joinAs("a")
		pass(time.Minute)
		expect(t, w.Worker, http.StatusOK, "")
		until := make(chan struct{})
		m.OnWrite(func(_ context.Context, _ lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
			<-until // not even when the context ends
			return send()
		})
		late := joinAs("b") // has never received an answer
		for range 60 {
			pass(10 * time.Second)
			expect(t, w.Worker, http.StatusOK, "it has no seat yet")
			expect(t, late.Worker, http.StatusOK, "it has no seat yet")
			if s := w.Status(); s.Unhealthy == "" || s.Phase != "joining" || s.Trust != 0 {
				t.Fatalf("%+v", s)
			}
		}
		m.OnWrite(nil)
		close(until)
		pass(time.Minute)
		expect(t, w.Worker, http.StatusOK, "")
		expect(t, late.Worker, http.StatusOK, "")
		w.leave()
		expect(t, w.Worker, http.StatusOK, "it is not running")
	})
}

// TestReadyTellsWhatIsMissing: a worker that knows no shards is not ready while its source
// fails or blocks. It is ready if its source lists no shards.
func TestReadyTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, back := &river{}, make(chan struct{})
		r.set(errDown)
		deaf := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) { <-back; return nil, nil })
		a := join(t, new(memstore.Store), r, shardlease.Config{PollEvery: time.Second}, serve)
		b := join(t, new(memstore.Store), deaf, shardlease.Config{PollEvery: time.Second}, serve)
		synctest.Wait()
		pass(time.Minute)
		expect(t, a.Worker, http.StatusOK, "it has not listed the source yet: source: cannot be listed: "+errDown.Error())
		expect(t, b.Worker, http.StatusOK, "it has not listed the source yet: source: no answer before the deadline")
		if err := a.Ready(); !errors.Is(err, errDown) {
			t.Errorf("Ready returned %v, which does not include the error of the source", err)
		}
		r.set(nil)
		close(back)
		pass(10 * time.Second)
		expect(t, a.Worker, http.StatusOK, "")
		expect(t, b.Worker, http.StatusOK, "")
	})
}

// TestSeatDescribesItsWorker: a seat shows the build, the handoff strategy and the backoff of its worker,
// and since when the worker has had this seat.
func TestSeatDescribesItsWorker(t *testing.T) {
	t.Parallel()
	custom := rebalance.HandoffFunc(func(string, rebalance.Why) rebalance.Terms { return rebalance.Terms{Mode: rebalance.Eager} })
	for _, c := range []struct {
		config  shardlease.Config
		handoff string
		backoff time.Duration
	}{
		{shardlease.Config{Build: "v1.4.2", Handoff: rebalance.Cooperative}, "cooperative", 0},
		{shardlease.Config{Build: "v1.5.0-rc.1", Handoff: new(rebalance.Terms{Mode: rebalance.Eager, Drain: 30 * time.Second, AfterDrain: rebalance.Wait}), Backoff: -1}, "eager 30s wait default", -time.Millisecond},
		{shardlease.Config{Build: "2b1ba3f20cde+dirty", Handoff: custom, Backoff: time.Minute}, "custom", time.Minute},
	} {
		bubble(t, func(t *testing.T) {
			from := time.Now()
			s := staged(t, 2, c.config, nil, "a")
			for range 2 {
				time.Sleep(time.Minute)
				seats, err := s.operator().Workers(t.Context())
				must(t, err)
				if len(seats) != 1 || seats[0].Build != c.config.Build || seats[0].Handoff != c.handoff || seats[0].Backoff != c.backoff {
					t.Fatalf("seats %+v", seats)
				}
				if took := seats[0].Since.Sub(from); took < 0 || took > beat+time.Second {
					t.Errorf("the seat was taken %v after the worker had none", took)
				}
				from = time.Now()
				_, err = s.operator().Evict(t.Context(), seats[0].Incarnation, "test")
				must(t, err)
				s.shared(2*beat, "a") // with a new seat
			}
		})
	}
}

// TestStatus checks the status of a worker from its first seat to its end.
func TestStatus(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		config := shardlease.Config{Handoff: rebalance.Eager, Task: "run-17", Commit: checkpoint.Policy{Every: 5 * time.Second}}
		link := storetest.NewLink(s.store)
		link.Cut()
		a := s.enterOn(link, "a", config, workingFor(5*time.Second))
		synctest.Wait()
		if got := a.Status(); got.Phase != "joining" || got.Unready == "" {
			t.Errorf("while it has no seat: %+v", got)
		}
		link.Heal()
		s.shared(time.Second, "a")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		got := a.Status()
		if got.Group != "orders" || got.Name != "a" || got.Task != "run-17" || got.Incarnation != s.row("shard-00").Owner.Incarnation ||
			got.Phase != "serving" || got.Held != 4 || got.Moving+got.Requested != 0 || got.Unhealthy+got.Unready != "" {
			t.Errorf("alone: %+v", got)
		}
		if got.Trust < ttl/2 || got.Trust > ttl*9/10 || got.OldestMark == 0 || got.OldestMark > 5200*time.Millisecond {
			t.Errorf("alone: %+v", got)
		}
		a.refuse(isByHolder)
		time.Sleep(20 * time.Second)
		if got := a.Status(); got.OldestMark < 20*time.Second || got.OldestMark > 26*time.Second {
			t.Errorf("while the table accepts no commits: %+v", got)
		}
		a.refuse(nil)
		time.Sleep(10 * time.Second)
		if got := a.Status(); got.OldestMark > 5200*time.Millisecond {
			t.Errorf("when it accepts commits again: %+v", got)
		}
		b := s.enter("b", config, workingFor(5*time.Second))
		s.within(beat+2*time.Second, "b requests two shards", func() bool { return b.Status().Requested == 2 && a.Status().Moving == 2 })
		if a.Status().Settled || b.Status().Settled {
			t.Errorf("settled in the middle of a move: %+v, %+v", a.Status(), b.Status())
		}
		s.shared(10*time.Second, "a", "b")
		s.within(2*beat, "both are settled, and so say their seats", func() bool {
			plan, _ := s.store.Get(t.Context(), lease.Plan{Group: "orders"}.Key())
			revision := plan.(lease.Plan).Revision
			seats, err := s.operator().Workers(t.Context())
			said := func(seat lease.Seat) bool { return seat.Settled && seat.Revision == revision }
			is := func(got shardlease.Status) bool { return got.Settled && got.Revision == revision && got.Held == 2 }
			return err == nil && is(a.Status()) && is(b.Status()) && said(seats[0]) && said(seats[1])
		})
		go a.leave()
		s.within(time.Second, "a is leaving", func() bool {
			return a.Status().Phase == "leaving" && strings.Contains(a.Status().Unready, "it shuts down")
		})
		s.within(10*time.Second, "a has stopped", func() bool { return a.Status().Phase == "stopped" })
		go b.leave()
		s.within(time.Second, "b is draining", func() bool { return b.Status().Phase == "draining" })
	})
}

// TestOldestMarkDuringAWrite: two marks are made while the write of an earlier one is under way.
// When that write is answered, OldestMark is the age of the first of the two, also if the first
// attempt was not answered. (It was the time since the answer.)
func TestOldestMarkDuringAWrite(t *testing.T) {
	for name, answer := range map[string]error{"answered": nil, "not answered at first": errDown} {
		subtest(t, name, func(t *testing.T) {
			s := newStage(t, 2)
			begun := make(chan *shardlease.Tenure, 2)
			config := shardlease.Config{Handoff: rebalance.Eager, Commit: checkpoint.Policy{Every: time.Hour}}
			a := s.enter("a", config, func(ctx context.Context, tn *shardlease.Tenure) error {
				begun <- tn
				return serve(ctx, tn)
			})
			tn, other := <-begun, <-begun
			a.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
				if w.Key().Kind == lease.KindSeat {
					return send()
				}
				a.OnWrite(nil)
				record, err := send()
				time.Sleep(2 * time.Second)
				return record, errors.Join(err, answer)
			})
			go func() { _ = tn.Commit(tn.Context(), "1") }()
			for _, later := range []string{"2", "3"} {
				time.Sleep(700 * time.Millisecond) // no step of the loop is due then
				_ = tn.Mark(later)
			}
			_ = other.Commit(other.Context(), "1") // a step of the loop, before which it takes in the two marks
			time.Sleep(3 * time.Second)
			if got := a.Status().OldestMark.Round(time.Millisecond); got != 3700*time.Millisecond {
				t.Errorf("the oldest mark is %v old, want 3.7s", got)
			}
			_ = tn.Flush(tn.Context())
			if got := a.Status().OldestMark; got != 0 {
				t.Errorf("the oldest mark is %v old, and there is none", got)
			}
		})
	}
}

// TestNoMarkWaitsLongerThanThePolicy: the handlers of four shards mark ten times a second, and no
// mark waits longer than Commit.Every. (A commit that was due left out the marks that were made
// since the last turn of the run loop, if the loop took in the marks of another shard first. They
// waited for the next commit.)
func TestNoMarkWaitsLongerThanThePolicy(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		config := shardlease.Config{Handoff: rebalance.Eager, Commit: checkpoint.Policy{Every: 5 * time.Second}}
		a := s.enter("a", config, workingFor(0))
		for range 1200 {
			time.Sleep(50 * time.Millisecond)
			if got := a.Status().OldestMark; got > 5050*time.Millisecond {
				t.Fatalf("a mark has waited for %v", got)
			}
		}
	})
}

// TestDrainingUntilRunReturns: a handler ignores its contexts, and Run waits for it. The worker
// is not stopped before Run has returned. Before, it was reported as stopped, and its Ready as
// "it is not running", while the handler still worked.
func TestDrainingUntilRunReturns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		m := join(t, new(memstore.Store), shardlease.Static("s"), shardlease.Config{TTL: ttl, Drain: ttl}, func(context.Context, *shardlease.Tenure) error {
			<-let
			return nil
		})
		pass(5 * time.Second)
		done := make(chan error, 1)
		go func() { done <- m.stop() }()
		pass(ttl + 2*time.Second)
		if err := m.Healthy(); err != nil {
			t.Errorf("unhealthy before its last heartbeat is a lease time old: %v", err)
		}
		pass(time.Minute)
		expect(t, m.Worker, http.StatusOK, "it shuts down")
		if s := m.Status(); s.Phase != "draining" || !strings.Contains(s.Unhealthy, "no heartbeat was confirmed") {
			t.Errorf("while Run waits: %+v", s)
		}
		close(let)
		check(t, <-done)
		expect(t, m.Worker, http.StatusOK, "it is not running")
		if s := m.Status(); s.Phase != "stopped" || !strings.Contains(s.Unhealthy, "it is not running") {
			t.Errorf("after Run: %+v", s)
		}
	})
}

func TestStatusAsJSON(t *testing.T) {
	status := shardlease.Status{
		Group: "orders", Name: "a", Incarnation: "a1", Phase: "serving", Revision: 1 << 53, Held: 3, Moving: 1, Requested: 2, Abandoned: 4, Released: 5, Lost: 6,
		Trust: 8250 * time.Millisecond, OldestMark: time.Second, Unready: "it shuts down",
	}
	text, err := json.Marshal(status)
	const want = `{"group":"orders","name":"a","incarnation":"a1","phase":"serving","revision":"9007199254740992","settled":false,"held":3,"moving":1,"requested":2,"abandoned":4,"released":5,"lost":6,` +
		`"trustSeconds":8.25,"oldestMarkSeconds":1,"unready":"it shuts down"}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	status.Settled = true
	status.Targets, status.Unraised = []string{"db", "mails"}, 2
	status.Task, status.Unhealthy, status.Trust = "a task", "no heartbeat was confirmed", 8251*time.Millisecond
	status.Refused, status.Waited, status.LongestWait = 7, 8, 90500*time.Millisecond
	text, err = json.Marshal(status)
	var back shardlease.Status
	const waits = `,"refused":7,"waited":8,"longestWaitSeconds":90.5}`
	if err := errors.Join(err, json.Unmarshal(text, &back)); err != nil || !reflect.DeepEqual(back, status) || !strings.HasSuffix(string(text), waits) {
		t.Errorf("%s was read back as %+v, %v", text, back, err)
	}
	status.Trust = 1747 * time.Millisecond
	if text, err = json.Marshal(status); err != nil || !strings.Contains(string(text), `"trustSeconds":1.747,`) {
		t.Errorf("a trust of 1.747 s is written as %s, %v", text, err)
	}
	status.Trust = back.Trust
	for _, text := range []string{`null`, `{}`, `{"trustSeconds":"8"}`} {
		if _ = json.Unmarshal([]byte(text), &back); !reflect.DeepEqual(back, status) {
			t.Errorf("%s changed the status to %+v", text, back)
		}
	}
}

// TestUnverifiedWorkerIsNotReady: a worker that is not allowed to ask whether its table was
// restored claims nothing. It was ready, so a rollout stopped the last worker that held shards.
func TestUnverifiedWorkerIsNotReady(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 2)
		link := storetest.NewLink(s.store)
		link.OnVerify(func(context.Context, string, func() error) error { return errors.New("access denied") })
		a := s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		time.Sleep(10 * time.Minute)
		expect(t, a.Worker, http.StatusOK, "the store has not confirmed yet that the table is the one it was: access denied")
		if phase := a.Status().Phase; phase != "joining" {
			t.Errorf("the phase is %s", phase)
		}
		link.OnVerify(nil)
		s.within(time.Minute, "the worker is ready", func() bool { return a.Ready() == nil })
	})
}

// TestDeafWorkerIsNotReady: the heartbeats of a worker are stored, and its reads are denied. It is not ready, tells why, and
// keeps what it holds.
func TestDeafWorkerIsNotReady(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s, denied := newStage(t, 2), errors.New("access denied")
		link := storetest.NewLink(s.store)
		a := s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		s.within(time.Second, "a holds all", func() bool { return s.running()["a"] == 2 && a.Ready() == nil })
		link.OnGet(func(context.Context, lease.Key, func() (lease.Record, error)) (lease.Record, error) {
			return nil, denied
		})
		link.OnList(func(context.Context, lease.Query, func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
			return func(yield func(lease.Record, error) bool) { yield(nil, denied) }
		})
		time.Sleep(2 * ttl)
		expect(t, a.Worker, http.StatusOK, "reads of the table fail: access denied")
		if told := a.of(event.Unwell); len(told) != 1 || s.running()["a"] != 2 {
			t.Errorf("%v; running: %v", told, s.running())
		}
		link.OnGet(nil)
		link.OnList(nil)
		s.within(2*beat, "the worker is ready", func() bool { return a.Ready() == nil })
	})
}

// TestUnseatedWorkerNamesTheFault: a worker may not write its seat. The reason why it is not ready
// includes the error of the store, until the worker has a seat.
func TestUnseatedWorkerNamesTheFault(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s, denied := newStage(t, 2), errors.New("access denied")
		link := storetest.NewLink(s.store)
		link.OnWrite(func(context.Context, lease.Write, func() (lease.Record, error)) (lease.Record, error) {
			return nil, denied
		})
		a := s.enterOn(link, "a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		time.Sleep(time.Minute)
		expect(t, a.Worker, http.StatusOK, "it has no seat yet: access denied")
		if err := a.Ready(); !errors.Is(err, denied) {
			t.Errorf("Ready returned %v, which does not include the error of the store", err)
		}
		link.OnWrite(nil)
		s.within(time.Minute, "the worker is ready", func() bool { return a.Ready() == nil })
	})
}

// TestAbandonedHandlersAreCounted: a handler ignores its contexts, and an operator releases its
// shard. No probe fails for that, but Status counts the handler until it returns.
func TestAbandonedHandlersAreCounted(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store, back, once := new(memstore.Store), make(chan struct{}), atomic.Bool{}
		handler := func(ctx context.Context, tn *shardlease.Tenure) error {
			if once.CompareAndSwap(false, true) {
				<-back
			}
			<-ctx.Done()
			return nil
		}
		w := join(t, store, shardlease.Static("1"), shardlease.Config{}, handler)
		counts := func(when string, want int) {
			t.Helper()
			expect(t, w.Worker, http.StatusOK, "")
			if got := w.Status().Abandoned; got != want {
				t.Errorf("%s: %d handlers are abandoned, want %d", when, got, want)
			}
		}
		pass(time.Minute)
		counts("before the release", 0)
		row := rowOf(t, store, "1")
		s := shardlease.Supervisor{Store: store, Group: row.Group, By: "ann"}
		if _, err := s.ForceRelease(t.Context(), "1", row.Generation, "hangs"); err != nil {
			t.Error(err)
		}
		pass(2 * time.Minute)
		counts("after the release", 1)
		back <- struct{}{}
		pass(2 * time.Minute)
		counts("after the return", 0)
		w.leave()
	})
}

// TestOrderMayCallStatus: Mark calls Order under the lock of the tenure, for which Status
// waited, and the run loop waited for Status.
func TestOrderMayCallStatus(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		var caller atomic.Pointer[actor]
		order := func(x, y string) (int, error) {
			if a := caller.Load(); a != nil {
				_ = a.Status()
			}
			return checkpoint.Decimal(x, y)
		}
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager, Order: order}, nil)
		caller.Store(a)
		time.Sleep(time.Minute)
		expect(t, a.Worker, http.StatusOK, "")
	})
}

// TestPausedProcessIsAlive: a process was paused for longer than a lease time, and a probe
// arrives before its run loop has turned again. Its run loop is not stuck.
func TestPausedProcessIsAlive(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		a := s.enter("a", shardlease.Config{Handoff: rebalance.Eager}, nil)
		time.Sleep(time.Minute)
		a.freeze()
		time.Sleep(2 * ttl)
		time.AfterFunc(10*time.Millisecond, a.thaw)
		if code, body := probe(t, a.Worker, "/livez"); code != http.StatusOK {
			t.Errorf("/livez: %d, %+v", code, body)
		}
	})
}
