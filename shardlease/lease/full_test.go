package lease_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestFullMeansFull: the records of fixture.Full use every exported field of every kind of record. Tests that store and
// read these records therefore test every field.
func TestFullMeansFull(t *testing.T) {
	var all []any
	kinds := map[lease.Kind]bool{}
	for _, r := range fixture.Full(t) {
		if err := r.Validate(); err != nil {
			t.Errorf("%v: %v", r, err)
		}
		all, kinds[r.Key().Kind] = append(all, r), true
	}
	for _, field := range fixture.Unset(all...) {
		t.Errorf("no record of fixture.Full uses %s: give it a value there", field)
	}
	for _, kind := range fixture.Kinds[lease.Kind](t) {
		if !kinds[kind] {
			t.Errorf("fixture.Full has no record of the kind %v", kind)
		}
	}
}

// TestEveryFieldIsStored: every field of a record is written, read, and not shared with a clone of the record. Every
// attribute of internal/attr is part of some record.
func TestEveryFieldIsStored(t *testing.T) {
	written := map[string]bool{}
	for _, r := range fixture.Full(t) {
		item := lease.Encode(r)
		for name := range item {
			written[name] = true
		}
		back, err := lease.Decode(item)
		if err != nil {
			t.Errorf("%v: %v", r, err)
			continue
		}
		for _, field := range differing(reflect.ValueOf(r), reflect.ValueOf(back)) {
			t.Errorf("%s is not read as it was written: see encode, and the reader, of the record", field)
		}
		clone := lease.Clone(r)
		if !reflect.DeepEqual(clone, r) {
			t.Errorf("%v is cloned as %v", r, clone)
		}
		for _, field := range fixture.Shared(r, clone) {
			t.Errorf("a clone shares the memory of %s: see the record's method clone", field)
		}
	}
	for name, attribute := range fixture.Texts(t, "internal/attr") {
		if !written[attribute] {
			t.Errorf("attr.%s (%s) is written in no record of fixture.Full", name, attribute)
		}
	}
	if !written[attr.Wants] {
		t.Error("found no attributes: the test may have stopped finding them")
	}
}

// TestAbsentMeansEmpty: a record is read without any one attribute, as an older version wrote it, except for those that
// every version has written.
func TestAbsentMeansEmpty(t *testing.T) {
	always := []string{
		attr.Group, attr.Key, attr.Version, attr.WriteID, attr.Counter, attr.Generation, attr.Last, attr.Name, attr.TTL, attr.Revision, attr.Pages, attr.Act, attr.By,
		attr.Owner, attr.Incarnation, attr.ReservedFor, attr.Reserved, attr.Position, attr.CheckpointGeneration, // together with others
	}
	for _, r := range fixture.Full(t) {
		for name := range lease.Encode(r) {
			item := lease.Encode(r)
			delete(item, name)
			if _, err := lease.Decode(item); err != nil && !slices.Contains(always, name) {
				t.Errorf("%v without %s: %v", r.Key(), name, err)
			}
		}
	}
}

// differing returns the fields of two structs that differ, also those of embedded structs, by type and name.
func differing(a, b reflect.Value) (fields []string) {
	for i := range a.NumField() {
		switch of := a.Type().Field(i); {
		case of.Anonymous:
			fields = append(fields, differing(a.Field(i), b.Field(i))...)
		case !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()):
			fields = append(fields, a.Type().String()+"."+of.Name)
		}
	}
	return fields
}

// TestKindsOfWish: this version knows the form of every kind of wish, and operators make all kinds except "look".
func TestKindsOfWish(t *testing.T) {
	made := lease.WishKinds()
	for _, kind := range fixture.Kinds[lease.WishKind](t) {
		if _, _, known := kind.Names(); !known {
			t.Errorf("WishKind.Names does not know %q", kind)
		}
		if slices.Contains(made, kind) == (kind == "look") {
			t.Errorf("WishKinds has %v, which is wrong for %q", made, kind)
		}
	}
}

// TestEveryFieldHasLimits: Validate refuses a text with a character that ends a line or a name, a text that is longer than all
// limits, and a negative number, in every field of a record.
func TestEveryFieldHasLimits(t *testing.T) {
	excepted := map[string]string{
		"checkpoint.Mark.Position": "the user's data", "checkpoint.Mark.State": "the user's data",
		"lease.Row.Past": "lines with tabs, which only transitions and Decode make", "lease.Seat.Backoff": "-1 means not at all",
	}
	for _, r := range fixture.Full(t) {
		v := reflect.New(reflect.TypeOf(r)).Elem()
		v.Set(reflect.ValueOf(r))
		check := func(field, what string) {
			if err := v.Interface().(lease.Record).Validate(); err == nil && excepted[field] == "" {
				t.Errorf("%s: Validate accepts %s", field, what)
			}
		}
		spoil(v, check)
	}
}

// spoil sets one field after the other to a value that cannot be stored, and calls check.
func spoil(v reflect.Value, check func(field, what string)) {
	for i := range v.NumField() {
		of, name := v.Field(i), v.Type().String()+"."+v.Type().Field(i).Name
		old := reflect.ValueOf(of.Interface())
		switch {
		case of.Type() == reflect.TypeFor[time.Time]():
		case of.Kind() == reflect.Struct:
			spoil(of, check)
		case of.Kind() == reflect.String:
			of.SetString("\x00")
			check(name, "a control character")
			of.SetString(strings.Repeat("x", 1<<20))
			check(name, "a text of a megabyte")
			of.Set(old)
		case of.Kind() == reflect.Int64:
			of.SetInt(-1)
			check(name, "-1")
			of.Set(old)
		}
	}
}
