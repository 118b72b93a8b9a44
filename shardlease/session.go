package shardlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has leases by name. A Session is a Worker with another engine: both have the same run
// loop, calls of the store and tenures. The handler of each tenure is Session.hold: it passes the
// Tenure to the waiting call of Acquire, and returns when the tenure is released or over.

// A SessionConfig is the configuration of a session. The zero value of a field means its default, and
// a negative duration turns a field off, as in [Config]. Group has no default.
type SessionConfig struct {
	// Group is the name that all sessions share that contend for the same leases. No worker can be
	// in a group of sessions. Required.
	Group string
	// Name identifies this session to people. It need not be unique. Default as in [Config].
	Name string
	// Task is what this session works on, as in [Config]. [AcquireOptions] can set a task for each
	// lease.
	Task string
	// Build is the version of this session's program, for people. Default as in [Config].
	Build string

	// TTL is the lease time: how long the heartbeat counter of this session may stand still before
	// a session that waits for one of its leases evicts it. The session sends one heartbeat for all
	// its leases, three times per TTL. Default 10 s; at least 300 ms.
	TTL time.Duration
	// Drain is how long holders may take to release their leases after the context of Run has
	// ended. Default as in [Config].
	Drain time.Duration
	// LockDelay is how long no session acquires the leases that this session has lost. A session loses its
	// leases when another session evicts it, or when a command takes them away (unless [Supervisor].NoDelay is set).
	// At a shutdown, it also loses each lease that its holder does not release within Drain. A release by the holder
	// causes no delay. Default none; at most a day.
	//
	// The delay is for sinks that cannot compare a generation. A paused process may still write when
	// it wakes up; during the delay such a write can arrive before the next holder begins. The delay
	// is no fence: a pause may be longer than any delay.
	LockDelay time.Duration

	// CommitTimeout, Commit, Order, Observe, EventQueue and Logger are as in [Config]. A session does
	// not give up its seat when its commits fail.
	CommitTimeout time.Duration
	Commit        checkpoint.Policy
	Order         checkpoint.Order
	Observe       func(event.Event)
	EventQueue    int
	Logger        *slog.Logger
}

// config returns the configuration of the worker inside the session.
func (c SessionConfig) config() (Config, error) {
	return Config{
		Group: c.Group, Name: c.Name, Task: c.Task, Build: c.Build, TTL: c.TTL, Drain: c.Drain, CommitTimeout: c.CommitTimeout,
		Commit: c.Commit, Order: c.Order, Observe: c.Observe, EventQueue: c.EventQueue, Logger: c.Logger,
		Handoff: rebalance.Eager, Backoff: -1,
	}.withDefaults()
}

// A Session holds any number of leases by name, in a group without a source and without a plan. All
// methods are safe for concurrent use.
//
// A lease needs no preparation: the first acquisition creates its row, and a release without a
// checkpoint turns the row into a tombstone. The generation of a name grows forever.
//
// If the session loses its seat, all its tenures end ([Tenure.Context]). The session then takes a new
// seat as another incarnation, which holds nothing. Calls of Acquire that wait continue to wait.
type Session struct {
	worker *Worker
	delay  time.Duration

	mu    sync.Mutex
	inbox *inbox // nil until Run is called
	over  error  // why the session can acquire no more leases; nil: it can
	ids   uint64
	names map[string]*acquisition
}

// An acquisition is a lease that this session waits for or holds.
type acquisition struct {
	in     engine.Acquire
	result chan acquired // has room for the one result
	tenure *Tenure       // nil: the session waits for the lease
}

type acquired struct {
	tenure *Tenure
	err    error
}

// NewSession returns a session. It reports all faults of its arguments at once.
func NewSession(store lease.Store, config SessionConfig) (*Session, error) {
	c, err := config.config()
	f := faults{}
	if isNil(store) {
		f.add("store", "must be given: a dynamostore.Store, or a memstore.Store to try things out"+nilOf(store))
	}
	delay, errDelay := lockDelay(config.LockDelay)
	f.wrap("LockDelay", errDelay)
	if err := errors.Join(err, errors.Join(f...)); err != nil {
		return nil, err
	}
	s := &Session{delay: delay, names: map[string]*acquisition{}}
	s.worker = &Worker{
		noun: "session", store: store, config: c, wall: time.Now, refuse: s.refuse,
		engine: func(c engine.Config, now engine.Moment) stepper {
			c.Strategy = "" // a session has no handoffs
			return engine.NewSession(c, now)
		},
	}
	return s, nil
}

// lockDelay returns a lock delay as rows store it: in whole milliseconds, rounded up.
func lockDelay(d time.Duration) (time.Duration, error) {
	d = (max(d, 0) + time.Millisecond - 1).Truncate(time.Millisecond)
	return d, lease.Owner{Name: "-", Incarnation: "-", LockDelay: d}.Validate()
}

// Run sends heartbeats, and acquires and holds the leases that callers of Acquire ask for, until ctx
// is cancelled. Then the soft contexts of all tenures end. Holders have [SessionConfig.Drain] to call
// [Tenure.Release]; after that the hard contexts of their tenures end. Run releases all leases, except
// those with a lock delay whose holders did not release them. It gives up the seat, and returns nil when
// everything that it started has ended.
//
// In a group of workers, Run acquires nothing and returns a [*GroupError]. Run reports a failure of
// the store as an event, and does not end. A Session runs once.
func (s *Session) Run(ctx context.Context) error {
	if isNil(ctx) {
		return &ConfigError{Field: "ctx", Rule: "must be given: its end stops the session" + nilOf(ctx)}
	}
	if !s.worker.ran.CompareAndSwap(false, true) {
		return ErrRunning
	}
	r := newRun(ctx, s.worker, s.hold)
	defer r.finish()
	defer s.close(ErrSessionOver)
	defer context.AfterFunc(ctx, func() { s.close(ErrSessionOver) })()
	s.open(r.inbox)
	r.loop(ctx)
	if err := r.foreign(); err != nil {
		s.close(err)
		return err
	}
	return nil
}

// AcquireOptions are the options of one acquisition.
type AcquireOptions struct {
	// Task is what this lease is for, as in [lease.Owner]. Default: [SessionConfig.Task].
	Task string
	// LockDelay replaces [SessionConfig.LockDelay] for this lease; negative: none.
	LockDelay time.Duration
}

// Acquire waits until this session holds the lease of that name, or ctx ends. If Run has not been
// called yet, Acquire also waits for Run. Sessions that wait for one lease acquire it in random order.
//
// The session holds the lease until [Tenure.Release] is called or [Tenure.Context] ends. If ctx ends
// before Acquire returns a tenure, the session does not keep the lease.
//
// Acquire returns at once with ErrHolding if the session holds the lease, with ErrWaiting if another
// call of the session waits for the lease, and with ErrSessionOver after the context of Run has ended.
// After a tenure was released or is over, the session can acquire the lease again. If the lease is
// finished, Acquire returns a [*HeldError].
func (s *Session) Acquire(ctx context.Context, name string, o AcquireOptions) (*Tenure, error) {
	return s.acquire(ctx, name, o, false)
}

// TryAcquire is Acquire for a caller that does not wait for a holder: if another session holds the lease,
// TryAcquire returns a [*HeldError] with the holder. It waits only until Run has a seat, and for the answers
// of the store. So give it a context with a deadline; if ctx ends first, the error says what the call waited
// for.
//
// TryAcquire does not detect that a holder has died: only an Acquire that waits for the lease time of
// the holder does. A lock delay counts from when the session first saw the loss, so a session that lives for less
// than the delay does not see its end.
func (s *Session) TryAcquire(ctx context.Context, name string, o AcquireOptions) (*Tenure, error) {
	return s.acquire(ctx, name, o, true)
}

func (s *Session) acquire(ctx context.Context, name string, o AcquireOptions, try bool) (*Tenure, error) {
	a, err := s.begin(ctx, name, o, try)
	if err != nil {
		return nil, fmt.Errorf("acquire %.64q: %w", name, err)
	}
	select {
	case got := <-a.result:
		return got.tenure, got.err
	case <-ctx.Done():
		s.forgo(a)
		return nil, fmt.Errorf("acquire %.64q: %w", name, s.gaveUp(ctx, try))
	}
}

// gaveUp returns the error of a call whose context has ended, with what it waited for, unless that was
// the holder of the lease.
func (s *Session) gaveUp(ctx context.Context, try bool) error {
	switch err := s.Ready(); {
	case err != nil:
		return fmt.Errorf("%w; it waited for the session: %w", ended(ctx), err)
	case try:
		return fmt.Errorf("%w; it waited for an answer of the store", ended(ctx))
	}
	return ended(ctx)
}

// begin records that a caller waits for a lease.
func (s *Session) begin(ctx context.Context, name string, o AcquireOptions, try bool) (*acquisition, error) {
	var f faults
	delay, errDelay := lockDelay(cmp.Or(o.LockDelay, s.delay))
	f.wrap("LockDelay", errDelay)
	f.wrap("Task", lease.Owner{Name: "-", Incarnation: "-", Task: o.Task}.Validate())
	if isNil(ctx) {
		f.add("ctx", "must be given: its end ends the wait"+nilOf(ctx))
	}
	f.wrap("name", lease.Key{Group: s.worker.config.Group, Kind: lease.KindLease, Name: name}.Validate())
	if err := errors.Join(f...); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch before := s.names[name]; {
	case s.over != nil:
		return nil, s.over
	case before == nil:
	case before.tenure == nil:
		return nil, ErrWaiting
	case !before.tenure.letGo() && before.tenure.hard.Err() == nil:
		return nil, ErrHolding
	}
	s.ids++
	a := &acquisition{in: engine.Acquire{Name: name, ID: s.ids, Task: o.Task, LockDelay: delay, Try: try}, result: make(chan acquired, 1)}
	s.names[name] = a
	s.send(a.in)
	return a, nil
}

// send passes an input to the run loop, if Run was called. The caller holds the lock.
func (s *Session) send(in engine.Input) {
	if s.inbox != nil {
		s.inbox.put(arrival{input: in})
	}
}

// forgo ends a wait. If the lease was acquired at the same moment, it is released.
func (s *Session) forgo(a *acquisition) {
	s.mu.Lock()
	t := a.tenure
	if t == nil && s.names[a.in.Name] == a {
		delete(s.names, a.in.Name)
		s.send(engine.Forgo{Name: a.in.Name, ID: a.in.ID})
	}
	s.mu.Unlock()
	if t != nil {
		t.Release("no longer wanted")
	}
}

// hold is the handler of every tenure. It returns when the tenure is released or over.
func (s *Session) hold(_ context.Context, t *Tenure) error {
	a := s.deliver(t)
	if a == nil {
		t.Release("no longer wanted")
		return nil
	}
	select {
	case <-t.released:
	case <-t.hard.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[a.in.Name] == a {
		delete(s.names, a.in.Name)
	}
	return nil
}

// deliver passes a tenure to the call that waits for it. It returns nil if no call waits any more.
func (s *Session) deliver(t *Tenure) *acquisition {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.names[t.shard.Name]
	if a == nil || a.in.ID != t.acquire {
		return nil
	}
	a.tenure = t
	a.result <- acquired{tenure: t}
	return a
}

// refuse tells the call that waits for a lease that the lease is not available.
func (s *Session) refuse(o engine.Unavailable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.names[o.Name]
	if a == nil || a.in.ID != o.ID {
		return
	}
	delete(s.names, o.Name)
	a.result <- acquired{err: &HeldError{
		Name: o.Name, Owner: o.Row.Owner, Generation: o.Row.Generation, Since: o.Row.Last.At, Lost: o.Lost,
		Quarantined: o.Row.Quarantined, Finished: o.Row.Finished, Unreadable: o.Row.Generation == 0, ReservedFor: o.Row.Reserved.For,
	}}
}

// open connects the session to its run loop, and passes on the calls that already wait.
func (s *Session) open(to *inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inbox = to
	for _, a := range s.names {
		s.send(a.in)
	}
}

// close ends all waits. Tenures are not affected.
func (s *Session) close(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = cmp.Or(s.over, why)
	for name, a := range s.names {
		if a.tenure == nil {
			delete(s.names, name)
			a.result <- acquired{err: fmt.Errorf("acquire %.64q: %w", name, why)}
		}
	}
}

// Watch yields the present row of the lease of that name, and then each changed row: another holder,
// generation or checkpoint. If the generation of the row is 0, the lease has no row; a removed row is
// a tombstone. Watch reads the row three times per TTL, so it misses changes that last for less. The
// lease may have changed since the row was read: never write to a sink because of a row. Watch also
// yields the errors of the store, and reads again after an error. It ends with ctx, or when the caller
// leaves the loop. If no lease can have the name, Watch yields a [*ConfigError] and ends. Watch does not need
// Run.
//
// After a holder has died, its row stays unchanged until another session waits for the lease.
func (s *Session) Watch(ctx context.Context, name string) iter.Seq2[lease.Row, error] {
	key := lease.Key{Group: s.worker.config.Group, Kind: lease.KindLease, Name: name}
	return func(yield func(lease.Row, error) bool) {
		var f faults
		if f.wrap("name", key.Validate()); len(f) > 0 {
			yield(lease.Row{}, errors.Join(f...))
			return
		}
		var last lease.Row
		for first := true; ctx.Err() == nil; {
			row, err := s.read(ctx, key)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(lease.Row{}, err) {
					return
				}
			case first || row.Compare(last) != 0:
				if first, last = false, row; !yield(row, nil) {
					return
				}
			}
			h := s.worker.config.TTL / 3
			pause := time.NewTimer(h - rand.N(h/8+1))
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
	}
}

// read reads one row. It returns the zero row if there is none.
func (s *Session) read(ctx context.Context, key lease.Key) (lease.Row, error) {
	record, err := s.worker.store.Get(ctx, key)
	if errors.Is(err, lease.ErrNotFound) {
		return lease.Row{}, nil
	}
	row, _ := record.(lease.Row)
	return row, err
}

// Status returns the state of the session, as [Worker.Status] does. Held is the number of leases that
// the session holds, and Requested the number of leases that it waits for.
func (s *Session) Status() Status { return s.worker.Status() }

// Healthy returns nil while Run runs, the last confirmed heartbeat is younger than the lease time, and
// the table accepts the commits of this session; otherwise it returns the reason.
func (s *Session) Healthy() error { return s.worker.Healthy() }

// Ready returns nil if the session has its seat and may acquire leases; otherwise it returns the
// reason.
func (s *Session) Ready() error { return s.worker.Ready() }

// Probes returns a handler for the probes of a platform, as [Worker.Probes] does.
func (s *Session) Probes() http.Handler { return s.worker.Probes() }
