package engine

import (
	"encoding/binary"
	"hash/fnv"
	"io"
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
		c.shards[i] = new(*s)
	}
	return &c
}

// Hash is the same for two engines that will do the same from now on, whenever now
// is: instants, steps and reads count as how long ago they were. (It may differ for
// engines that will.)
func (e *Engine) Hash() uint64 {
	h := fnv.New64a()
	d := digest{w: h, now: e.now, step: e.step, reads: e.looks.count}
	for _, part := range []any{e.beat, e.seat, e.looks, e.fleet, e.leave, e.feed, e.due, e.all, e.shards} {
		d.add(reflect.ValueOf(part))
	}
	return h.Sum64()
}

// A digest walks a value. Every field counts, also those that are added later.
type digest struct {
	w     io.Writer
	now   Moment
	step  order
	reads serial
}

func (d digest) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			d.addTime(v)
			return
		}
		for _, field := range v.Fields() {
			d.add(field)
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
		d.number(int64(v.Len()))
		_, _ = io.WriteString(d.w, v.String())
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

func (d digest) addNumber(v reflect.Value) {
	switch {
	case v.IsZero():
		d.number(0) // never, of a step or a read as well
	case v.Type() == reflect.TypeFor[Instant]():
		if i := Instant(v.Int()); i != Never {
			d.number(int64(d.now.Mono - i))
		} else {
			d.number(int64(i))
		}
	case v.Type() == reflect.TypeFor[wall]():
		d.number(d.now.Wall.UnixNano() - v.Int())
	case v.Type() == reflect.TypeFor[order]():
		d.number(int64(d.step - order(v.Uint())))
	case v.Type() == reflect.TypeFor[serial]():
		d.number(int64(d.reads - serial(v.Uint())))
	case v.CanInt():
		d.number(v.Int())
	default:
		d.number(int64(v.Uint()))
	}
}

// addTime reads the parts of a time, for reflection gives no methods of a field that
// is not exported.
func (d digest) addTime(v reflect.Value) {
	for i := range v.NumField() - 1 { // not the location
		d.addNumber(v.Field(i))
	}
}

func (d digest) number(n int64) {
	_, _ = d.w.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}
