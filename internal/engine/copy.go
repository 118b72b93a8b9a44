package engine

import (
	"math/bits"
	"reflect"
	"slices"
	"time"
)

// An order numbers the steps of one engine, a serial its reads; a wall is a reading of
// the wall clock in nanoseconds. Only how they compare matters.
type (
	order  uint64
	serial uint64
	wall   int64
)

func (e *Engine) wall() wall { return wall(e.now.Wall.UnixNano()) }

// Clone is another engine in the same state. It shares nothing that either changes.
func (e *Engine) Clone() *Engine {
	c := *e
	c.out = nil
	c.seat.former = slices.Clone(e.seat.former)
	c.looks.peers = slices.Clone(e.looks.peers)
	c.fleet.malformed = slices.Clone(e.fleet.malformed)
	c.shards = make([]*shard, len(e.shards))
	for i, s := range e.shards {
		t := new(*s)
		if s.ask != nil {
			t.ask = new(*s.ask)
		}
		if s.t.give != nil {
			t.t.give = new(*s.t.give)
		}
		c.shards[i] = t
	}
	return &c
}

// Hash is the same for two engines that will do the same from now on, whenever now
// is: instants, steps and reads count as how long ago they were. (It may differ for
// engines that will.) It leaves out the faults, which only with a CommitTimeout change
// more than reports.
func (e *Engine) Hash() uint64 {
	d := digest{now: e.now, step: e.step, reads: e.looks.count}
	for _, part := range []any{e.beat, e.seat, e.looks, e.fleet, e.leave, e.feed, e.rows, e.due, e.all, e.shards} {
		d.add(reflect.ValueOf(part))
	}
	return d.sum
}

// HashOf is the same for two records, or other plain values, that are the same.
func HashOf(v any) uint64 {
	var d digest
	d.add(reflect.ValueOf(v))
	return d.sum
}

// A digest walks a value. Every field counts, also those that are added later.
type digest struct {
	sum   uint64
	now   Moment
	step  order
	reads serial
}

func (d *digest) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		fields := v.NumField()
		if v.Type() == reflect.TypeFor[time.Time]() {
			fields-- // not the location
		}
		for i := range fields {
			d.add(v.Field(i))
		}
	case reflect.Slice:
		d.number(int64(v.Len()))
		for i := range v.Len() {
			d.add(v.Index(i))
		}
	case reflect.Pointer, reflect.Interface:
		d.number(int64(v.Kind()))
		if !v.IsNil() {
			d.add(v.Elem())
		}
	case reflect.String:
		d.text(v.String())
	case reflect.Bool:
		if v.Bool() {
			d.number(1)
		} else {
			d.number(0)
		}
	case reflect.Func: // the orders of positions, the same for all shards
	default:
		d.addNumber(v)
	}
}

func (d *digest) addNumber(v reflect.Value) {
	switch {
	case v.IsZero():
		d.number(0) // never, of a step or a read as well
	case v.Type() == reflect.TypeFor[Instant]():
		if i := Instant(v.Int()); i != Never {
			d.ago(int64(d.now.Mono - i))
		} else {
			d.number(int64(i))
		}
	case v.Type() == reflect.TypeFor[wall]():
		d.ago(d.now.Wall.UnixNano() - v.Int())
	case v.Type() == reflect.TypeFor[order]():
		d.ago(int64(d.step - order(v.Uint())))
	case v.Type() == reflect.TypeFor[serial]():
		d.ago(int64(d.reads - serial(v.Uint())))
	case v.CanInt():
		d.number(v.Int())
	default:
		d.number(int64(v.Uint()))
	}
}

// ago is not the same for now and for never.
func (d *digest) ago(n int64) { d.number(n<<1 | 1) }

func (d *digest) text(s string) {
	d.number(int64(len(s)))
	for ; len(s) > 8; s = s[8:] {
		d.number(word(s[:8]))
	}
	d.number(word(s))
}

func word(s string) (n int64) {
	for i := range len(s) {
		n = n<<8 | int64(s[i])
	}
	return n
}

func (d *digest) number(n int64) {
	d.sum = bits.RotateLeft64(d.sum^uint64(n)*0x9e3779b97f4a7c15, 29) * 0xbf58476d1ce4e5b9
}
