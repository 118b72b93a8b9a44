package shardlease

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The functions of this file call the user's code so that it cannot end a goroutine that
// the worker needs, whether it panics, calls runtime.Goexit or returns nil.

// guard calls f and returns its panic as an error.
func guard(f func() error) (panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			panicked, err = true, &panicError{value: v, text: textOf(v), stack: stack}
		}
	}()
	return false, f()
}

// textOf returns the text of the value of a panic, which may panic again when it is printed.
func textOf(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a value of type %T whose methods panic", v)
		}
	}()
	return fmt.Sprint(v)
}

// apart calls f on a goroutine of its own, waits for it, and returns a panic or a
// runtime.Goexit as an error. Only a goroutine of its own can contain a runtime.Goexit. It
// costs about a microsecond.
func apart(f func()) error {
	done := make(chan error, 1)
	go func() {
		err := error(&panicError{}) // the result if f calls runtime.Goexit
		defer func() { done <- err }()
		_, err = guard(func() error { f(); return nil })
	}()
	return <-done
}

// sound returns err as a givenError, or a HookError if err is a nil pointer or its methods
// panic.
func sound(hook string, err error) error {
	switch {
	case err == nil:
		return nil
	case isNil(err):
		return &HookError{Hook: hook, Err: fmt.Errorf("returned a nil %T as an error", err)}
	}
	text := ""
	_, fault := guard(func() error {
		text = err.Error()
		_ = errors.Is(err, ErrEnded)
		_, _ = errors.AsType[*EndError](err)
		return nil
	})
	if fault != nil {
		return &HookError{Hook: hook, Err: fmt.Errorf("returned an error of type %T whose methods panic", err)}
	}
	return &givenError{err: err, text: text}
}

// isNil reports whether v is nil, or a nil pointer or function in an interface.
func isNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return r.IsNil()
	}
	return false
}

// nilOf describes a nil pointer or function for an error text, because the caller may not
// have noticed that it is nil. It returns "" for a nil interface.
func nilOf(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("; is a nil %T", v)
}

// isRecord reports whether r is a record by value: neither nil nor a pointer.
func isRecord(r lease.Record) bool {
	switch r.(type) {
	case lease.Row, lease.Seat, lease.Target, lease.Plan, lease.Wishes, lease.Ends, lease.Act:
		return true
	}
	return false
}

// checkRecord returns an error unless r is a record with the key k.
func checkRecord(hook string, r lease.Record, k lease.Key) error {
	switch {
	case r == nil:
		return &HookError{Hook: hook, Err: errors.New("returned neither a record nor an error")}
	case !isRecord(r):
		return &HookError{Hook: hook, Err: fmt.Errorf("returned a %T, which is no record", r)}
	case r.Key() != k:
		return &HookError{Hook: hook, Err: fmt.Errorf("returned %v instead of %v", r.Key(), k)}
	}
	return nil
}

// checkListed returns an error if the record r cannot follow the record with the name last in
// a listing.
func checkListed(r lease.Record, q lease.Query, last string) error {
	const hook = "store.List"
	if !isRecord(r) {
		return checkRecord(hook, r, lease.Key{})
	}
	k := r.Key()
	if k.Kind.Listed() != q.Kind || k.Group != q.Group {
		return &HookError{Hook: hook, Err: fmt.Errorf("returned %v instead of one of the %v", k, q)}
	}
	if k.Name <= last {
		return &HookError{Hook: hook, Err: fmt.Errorf("listed %q after %q, which is not the order of the names", k.Name, last)}
	}
	return nil
}

// checkAnswer checks the answer to a write. It turns an impossible answer into a HookError,
// after which it is unknown whether the write was stored.
func checkAnswer(w lease.Write, r lease.Record, err error) (lease.Record, error) {
	const hook = "store.Write"
	if err == nil && w.Next != nil {
		return r, checkRecord(hook, r, w.Key())
	}
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok && refused != nil && refused.Now != nil {
		if wrong := checkRecord(hook, refused.Now, w.Key()); wrong != nil {
			return nil, wrong
		}
	}
	return nil, err
}

// A planner is the user's planner, with its name, which is read once.
type planner struct {
	rebalance.Planner
	name string
}

// checkPlan returns an error if plan is not a plan of v, or places nothing although there is something to place.
func checkPlan(v rebalance.View, plan []int) error {
	if len(plan) != len(v.Shards) {
		return fmt.Errorf("planned %d of %d shards", len(plan), len(v.Shards))
	}
	for i, w := range plan {
		if w < rebalance.Nobody || w >= len(v.Workers) {
			return fmt.Errorf("planned shard %q to worker %d of %d", v.Shards[i].Name, w, len(v.Workers))
		}
	}
	if n := toPlace(v); n > 0 && !slices.ContainsFunc(plan, func(w int) bool { return w != rebalance.Nobody }) {
		return fmt.Errorf("planned all %d shards to nobody, although %d of them have no worker that stays, and a worker has room", len(plan), n)
	}
	return nil
}

// toPlace returns how many shards have no worker that stays, if a worker may get one of them; otherwise 0.
func toPlace(v rebalance.View) (n int) {
	held := make([]int, len(v.Workers))
	for _, s := range v.Shards {
		if s.Owner == rebalance.Nobody || v.Workers[s.Owner].Leaving {
			n++
		} else {
			held[s.Owner]++
		}
	}
	for at, w := range v.Workers {
		if !w.Leaving && !w.Cordoned && !w.Unwell && (w.Limit <= 0 || held[at] < w.Limit) {
			return n
		}
	}
	return 0
}

// guarded wraps a user's order for handlers: its panic becomes an error. A runtime.Goexit
// in it ends the handler's goroutine, and so the handler's own tenure.
func guarded(order checkpoint.Order, fault func(shard string, err error)) checkpoint.Order {
	if order == nil || builtIn(order) {
		return order
	}
	return func(a, b string) (n int, err error) {
		_, err = guard(func() (err error) { n, err = order(a, b); return err })
		return n, orderFault(err, fault)
	}
}

// setApart wraps a user's order for the loop: its panic and its runtime.Goexit become
// errors.
func setApart(order checkpoint.Order, fault func(shard string, err error)) checkpoint.Order {
	if order == nil || builtIn(order) {
		return order
	}
	return func(a, b string) (n int, err error) {
		if panicked := apart(func() { n, err = order(a, b) }); panicked != nil {
			n, err = 0, panicked
		}
		return n, orderFault(err, fault)
	}
}

// orderFault reports a HookFault if err is the panic of an order, and returns err.
func orderFault(err error, fault func(shard string, err error)) error {
	if _, panicked := err.(*panicError); panicked {
		fault("", &HookError{Hook: "Order", Err: err})
	}
	return err
}

// builtIn reports whether an order is one of package checkpoint, which cannot panic.
func builtIn(order checkpoint.Order) bool {
	at := reflect.ValueOf(order).Pointer()
	return slices.ContainsFunc([]checkpoint.Order{checkpoint.Decimal, checkpoint.Lexical, checkpoint.Unordered}, func(known checkpoint.Order) bool {
		return reflect.ValueOf(known).Pointer() == at
	})
}
