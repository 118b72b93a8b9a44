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

// Whatever a user's code does, it ends no goroutine of the worker's: neither by a panic
// nor by runtime.Goexit, and not by an answer that is nil.

// guard calls f and turns its panic into an error.
func guard(f func() error) (panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return false, f()
}

// apart calls f on a goroutine of its own and waits for it, where runtime.Goexit would
// end one that is still needed: nothing else stops that. It costs about a microsecond.
func apart(f func()) error {
	done := make(chan error, 1)
	go func() {
		err := error(&panicError{}) // what runtime.Goexit leaves
		defer func() { done <- err }()
		_, err = guard(func() error { f(); return nil })
	}()
	return <-done
}

// sound gives err, unless its methods panic: those of a nil pointer that was returned as
// an error usually do, and the loop would call them next.
func sound(hook string, err error) error {
	if err == nil {
		return nil
	}
	_, fault := guard(func() error {
		_ = err.Error()
		_ = errors.Is(err, ErrEnded)
		_, _ = errors.AsType[*EndError](err)
		return nil
	})
	if fault != nil {
		return &HookError{Hook: hook, Err: fmt.Errorf("returned an error of type %T whose methods panic", err)}
	}
	return err
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

// nilOf says of which type a nil is that has one: it does not look like nil where it comes from.
func nilOf(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("; is a nil %T", v)
}

// isRecord reports whether r is what a store keeps: not nil, and no pointer to one.
func isRecord(r lease.Record) bool {
	switch r.(type) {
	case lease.Row, lease.Seat:
		return true
	}
	return false
}

// answers refuses a record that is not the one with that key.
func answers(hook string, r lease.Record, k lease.Key) error {
	switch {
	case r == nil:
		return &HookError{Hook: hook, Err: errors.New("answered with no record and no error")}
	case !isRecord(r):
		return &HookError{Hook: hook, Err: fmt.Errorf("answered with %T: no record", r)}
	case r.Key() != k:
		return &HookError{Hook: hook, Err: fmt.Errorf("asked for %v and answered with %v", k, r.Key())}
	}
	return nil
}

// listable refuses a record that has no place in a listing after the one of the last name.
func listable(r lease.Record, q lease.Query, last string) error {
	const hook = "store.List"
	if !isRecord(r) {
		return answers(hook, r, lease.Key{})
	}
	k := r.Key()
	if err := answers(hook, r, lease.Key{Group: q.Group, Kind: q.Kind, Name: k.Name}); err != nil {
		return err
	}
	if k.Name <= last {
		return &HookError{Hook: hook, Err: fmt.Errorf("listed %q after %q: not in the order of the names", k.Name, last)}
	}
	return nil
}

// settles passes on the answer to a write. One that cannot be is none: whether the write
// was stored is not known.
func settles(w lease.Write, r lease.Record, err error) (lease.Record, error) {
	const hook = "store.Write"
	if err == nil && w.Next != nil {
		return r, answers(hook, r, w.Key())
	}
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok && refused != nil && refused.Now != nil {
		if wrong := answers(hook, refused.Now, w.Key()); wrong != nil {
			return nil, wrong
		}
	}
	return nil, err
}

// A planner is the user's, as the engine calls it: whatever that one does, there is a plan.
type planner struct {
	rebalance.Planner
	fingerprint string // asked for once
	fault       func(shard string, err error)
}

func (p *planner) Fingerprint() string { return p.fingerprint }

// Plan asks the user's planner, and the built-in one where that gives no plan. The user's
// gets a copy of the view: it may have changed it before it panicked.
func (p *planner) Plan(v rebalance.View) []int {
	var plan []int
	err := apart(func() {
		plan = p.Planner.Plan(rebalance.View{Shards: slices.Clone(v.Shards), Workers: slices.Clone(v.Workers)})
	})
	if err == nil {
		err = isPlan(v, plan)
	}
	if err == nil {
		return plan
	}
	p.fault("", &HookError{Hook: "Planner", Err: fmt.Errorf("%w; rebalance.Even plans this time", err)})
	return rebalance.Even{}.Plan(v)
}

// isPlan refuses what is no plan of v.
func isPlan(v rebalance.View, plan []int) error {
	if len(plan) != len(v.Shards) {
		return fmt.Errorf("planned %d of %d shards", len(plan), len(v.Shards))
	}
	for i, w := range plan {
		if w < rebalance.Nobody || w >= len(v.Workers) {
			return fmt.Errorf("planned shard %q to worker %d of %d", v.Shards[i].Name, w, len(v.Workers))
		}
	}
	return nil
}

// guarded is a user's order whose panic is an error. A handler that ends its own goroutine
// in it ends its own tenure.
func guarded(order checkpoint.Order, fault func(shard string, err error)) checkpoint.Order {
	if order == nil || builtIn(order) {
		return order
	}
	return func(a, b string) (n int, err error) {
		_, err = guard(func() (err error) { n, err = order(a, b); return err })
		return n, orderFault(err, fault)
	}
}

// setApart is a user's order as the loop calls it.
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

// orderFault reports an order that panicked.
func orderFault(err error, fault func(shard string, err error)) error {
	if _, panicked := err.(*panicError); panicked {
		fault("", &HookError{Hook: "Order", Err: err})
	}
	return err
}

// builtIn reports whether nothing can go wrong in an order.
func builtIn(order checkpoint.Order) bool {
	at := reflect.ValueOf(order).Pointer()
	return slices.ContainsFunc([]checkpoint.Order{checkpoint.Decimal, checkpoint.Lexical, checkpoint.Unordered}, func(known checkpoint.Order) bool {
		return reflect.ValueOf(known).Pointer() == at
	})
}
