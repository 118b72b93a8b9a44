package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A seeder fills a group with records, by the transitions of workers and operators. Each line is one:
//
//	at -10m                          the next lines happen ten minutes before now
//	worker NAME INCARNATION [key=value …]   takes a seat; keys: task, build, max, ttl, handoff
//	beat INCARNATION                 a heartbeat
//	leaving|unwell|wants|declined INCARNATION …   a heartbeat that says so
//	create SHARD [PARENT …]          a new row
//	claim SHARD INCARNATION NAME     a worker claims a free shard; recover: that of a dead owner
//	commit SHARD POSITION [STATE]    the owner's checkpoint
//	offer SHARD INCARNATION          the owner offers the shard
//	release|fail|finish SHARD        the owner gives it up
//	quarantine|unlist SHARD
//	plan INCARNATION [PLANNER]       a worker plans that every owner keeps its shards
//	wish KIND SUBJECT TO DURATION    of operator ann
//	sessions INCARNATION             the group is one of sessions
//	waits INCARNATION LEASE [TASK]   a heartbeat: the session waits for the lease from then on
//	waits INCARNATION LEASE N        and for N more leases
//	acquire LEASE INCARNATION NAME   a session creates a lease and holds it; with a lock delay: LEASE INCARNATION NAME 1m
type seeder struct {
	store lease.Store
	group string
	now   time.Time
	at    time.Time
}

func unquotePrefix(s string) (word, rest string, err error) {
	prefix, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", err
	}
	word, err = strconv.Unquote(prefix)
	return word, s[len(prefix):], err
}

func (s *seeder) stamp() protocol.Stamp {
	return protocol.Stamp{ID: lease.WriteID(rand.Text()), At: s.at}
}

// run makes the transitions of a text.
func (s *seeder) run(text string) error {
	s.at = s.now
	for i, line := range strings.Split(text, "\n") {
		list, err := words(line)
		if err == nil && len(list) > 0 {
			err = s.do(list[0], append(list[1:], "", "", ""))
		}
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", i+1, line, err)
		}
	}
	return nil
}

// stored returns the record with the key of none, or none.
func stored[R lease.Record](s *seeder, none R) R {
	if r, err := s.store.Get(context.Background(), none.Key()); err == nil {
		return r.(R)
	}
	return none
}

func (s *seeder) row(shard string) (lease.Row, lease.Hold) {
	row := stored(s, lease.Row{Group: s.group, Shard: shard})
	return row, lease.Hold{Key: row.Key(), Incarnation: row.Owner.Incarnation, Generation: row.Generation}
}

func (s *seeder) seat(inc string) lease.Seat {
	return stored(s, lease.Seat{Group: s.group, Incarnation: lease.Incarnation(inc)})
}

func (s *seeder) write(w lease.Write, err error) error {
	if err != nil {
		return err
	}
	_, err = s.store.Write(context.Background(), w)
	return err
}

func (s *seeder) do(verb string, args []string) error {
	given := args[:len(args)-3]
	row, hold := s.row(args[0])
	st := s.stamp()
	switch verb {
	case "at":
		ago, err := time.ParseDuration(args[0])
		s.at = s.now.Add(ago)
		return err
	case "worker":
		return s.sit(args[0], args[1], given[2:])
	case "beat", "leaving", "unwell", "wants", "declined", "waits":
		return s.says(verb, args)
	case "create":
		return s.write(protocol.Begin(s.group, args[0], given[1:], "source", st))
	case "claim":
		return s.write(protocol.Claim(row, lease.Owner{Name: args[2], Incarnation: lease.Incarnation(args[1]), Task: s.seat(args[1]).Task}, st))
	case "recover":
		return s.write(protocol.Recover(row, lease.Owner{Name: args[2], Incarnation: lease.Incarnation(args[1])}, st))
	case "commit":
		return s.write(protocol.Commit(row, hold, checkpoint.Mark{Position: args[1], State: args[2]}, st))
	case "offer":
		return s.write(protocol.Offer(row, hold, lease.Incarnation(args[1]), checkpoint.Mark{}, st))
	case "release", "fail", "unlist":
		reason := map[string]lease.Reason{"release": lease.ReasonReleased, "fail": lease.ReasonFailed, "unlist": lease.ReasonUnlisted}[verb]
		return s.write(protocol.Release(row, hold, protocol.End{Reason: reason, Note: args[1]}, st))
	case "finish":
		return s.write(protocol.Finish(row, hold, checkpoint.Mark{}, st))
	case "quarantine":
		return s.write(protocol.Quarantine(row, protocol.Command{Seen: row.Generation, By: "ann", Note: "poison"}, lease.ReasonForced, st))
	case "plan":
		return s.plan(s.seat(args[0]).Owner(), cmp.Or(args[1], rebalance.Even{}.Name()))
	case "wish":
		return s.wish(args)
	case "sessions":
		return s.write(protocol.BeginSessions(s.group, s.seat(args[0]).Owner(), st))
	case "acquire":
		owner := lease.Owner{Name: args[2], Incarnation: lease.Incarnation(args[1])}
		if args[3] != "" {
			delay, err := time.ParseDuration(args[3])
			if err != nil {
				return err
			}
			owner.LockDelay = delay
		}
		return s.write(protocol.BeginHeld(s.group, args[0], owner, st))
	}
	return fmt.Errorf("unknown verb")
}

func (s *seeder) sit(name, inc string, settings []string) error {
	seat := lease.Seat{Group: s.group, Name: name, Incarnation: lease.Incarnation(inc), TTL: 10 * time.Second, Since: s.at, Build: "v1", Handoff: "eager"}
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		var err error
		switch key {
		case "task":
			seat.Task = value
		case "build":
			seat.Build = value
		case "max":
			seat.MaxShards, err = strconv.ParseInt(value, 10, 64)
		case "ttl":
			seat.TTL, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return err
		}
	}
	if err := s.write(protocol.Sit(seat, s.stamp())); err != nil {
		return err
	}
	return s.says("beat", []string{inc})
}

func (s *seeder) says(verb string, args []string) error {
	seat := s.seat(args[0])
	says := seat.Says
	switch verb {
	case "leaving":
		says.Leaving = true
	case "unwell":
		says.Health.Unwell = args[1]
	case "declined":
		says.News = append(says.News, lease.News{Kind: lease.NewsDeclined, Shard: args[1]})
	case "waits":
		if more, err := strconv.ParseInt(args[2], 10, 64); err == nil {
			says.WaitsLeft += more
			args[2] = ""
		}
		says.Waits = append(says.Waits, lease.Wait{Lease: args[1], Task: args[2], Since: s.at})
	case "wants":
		row, _ := s.row(args[1])
		says.Wants = append(says.Wants, lease.Want{
			Shard: args[1], Generation: row.Generation, Owner: row.Owner.Incarnation, Terms: rebalance.Terms{Mode: rebalance.Eager, Drain: 20 * time.Second},
		})
	}
	return s.write(protocol.NextBeat(seat, says, s.stamp()))
}

func (s *seeder) wish(args []string) error {
	now := stored(s, lease.Wishes{Group: s.group})
	w := lease.Wish{Kind: lease.WishKind(args[0]), Subject: args[1], To: args[2], By: "ann", Why: "test"}
	if args[3] != "" {
		lasts, err := time.ParseDuration(args[3])
		if err != nil {
			return err
		}
		w.Until = s.at.Add(lasts)
	}
	return s.write(protocol.SetWishes(now, append(now.List, w), s.stamp()))
}

// plan writes a complete plan in which every owner keeps its shards.
func (s *seeder) plan(by lease.Owner, planner string) error {
	w, err := protocol.OpenPlan(stored(s, lease.Plan{Group: s.group}), protocol.Opening{By: by, Planner: planner}, s.stamp())
	if err := s.write(w, err); err != nil {
		return err
	}
	open := w.Next.(lease.Plan)
	targets := map[lease.Incarnation]*lease.Target{}
	found := lease.Finding{Watchers: []lease.Incarnation{by.Incarnation}}
	for r := range s.store.List(context.Background(), lease.Query{Group: s.group, Kind: lease.KindSeat}) {
		if seat, ok := r.(lease.Seat); ok {
			targets[seat.Incarnation] = &lease.Target{Group: s.group, Incarnation: seat.Incarnation, Pages: 1, Revision: open.Revision}
			found.Members++
			seat.Revision, seat.Settled = open.Revision, true
			if err := s.write(protocol.NextBeat(seat, seat.Says, s.stamp())); err != nil {
				return err
			}
		}
	}
	for r := range s.store.List(context.Background(), lease.Query{Group: s.group, Kind: lease.KindLease}) {
		row := r.(lease.Row)
		if target := targets[row.Owner.Incarnation]; target != nil {
			target.Hold = append(target.Hold, lease.Assigned{Shard: row.Shard})
			found.Shards++
		}
	}
	for _, target := range targets {
		old := stored(s, lease.Target{Group: s.group, Incarnation: target.Incarnation})
		if err := s.write(protocol.WriteTarget(old, *target, s.stamp())); err != nil {
			return err
		}
	}
	return s.write(protocol.ClosePlan(open, open.Revision, by.Incarnation, found, s.stamp()))
}
