// Package digest hashes plain values: two values with the same digest will behave the same, as far
// as their fields decide it. The explorer tells states apart by it.
package digest

import (
	"math/bits"
	"reflect"
	"time"
)

// Of returns the digest of the values. A field counts if it is exported or not, so a field that is
// added later counts as well. Functions do not count.
//
// A number whose type is in now is a moment, and counts as how long before now it was. Never is the
// one moment that counts as it is; so does 0, which stands for no moment.
func Of(now map[reflect.Type]int64, never int64, values ...any) uint64 {
	d := digest{now: now, never: never}
	for _, v := range values {
		d.add(reflect.ValueOf(v))
	}
	return d.sum
}

type digest struct {
	sum   uint64
	now   map[reflect.Type]int64
	never int64
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
	case reflect.Slice, reflect.Array:
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
	case reflect.Func:
	default:
		d.addNumber(v)
	}
}

func (d *digest) addNumber(v reflect.Value) {
	now, moment := d.now[v.Type()]
	n := int64(0)
	if v.CanInt() {
		n = v.Int()
	} else {
		n = int64(v.Uint())
	}
	if moment && n != 0 && n != d.never {
		n = (now-n)<<1 | 1 // not the same for now and for never
	}
	d.number(n)
}

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
