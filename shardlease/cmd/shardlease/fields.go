package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A field is one thing that a listing shows of each of its items: a column for people, a field of JSON, or both.
type field[T any] struct {
	title string         // of the column, with the marks of cols; empty: only JSON has the field
	json  string         // the name in JSON, with ",omitempty" as in a tag; empty: another field of JSON contains it
	value func(T) any    // nil: the item has no value
	cell  func(T) string // the text in the column; nil: that of the value
}

// A big number is text in JSON, because readers that use doubles lose the last digits.
type big int64

// columnsOf returns the columns of a listing.
func columnsOf[T any](fields []field[T]) []column {
	var titles []string
	for _, f := range fields {
		if f.title != "" {
			titles = append(titles, f.title)
		}
	}
	return cols(titles...)
}

// cellsOf returns the texts of an item, one for each column.
func cellsOf[T any](fields []field[T], item T) (cells []string) {
	for _, f := range fields {
		switch {
		case f.title == "":
		case f.cell != nil:
			cells = append(cells, f.cell(item))
		default:
			cells = append(cells, text(f.value(item)))
		}
	}
	return cells
}

// addItems adds items to a result, in the table and in JSON.
func addItems[T any](r *result, fields []field[T], items ...T) {
	for _, item := range items {
		r.items = append(r.items, objectOf(fields, item))
		r.grid.add(cellsOf(fields, item)...)
	}
}

// text returns a value for people.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case inspect.Age:
		return old(v)
	case lease.Owner:
		return v.Name
	case time.Time:
		return moment(v)
	case time.Duration:
		return span(v)
	case big:
		return strconv.FormatInt(int64(v), 10)
	}
	return fmt.Sprint(value)
}

// forJSON returns a value as JSON has it, or nil.
func forJSON(value any) any {
	switch v := value.(type) {
	case inspect.Age:
		value = ageOf(v)
	case lease.Owner:
		value = ownerOf(v)
	case time.Time:
		value = stamp(v)
	case time.Duration:
		return seconds(v)
	case big:
		return text(v)
	}
	if of := reflect.ValueOf(value); of.Kind() == reflect.Pointer && of.IsNil() {
		return nil
	}
	return value
}

// An object is a JSON object whose fields have an order.
type object []entry

type entry struct {
	name  string
	value any
}

// objectOf returns an item as JSON has it.
func objectOf[T any](fields []field[T], item T) (o object) {
	for _, f := range fields {
		name, empty := strings.CutSuffix(f.json, ",omitempty")
		if name == "" {
			continue
		}
		value := forJSON(f.value(item))
		if value == nil || empty && isEmpty(reflect.ValueOf(value)) {
			continue
		}
		o = append(o, entry{name, value})
	}
	return o
}

// isEmpty reports whether omitempty omits a value.
func isEmpty(v reflect.Value) bool { return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 }

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(m.name) + ":")
		if err := e.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
