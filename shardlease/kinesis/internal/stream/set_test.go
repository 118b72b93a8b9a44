package stream_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestSet: the shards of several streams have the names of their streams, and if one stream cannot be
// listed, those of the others are listed with an error, so that none counts as gone.
func TestSet(t *testing.T) {
	const arn = "arn:aws:kinesis:eu-central-1:111122223333:stream/returns"
	server := newFake(kinesistest.Shard{Name: "a", Closed: true}, kinesistest.Shard{Name: "b", Parents: []string{"a"}, Records: records(2, 1), Closed: true})
	server.Create(arn, 0).Add(kinesistest.Shard{Name: "a"})
	set, err := stream.NewSet(
		&stream.Stream{Client: server.Client(), Name: "orders"},
		&stream.Stream{Client: server.Client(), Name: arn})
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Begin(t.Context(), new(memstore.Store), "g", stream.Start{Sequence: map[string]string{"orders/b": "2"}}); err != nil {
		t.Fatal(err)
	}
	all := []shardlease.Shard{{Name: "orders/a"}, {Name: "orders/b", Parents: []string{"orders/a"}}, {Name: "returns/a"}}
	for range 2 {
		if got, err := set.Shards(t.Context()); err != nil || !reflect.DeepEqual(got, all) {
			t.Errorf("listed %v, %v; want %v", got, err, all)
		}
	}
	of, name, ok := set.Find("orders/b")
	if !ok || of.Name != "orders" || name != "b" {
		t.Errorf("orders/b is %s of %v, %t", name, of, ok)
	}
	if got, _ := readAll(t.Context(), of, name, ""); len(got) != 1 {
		t.Errorf("read %v from the second of two records", got)
	}
	for _, wrong := range []string{"orders", "b", "orders/", "other/a"} {
		if _, _, ok := set.Find(wrong); ok {
			t.Errorf("%q is a shard of the set", wrong)
		}
	}
	server.Omit = func(name string) bool { return name == "a" } // partial: the shard exists
	if got, err := set.Shards(t.Context()); !errors.Is(err, stream.ErrPartial) || !reflect.DeepEqual(got, all[2:]) {
		t.Errorf("with one partial listing: %v, %v", got, err)
	}
	if _, err := stream.NewSet(&stream.Stream{Name: "orders"}, &stream.Stream{Name: "arn:aws:kinesis:eu-central-1:111122223333:stream/orders"}); err == nil {
		t.Error("two streams of one name are accepted")
	}
	wrong := stream.Start{Sequence: map[string]string{"b": "2"}}
	if err := set.Begin(t.Context(), new(memstore.Store), "g", wrong); err == nil {
		t.Error("a sequence number of no stream is accepted")
	}
}
