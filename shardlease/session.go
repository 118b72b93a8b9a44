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

	// TTL is the lease time: how long the heartbeat counter of this session may stand still before a session that
	// wants one of its leases evicts it. If no session wants them, any session of the group does so about a minute
	// later. The session sends one heartbeat for all its leases, three times per TTL. Default 10 s; at least 300 ms.
	TTL time.Duration
	// Drain is how long holders may take to release their leases after the context of Run has
	// ended. Default and smallest value as in [Config].
	Drain time.Duration
	// LockDelay is how long no session acquires the leases that this session has lost. A session loses its
	// leases when another session evicts it, or when a command takes them away (unless [Supervisor].NoDelay is set).
	// At a shutdown, and after a stall, it also loses each lease that its holder does not release within Drain. A
	// release by the holder causes no delay. Default none; at most a day.
	//
	// The delay is for sinks that cannot compare a generation. A paused process may still write when
	// it wakes up; during the delay such a write can arrive before the next holder begins. The delay
	// is no fence: a pause may be longer than any delay.
	LockDelay time.Duration
	// StallAfter is how long a holder may be silent: neither mark nor commit nor call [Tenure.Progress] or
	// [Tenure.Alive]. After that its soft context ends, and when the holder has let go, at most Drain later,
	// the lease is released as stalled. Default off: a holder may be silent for as long as its session lives. At
	// least a third of TTL. The event [event.Silent] reports a silent holder after StallAfter. Without StallAfter, it
	// does so after five minutes, if the holder has once marked or called Progress or Alive.
	StallAfter time.Duration
	// MaxAttempts is how many tenures of a lease may fail before this session quarantines it instead of acquiring it.
	// The failures have to be under at least two names of sessions, unless the seats show no session with another
	// name. Failures are deaths of the holder, stalls, and errors and panics of functions of [Session.Do]. The count
	// starts again as in [Config], and when such a function returns nil. [Tenure.Release] neither adds to it nor
	// restarts it. Default off: then a release forgets the failures too.
	MaxAttempts int

	// Deathwatch lets a session that waits for a lease of this session notice at once that the process of this one has
	// died. In the same way this session notices the deaths of holders for whose leases it waits. While a session
	// waits, it keeps one connection to the holder, if both have a Deathwatch. Default: none.
	Deathwatch Deathwatch

	// Targets are the systems that holders change. Acquire returns a tenure when their fences are raised. MaxRaises is as in
	// [Config]. A session gives no lease up because of a target.
	Targets   []Target
	MaxRaises int

	// ErrorText is as in [Config], for the functions of [Session.Do].
	ErrorText func(error) string

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
		StallAfter: c.StallAfter, MaxAttempts: c.MaxAttempts, Handoff: rebalance.Eager, Backoff: -1, Deathwatch: c.Deathwatch,
		Targets: c.Targets, MaxRaises: c.MaxRaises, ErrorText: c.ErrorText,
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
	do     Handler // the function of Do; nil: of Acquire
	began  time.Time
	result chan acquired // has room for the one result
	held   *HeldError    // what a TryAcquire that waits has seen last; nil: nothing yet
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
		noun: "session", store: store, config: c, wall: time.Now, refuse: s.refuse, unwanted: s.unwanted, again: s.again,
		engine: func(c engine.Config, now engine.Moment) stepper {
			c.Strategy, c.StallAfter, c.MaxAttempts = "", 0, 0 // a session has no handoffs, and each acquisition has its own limits
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
	// StallAfter replaces [SessionConfig.StallAfter] for this lease; negative: off.
	StallAfter time.Duration
	// MaxAttempts replaces [SessionConfig.MaxAttempts] for this lease; negative: off.
	MaxAttempts int
	// Wait is for how long at most [Session.TryAcquire] waits until the holder has released the lease, or was evicted
	// because it is dead. 0: TryAcquire waits only if the holder looks dead, as described there. Negative: not at all.
	// Acquire ignores Wait. [Session.Do] waits as Acquire does if Wait is 0, and otherwise as TryAcquire does.
	Wait time.Duration
}

// Do acquires the lease of that name, calls f, releases the lease when f has returned, and returns the error of f. If
// [AcquireOptions].Wait is 0, Do acquires as Acquire does, and otherwise as TryAcquire does. The ctx of f is the soft
// context of the tenure. f need not call Release. If f returns an error, panics (Do returns the panic as an error) or
// calls runtime.Goexit, that is a failed attempt ([SessionConfig.MaxAttempts]), unless the soft context or the ctx of Do
// has ended before. After a failure or a stall, this session leaves the lease to other sessions for a heartbeat interval
// and an eighth: a call that waits begins later, and one with a negative Wait returns a [*HeldError] with LeftUntil. If the
// seats show no other session, it leaves the lease to nobody.
//
// If the ctx of Do ends while f runs, the soft context ends too. Do returns only when f has returned: as long as f
// runs, no other call of this session acquires the lease. If f returns nil and the lease was lost meanwhile, Do returns
// an [*EndError]. If f stops early because its ctx has ended, it should return context.Cause(ctx): after a nil in time
// Do returns nil, even if the tenure ends as stalled.
func (s *Session) Do(ctx context.Context, name string, o AcquireOptions, f func(ctx context.Context, t *Tenure) error) error {
	if f == nil {
		return &ConfigError{Field: "f", Rule: "must be given: Do calls it while the session holds the lease"}
	}
	t, err := s.acquire(ctx, name, o, o.Wait != 0, func(soft context.Context, t *Tenure) error {
		defer func() {
			if ctx.Err() != nil { // f may have noticed it first
				t.Release("no longer wanted")
			}
		}()
		return f(soft, t)
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { t.Release("no longer wanted") })()
	return <-t.returns
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
	return s.acquire(ctx, name, o, false, nil)
}

// TryAcquire is Acquire for a caller that does not wait for a living holder: if another session holds the lease,
// TryAcquire returns a [*HeldError] with the holder. It waits until the session has a seat, for the answers of the
// store, and for a holder that looks dead. So give it a context with a deadline; if ctx ends first, the error says what
// the call waited for.
//
// If the holder looks dead, TryAcquire watches the holder's heartbeat for the holder's lease time. It returns as soon
// as the heartbeat moves, and otherwise evicts the holder and acquires the lease. The holder looks dead if the time in
// its seat is older than its lease time, or ahead by more than a third of it. That time only decides whether to watch:
// if the clock of a living holder is wrong, TryAcquire takes up to a heartbeat interval longer. A session also
// remembers the holders that it has met: if a holder's heartbeat still is the one that the session saw at least the
// holder's lease time ago, TryAcquire evicts the holder at once. So a caller that asks now and then acquires the lease
// of a dead holder, in one program or in a new one each time. If ctx ends while TryAcquire watches, the error contains
// both that of ctx and a HeldError with what was seen.
//
// If a lease has failed MaxAttempts times and the seats of the group cannot be listed, TryAcquire returns a HeldError
// although nobody holds the lease: it is not known whether the lease has to be quarantined.
//
// TryAcquire also waits while this session leaves the lease to others after a failure (see [Session.Do]), and for a lock
// delay that ends within the lease time of this session. The delay counts from when the session first saw the loss. So a
// session that lives for less than a longer delay does not see its end.
// [AcquireOptions].Wait makes TryAcquire wait for a fixed time, or never.
func (s *Session) TryAcquire(ctx context.Context, name string, o AcquireOptions) (*Tenure, error) {
	return s.acquire(ctx, name, o, true, nil)
}

// acquire waits for the lease. If do is given, the tenure that it returns runs do.
func (s *Session) acquire(ctx context.Context, name string, o AcquireOptions, try bool, do Handler) (*Tenure, error) {
	a, err := s.begin(ctx, name, o, try, do)
	if err != nil {
		return nil, fmt.Errorf("acquire %.64q: %w", name, err)
	}
	select {
	case got := <-a.result:
		return got.tenure, got.err
	case <-ctx.Done():
		err := s.gaveUp(ctx, a.in.ID, try)
		t, held := s.forgo(a)
		switch {
		case t != nil && do != nil:
			return t, nil // do runs already
		case held != nil:
			held.Waited = time.Since(a.began)
			return nil, fmt.Errorf("%w: %w", held, ended(ctx))
		}
		return nil, fmt.Errorf("acquire %.64q: %w", name, err)
	}
}

// gaveUp returns the error of a call whose context has ended, with what it waited for, unless that was
// the holder of the lease.
func (s *Session) gaveUp(ctx context.Context, id uint64, try bool) error {
	switch err := s.Ready(); {
	case err != nil:
		return fmt.Errorf("%w; it waited for the session: %w", ended(ctx), err)
	case s.worker.acquired(id) != nil:
		return fmt.Errorf("%w; it held the lease, and waited for the fences of its targets", ended(ctx))
	case try:
		return fmt.Errorf("%w; it waited for an answer of the store", ended(ctx))
	}
	return ended(ctx)
}

// begin records that a caller waits for a lease.
func (s *Session) begin(ctx context.Context, name string, o AcquireOptions, try bool, do Handler) (*acquisition, error) {
	var f faults
	delay, errDelay := lockDelay(cmp.Or(o.LockDelay, s.delay))
	f.wrap("LockDelay", errDelay)
	config := s.worker.config
	f.duration("StallAfter", &o.StallAfter, bounds{otherwise: config.StallAfter, least: config.TTL / 3, from: "a third of TTL", off: true})
	o.MaxAttempts = max(cmp.Or(o.MaxAttempts, config.MaxAttempts), 0)
	f.wrap("Task", lease.Owner{Name: "-", Incarnation: "-", Task: o.Task}.Validate())
	if isNil(ctx) {
		f.add("ctx", "must be given: its end ends the wait"+nilOf(ctx))
	}
	f.wrap("name", lease.Key{Group: config.Group, Kind: lease.KindLease, Name: name}.Validate())
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
	case before.do != nil: // it still runs
		return nil, ErrHolding
	case !before.tenure.letGo() && before.tenure.hard.Err() == nil:
		return nil, ErrHolding
	}
	s.ids++
	a := &acquisition{
		in: engine.Acquire{
			Name: name, ID: s.ids, Task: o.Task, LockDelay: delay, Try: try, Wait: o.Wait,
			StallAfter: o.StallAfter, MaxAttempts: int64(o.MaxAttempts),
		},
		do: do, began: time.Now(), result: make(chan acquired, 1),
	}
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

// forgo ends a wait. If the lease was acquired at the same moment, it is released, and if its tenure was passed on, forgo
// returns that. held is what a TryAcquire has seen; nil: nothing yet.
func (s *Session) forgo(a *acquisition) (t *Tenure, held *HeldError) {
	s.mu.Lock()
	t, held = a.tenure, a.held
	if t == nil && s.names[a.in.Name] == a {
		delete(s.names, a.in.Name)
		s.send(engine.Forgo{Name: a.in.Name, ID: a.in.ID})
	}
	s.mu.Unlock()
	if got := s.worker.acquired(a.in.ID); got != nil { // also one whose fences are still being raised
		held = nil
		got.Release("no longer wanted")
	}
	return t, held
}

// unwanted reports whether no call waits for a tenure any more.
func (s *Session) unwanted(t *Tenure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.names[t.shard.Name]
	return a == nil || a.in.ID != t.acquire
}

// again asks for a lease whose tenure has ended before its fences were raised, if a call still waits for it.
func (s *Session) again(t *Tenure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.names[t.shard.Name]; a != nil && a.in.ID == t.acquire {
		s.send(a.in)
	}
}

// hold is the handler of every tenure. It returns when the function of Do does, or when the tenure is released or over.
func (s *Session) hold(ctx context.Context, t *Tenure) error {
	a := s.deliver(t)
	if a == nil {
		t.Release("no longer wanted")
		return nil
	}
	defer s.forget(a)
	if a.do != nil {
		err, lost := a.do(ctx, t), context.Cause(t.hard)
		if err == nil && lost != nil && !errors.Is(lost, event.CauseFinished) {
			return lost
		}
		return err
	}
	select {
	case <-t.released:
	case <-t.hard.Done():
	}
	return nil
}

// forget ends an acquisition whose handler has returned.
func (s *Session) forget(a *acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[a.in.Name] == a {
		delete(s.names, a.in.Name)
	}
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
	if a.do != nil {
		t.returns = make(chan error, 1)
	}
	a.result <- acquired{tenure: t}
	return a
}

// refuse tells the call that waits for a lease that the lease is not available, or what it would be told if it stopped
// waiting.
func (s *Session) refuse(o engine.Unavailable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.names[o.Name]
	if a == nil || a.in.ID != o.ID {
		return
	}
	a.held = &HeldError{
		Name: o.Name, Owner: o.Row.Owner, Generation: o.Row.Generation, Since: o.Row.Last.At, Lost: o.Lost,
		Quarantined: o.Row.Quarantined, Finished: o.Row.Finished, Unreadable: o.Row.Generation == 0, ReservedFor: o.Row.Reserved.For,
		LastBeat: o.Beat, Waited: time.Since(a.began),
	}
	if o.Row.Quarantined {
		of := o.Row.Last
		for _, past := range o.Row.History() { // a quarantined lease may have been rewound since
			if of.Did == "quarantined" {
				break
			}
			of = past
		}
		a.held.By, a.held.Why = of.By, of.Note
	}
	if o.Left > 0 {
		a.held.LeftUntil = s.worker.wall().Add(o.Left)
	}
	if !o.Waits {
		delete(s.names, o.Name)
		a.result <- acquired{err: a.held}
	}
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
// After a holder has died, another session evicts it, but the row stays unchanged until a session acquires the lease.
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
// the session holds, and Requested the number of leases that it waits for. Refused and Waited count how often its
// callers have found a lease taken, as the event [event.Contended] does, and LongestWait is how long the oldest of them
// waits.
func (s *Session) Status() Status { return s.worker.Status() }

// Healthy returns nil while Run runs, the last confirmed heartbeat is younger than the lease time, and
// the table accepts the commits of this session; otherwise it returns the reason.
func (s *Session) Healthy() error { return s.worker.Healthy() }

// Ready returns nil if the session has its seat and may acquire leases; otherwise it returns the
// reason.
func (s *Session) Ready() error { return s.worker.Ready() }

// Probes returns a handler for the probes of a platform, as [Worker.Probes] does.
func (s *Session) Probes() http.Handler { return s.worker.Probes() }
