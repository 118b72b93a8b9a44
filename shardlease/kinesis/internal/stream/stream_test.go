package stream_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestSource: a listing has all pages, closed shards, and the parents of each.
func TestSource(t *testing.T) {
	server := newFake(
		kinesistest.Shard{Name: "a", Closed: true}, kinesistest.Shard{Name: "b", Closed: true},
		kinesistest.Shard{Name: "c", Closed: true, Parents: []string{"a", "b"}},
		kinesistest.Shard{Name: "d", Parents: []string{"c"}}, kinesistest.Shard{Name: "e", Parents: []string{"c"}},
	)
	server.PageSize = 2
	s := &stream.Stream{Client: server.Client(), Name: "orders"}
	got, err := s.Shards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []shardlease.Shard{
		{Name: "a"}, {Name: "b"}, {Name: "c", Parents: []string{"a", "b"}},
		{Name: "d", Parents: []string{"c"}}, {Name: "e", Parents: []string{"c"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := len(server.Calls("ListShards")); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

// TestSourceBeginsWithTheGroup: listings leave out shards that were closed before the group begins.
func TestSourceBeginsWithTheGroup(t *testing.T) {
	server := newFake(kinesistest.Shard{Name: "a"})
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		start time.Time
		want  map[string]any
	}{
		{time.Time{}, map[string]any{"Type": "FROM_TRIM_HORIZON"}},
		{at, map[string]any{"Type": "FROM_TIMESTAMP", "Timestamp": 1.7e9}},
	} {
		s := &stream.Stream{Client: server.Client(), Name: "orders", Start: c.start}
		if _, err := s.Shards(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := server.Calls("ListShards")
		if got := calls[len(calls)-1].Fields["ShardFilter"]; !reflect.DeepEqual(got, c.want) {
			t.Errorf("the filter is %v, want %v", got, c.want)
		}
	}
}

func TestStart(t *testing.T) {
	for _, text := range []string{"trim-horizon", "latest", "2026-01-02T15:04:05Z"} {
		var s stream.Start
		err := s.UnmarshalText([]byte(text))
		again, _ := s.MarshalText()
		if err != nil || string(again) != text {
			t.Errorf("%q is parsed as %+v, %v, and written as %q", text, s, err, again)
		}
	}
	for _, text := range []string{"", "yesterday"} {
		if err := new(stream.Start).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted as a start", text)
		}
	}
}
