package inspect_test

import (
	"slices"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestTallies: the tenures that ended, as far as the rows remember, are counted by worker and task. A claim of a
// free shard ends no tenure.
func TestTallies(t *testing.T) {
	of := settled(t)
	row := of.rows["shard-0"]
	hold := func(name, task string) {
		of.begin(row, lease.ReasonReleased, name, "")
		row.Owner.Task = task
	}
	end := func(why lease.Reason, to, by string) {
		from := row.Owner
		of.begin(row, why, to, by)
		row.Last.Task = from.Task
	}
	row.Past, row.Last.From = "", ""
	row.Owner = lease.Owner{}
	hold("x", "deploy/eu")
	end(lease.ReasonReleased, "", "x")
	hold("x", "deploy/eu")
	end(lease.ReasonExpired, "y", "y")
	end(lease.ReasonHandoff, "x", "y")
	end(lease.ReasonForced, "", "ann")
	hold("x", "deploy/eu")
	end(lease.ReasonFailed, "", "x")
	got := slices.DeleteFunc(of.look().Tallies(), func(tally inspect.Tally) bool {
		return tally.Worker != "x" && tally.Worker != "y" && tally.Worker != ""
	})
	want := []inspect.Tally{
		{Worker: "x", Forced: 1}, {Worker: "x", Task: "deploy/eu", Released: 2, Expired: 1}, {Worker: "y", Released: 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v; the row is %v after %v", got, want, *row, row.History())
	}
}
