package inspect

import (
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Figure is one number about a group, for programs that export numbers to a monitoring system without knowing this
// package. docs/metrics.md describes each name.
type Figure struct {
	Name   string      // words with dots, such as "shardlease.shards"
	Unit   string      // "s": seconds; otherwise a noun in braces
	Help   string      // one sentence
	Total  bool        // it only grows while a watch lasts; otherwise it may fall
	Labels [][2]string // names and values; the first is the group
	Value  float64
}

// Figures returns the figures of a look at a group, those of one name side by side. If the look has failed, s is nil, and
// the only figure says so. The ends of tenures are there for snapshots that an [Observer] has seen, as those of
// [Watch], and count from its first look on. A snapshot of [LookAt] has no figures.
func Figures(group string, s *Snapshot) []Figure {
	c := figures{group: group}
	const status = "0: all is well; 1: a warning; 2: an error; 3: the table cannot be read."
	if s == nil {
		c.add("shardlease.check.status", "{status}", status, 3)
		return c.all
	}
	if s.Partial {
		return nil
	}
	warnings := s.Warnings()
	c.add("shardlease.check.status", "{status}", status, float64(worst(warnings)))
	c.shards(s)
	c.add("shardlease.workers", "{worker}", "Workers or sessions that have a seat: also a dead one, until another evicts it.", float64(len(s.Workers)))
	c.warnings(warnings)
	for _, reason := range ends() {
		if s.ended != nil {
			c.add("shardlease.group.ends", "{tenure}", "Tenures that have ended, by the reason for the change of hands.", float64(s.ended[reason]), "reason", string(reason))
			c.all[len(c.all)-1].Total = true
		}
	}
	return c.all
}

// figures collects the figures of a group.
type figures struct {
	group string
	all   []Figure
}

// add adds a figure. Labels are names, each followed by its value.
func (c *figures) add(name, unit, help string, value float64, labels ...string) {
	f := Figure{Name: name, Unit: unit, Help: help, Labels: [][2]string{{"group", c.group}}, Value: value}
	for ; len(labels) > 0; labels = labels[2:] {
		f.Labels = append(f.Labels, [2]string{labels[0], labels[1]})
	}
	c.all = append(c.all, f)
}

// shards adds the shards by state, and how long what should happen with a shard has not happened.
func (c *figures) shards(s *Snapshot) {
	state := func(name string, n int) {
		c.add("shardlease.shards", "{shard}", "Shards or leases by state.", float64(n), "state", name)
	}
	for _, of := range States() {
		if of != Removed { // a listing has no tombstones
			state(string(of), s.Count(of))
		}
	}
	unreadable := 0
	for _, u := range s.Unreadable {
		if u.Key.Kind == lease.KindLease && s.Shard(u.Key.Name) == nil {
			unreadable++
		}
	}
	state("unreadable", unreadable)
	if s.Sessions { // a lease that nobody wants is no fault, and its holder need not commit
		return
	}
	unowned, longest, oldest := 0, time.Duration(0), time.Duration(0)
	for i := range s.Shards {
		switch of := &s.Shards[i]; of.State {
		case Free, Resting, Orphaned:
			unowned, longest = unowned+1, max(longest, of.Since.D)
		case Held, Moving:
			age := of.Checkpoint
			if !age.Known {
				age = of.Tenure
			}
			oldest = max(oldest, age.D)
		}
	}
	c.add("shardlease.unowned", "{shard}", "Shards that a worker should hold and none does: free, resting or orphaned.", float64(unowned))
	c.add("shardlease.unowned.age", "s", "The longest time that a shard now unowned has been unowned.", seconds(longest))
	c.add("shardlease.commit.age", "s", "How long ago the last checkpoint was accepted, or the tenure began: the oldest of the shards that are held.", seconds(oldest))
}

// seconds returns a duration to the millisecond. Seconds() would return 1.7469999999999999 for 1.747 s.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

// warnings adds how many warnings there are of each code and level.
func (c *figures) warnings(list []Warning) {
	for _, code := range Codes() {
		for _, level := range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			n := 0
			for _, w := range list {
				if w.Code == code && w.Level == level {
					n++
				}
			}
			if n > 0 {
				c.add("shardlease.warnings", "{warning}", "Warnings by code and level.", float64(n), "code", string(code), "level", strings.ToLower(level.String()))
			}
		}
	}
}

// worst returns 2 if a warning is an error, 1 if one is of the level warn, and otherwise 0.
func worst(list []Warning) (status int) {
	for _, w := range list {
		switch {
		case w.Level >= slog.LevelError:
			status = 2
		case w.Level >= slog.LevelWarn:
			status = max(status, 1)
		}
	}
	return status
}
