package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// figures returns the figures of a snapshot that are not 0, by name and labels without the group.
func figures(t *testing.T, s *inspect.Snapshot) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, f := range inspect.Figures(group, s) {
		name := strings.TrimPrefix(f.Name, "shardlease.")
		for _, label := range f.Labels[1:] {
			name += " " + label[1]
		}
		if _, twice := all[name]; twice || f.Labels[0] != [2]string{"group", group} || f.Help == "" || f.Unit == "" {
			t.Errorf("a second figure, or one that is not whole: %+v", f)
		}
		all[name] = f.Value
	}
	for name, value := range all {
		if value == 0 {
			delete(all, name)
		}
	}
	return all
}

// TestFigures: the figures of a group are those of its snapshot, and times are rounded to the millisecond.
func TestFigures(t *testing.T) {
	of := settled(t)
	want := func(s *inspect.Snapshot, want map[string]float64) {
		t.Helper()
		if got := figures(t, s); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got\n%v, want\n%v", got, want)
		}
	}
	want(nil, map[string]float64{"check.status": 3})
	of.idle = true
	of.pass(4 * time.Minute)
	want(of.look(), map[string]float64{"shards held": 4, "workers": 2, "commit.age": 240})

	of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
	of.pass(1746999501 * time.Nanosecond)
	of.fail(of.rows["shard-1"])
	of.rows["shard-2"].Quarantined, of.rows["shard-2"].Owner = true, lease.Owner{}
	of.bad = []lease.Key{{Group: group, Kind: lease.KindLease, Name: "shard-9"}}
	want(of.look(), map[string]float64{
		"check.status": 2, "shards held": 1, "shards free": 1, "shards resting": 1, "shards quarantined": 1, "shards unreadable": 1,
		"workers": 2, "unowned": 2, "unowned.age": 1.747, "commit.age": 241.747, "warnings quarantined error": 1, "warnings unreadable error": 1,
	})
	for _, f := range inspect.Figures(group, &inspect.Snapshot{Partial: true}) {
		t.Errorf("a look at one shard says nothing about a group: %+v", f)
	}
	for _, f := range inspect.Figures(group, &inspect.Snapshot{Sessions: true}) {
		if strings.HasSuffix(f.Name, ".age") || f.Name == "shardlease.unowned" {
			t.Errorf("a lease that nobody wants is no fault: %+v", f)
		}
	}
}
