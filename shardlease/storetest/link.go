package storetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// ErrCut is the error of every call over a [Link] that was cut with [Link.Cut].
var ErrCut = errors.New("the link to the store is cut")

// A Link is a store that a test can interfere with: the connection of one worker to the table.
// Give each worker a Link of its own. For the rest of the fleet, a worker whose link is cut or
// silent is as dead as after kill -9; the worker itself continues to run, and the test can check
// what it does.
//
// A Link holds no lock while it waits or calls the store, so it can be used in a bubble of
// testing/synctest. All methods are safe for concurrent use, also within a hook.
//
// # Hooks
//
// A hook runs at the worker's end of the link. Its arguments are the call and a function that
// sends the call to the store and returns the answer. A hook may wait before it sends or before
// it returns, may send the call twice or not at all, and may return another answer. Several
// goroutines may call one hook at once. Nil removes a hook.
//
//	link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
//		if w.Op == lease.OpTransfer {
//			<-released // hold the worker's claims
//		}
//		return send()
//	})
//
// The link checks its state when a hook sends, and again when the hook returns: if a hook cuts the
// link after it has sent a write, the write is stored and its answer is lost.
type Link struct {
	store lease.Store

	mu    sync.Mutex
	state state
	delay time.Duration
	hooks hooks
}

type state uint8

const (
	open       state = iota
	cut              // every call fails at once
	silent           // no call reaches the store or is answered
	answerless       // every call reaches the store, and none is answered
)

type hooks struct {
	list   func(context.Context, lease.Query, func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error]
	get    func(context.Context, lease.Key, func() (lease.Record, error)) (lease.Record, error)
	write  func(context.Context, lease.Write, func() (lease.Record, error)) (lease.Record, error)
	verify func(context.Context, string, func() error) error
}

var _ lease.Store = (*Link)(nil)

// NewLink returns a link to store that passes all calls on unchanged.
func NewLink(store lease.Store) *Link { return &Link{store: store} }

// Cut makes every call fail at once with [ErrCut], like a connection that is refused. A write
// that is under way may be stored, but its answer is lost.
func (l *Link) Cut() { l.set(cut) }

// Silence makes every call wait until its context ends, like a network that drops packets. No call
// reaches the store. A write that is under way may be stored, but its answer is lost.
func (l *Link) Silence() { l.set(silent) }

// LoseAnswers makes every call reach the store and then wait until its context ends: writes are
// stored without an answer.
func (l *Link) LoseAnswers() { l.set(answerless) }

// Heal ends the effect of [Link.Cut], [Link.Silence] and [Link.LoseAnswers]. A call that waits
// already continues to wait until its context ends. Hooks and the delay stay.
func (l *Link) Heal() { l.set(open) }

// Delay makes every answer arrive that much later than the store returns it; 0 means at once.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// OnList sets the hook for List. The store lists its records when send is called, and the
// iterator that send returns yields these.
func (l *Link) OnList(hook func(ctx context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks.list = hook
}

// OnGet sets the hook for Get.
func (l *Link) OnGet(hook func(ctx context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks.get = hook
}

// OnWrite sets the hook for Write.
func (l *Link) OnWrite(hook func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks.write = hook
}

// OnVerify sets the hook for Verify. A hook that returns [lease.ErrWentBack] simulates a restored
// table.
func (l *Link) OnVerify(hook func(ctx context.Context, group string, send func() error) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks.verify = hook
}

// List lists over the link. It reads all records before it yields the first.
func (l *Link) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	call := sender(ctx, l, func() ([]entry, error) { return collect(l.store.List(ctx, q)), nil })
	return func(yield func(lease.Record, error) bool) {
		full := call
		if hook := l.script().list; hook != nil {
			send := func() iter.Seq2[lease.Record, error] { return replay(call()) }
			full = func() ([]entry, error) { return collect(hook(ctx, q, send)), nil }
		}
		replay(answer(ctx, l, full))(yield)
	}
}

// Get reads one record over the link.
func (l *Link) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	call := sender(ctx, l, func() (lease.Record, error) { return l.store.Get(ctx, k) })
	if hook := l.script().get; hook != nil {
		return answer(ctx, l, func() (lease.Record, error) { return hook(ctx, k, call) })
	}
	return answer(ctx, l, call)
}

// Write makes one write over the link.
func (l *Link) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	call := sender(ctx, l, func() (lease.Record, error) { return l.store.Write(ctx, w) })
	if hook := l.script().write; hook != nil {
		return answer(ctx, l, func() (lease.Record, error) { return hook(ctx, w, call) })
	}
	return answer(ctx, l, call)
}

// Verify verifies the table over the link.
func (l *Link) Verify(ctx context.Context, group string) error {
	call := sender(ctx, l, func() (struct{}, error) { return struct{}{}, l.store.Verify(ctx, group) })
	full := call
	if hook := l.script().verify; hook != nil {
		send := func() error { _, err := call(); return err }
		full = func() (struct{}, error) { return struct{}{}, hook(ctx, group, send) }
	}
	_, err := answer(ctx, l, full)
	return err
}

// sender returns the function with which a hook sends the call.
func sender[T any](ctx context.Context, l *Link, call func() (T, error)) func() (T, error) {
	return func() (T, error) {
		var none T
		if err := l.fault(ctx, cut, silent); err != nil {
			return none, err
		}
		got, err := call()
		if late := l.wait(ctx); late != nil {
			return none, late
		}
		return got, err
	}
}

// answer returns what the worker receives as the answer to the call.
func answer[T any](ctx context.Context, l *Link, call func() (T, error)) (T, error) {
	got, err := call()
	if lost := l.fault(ctx, cut, silent, answerless); lost != nil {
		var none T
		return none, lost
	}
	return got, err
}

// fault returns the error of a call if the link is in one of these states, after as long as that
// state takes to fail.
func (l *Link) fault(ctx context.Context, states ...state) error {
	l.mu.Lock()
	now := l.state
	l.mu.Unlock()
	switch {
	case !slices.Contains(states, now):
		return nil
	case now == cut:
		return ErrCut
	}
	<-ctx.Done()
	return ctx.Err()
}

// wait waits for the delay of an answer.
func (l *Link) wait(ctx context.Context) error {
	l.mu.Lock()
	delay := l.delay
	l.mu.Unlock()
	if delay <= 0 {
		return nil
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Link) set(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
}

func (l *Link) script() hooks {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hooks
}

// An entry is one pair that a listing yields.
type entry struct {
	record lease.Record
	err    error
}

func collect(listing iter.Seq2[lease.Record, error]) []entry {
	var all []entry
	for r, err := range listing {
		all = append(all, entry{r, err})
	}
	return all
}

func replay(all []entry, err error) iter.Seq2[lease.Record, error] {
	if err != nil {
		all = []entry{{err: err}}
	}
	return func(yield func(lease.Record, error) bool) {
		for _, e := range all {
			if !yield(e.record, e.err) {
				return
			}
		}
	}
}
