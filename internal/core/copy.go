package core

import (
	"math/bits"
	"reflect"
	"slices"
	"time"
)

// Clone returns another engine in the same state. It shares nothing that either changes.
func (e *Engine) Clone() *Engine {
	c := *e
	c.turn.out = nil
	c.seat.former = slices.Clone(e.seat.former)
	c.peers.all = slices.Clone(e.peers.all)
	c.owners.all = slices.Clone(e.owners.all)
	c.draft.writes = slices.Clone(e.draft.writes)
	c.draft.next = slices.Clone(e.draft.next)
	c.follow.reading.pages = slices.Clone(e.follow.reading.pages)
	c.facts.all = slices.Clone(e.facts.all)
	c.news.finished = slices.Clone(e.news.finished)
	c.shards.all = make([]*shard, len(e.shards.all))
	for i, s := range e.shards.all {
		c.shards.all[i] = s.clone()
	}
	return &c
}

func (s *shard) clone() *shard {
	c := new(*s)
	if s.ask != nil {
		c.ask = new(*s.ask)
	}
	if s.t != nil {
		c.t = new(*s.t)
		if s.t.give != nil {
			c.t.give = new(*s.t.give)
		}
	}
	return c
}

// Hash returns the same for two engines that will do the same from now on, whenever now is:
// instants, steps and reads count as how long ago they were. It may differ for engines that will.
// It leaves out the faults, which only with a CommitTimeout change more than reports.
func (e *Engine) Hash() uint64 {
	d := digest{now: e.turn.now, step: e.turn.step, reads: e.turn.reads}
	for _, part := range []any{e.seat, e.peers, e.reads, e.shards, e.owners, e.follow, e.watch, e.draft, e.feed, e.facts, e.pages, e.news, e.leave} {
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
