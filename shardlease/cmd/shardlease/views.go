package main

import (
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the fields of JSON and YAML. Generations are strings, because readers that use doubles
// lose the last digits of large ones. Durations are in seconds.

// A scope is the head of a list.
type scope struct {
	Group      string           `json:"group,omitempty"`
	At         *time.Time       `json:"at,omitempty"`
	Sessions   bool             `json:"sessions,omitempty"` // the group is one of sessions
	Restored   bool             `json:"restored,omitempty"`
	Unreadable []unreadableView `json:"unreadable,omitempty"`
}

func scopeOf(s *inspect.Snapshot) scope {
	v := scope{Group: s.Group, At: stamp(s.At), Sessions: s.Sessions, Restored: s.Restored}
	for _, u := range s.Unreadable {
		v.Unreadable = append(v.Unreadable, unreadableView{u.Key.Kind.String(), u.Key.Name, u.Cause.Error()})
	}
	return v
}

type unreadableView struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Cause string `json:"cause"`
}

type ownerView struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Task        string `json:"task,omitempty"`
}

func ownerOf(o lease.Owner) *ownerView {
	if o.IsZero() {
		return nil
	}
	return &ownerView{o.Name, string(o.Incarnation), o.Task}
}

// An ageView is an age: told by the wall clock of another machine, or observed by this program.
type ageView struct {
	Seconds float64 `json:"seconds"`
	Known   string  `json:"known"`
}

func ageOf(a inspect.Age) *ageView {
	switch {
	case !a.Known:
		return nil
	case a.Observed:
		return &ageView{seconds(a.D), "observed"}
	}
	return &ageView{seconds(a.D), "told"}
}

// A checkpointView has no user data, unless the flag --positions is set.
type checkpointView struct {
	Generation string     `json:"generation"`
	At         *time.Time `json:"at,omitempty"`
	Position   *string    `json:"position,omitempty"`
	State      *string    `json:"state,omitempty"`
}

type reservedView struct {
	For          string  `json:"for,omitempty"`
	Seconds      float64 `json:"seconds,omitempty"`      // after the last change and the delay
	DelaySeconds float64 `json:"delaySeconds,omitempty"` // from when a session first sees the last change
}

type moveView struct {
	From       *ownerView `json:"from"`
	To         *ownerView `json:"to"`
	Mode       string     `json:"mode,omitempty"`
	Cause      string     `json:"cause,omitempty"`
	Note       string     `json:"note,omitempty"` // by whom and why, if an operator has caused the move
	Phase      string     `json:"phase"`
	For        *ageView   `json:"for,omitempty"`
	MaySeconds float64    `json:"maySeconds,omitempty"`
}

func tallyFields() []field[inspect.Tally] {
	type of = inspect.Tally
	return []field[of]{
		{title: "REASON", json: "reason", value: func(t of) any { return t.Reason }},
		{title: ">ENDS", json: "ends", value: func(t of) any { return t.Count }},
	}
}

func transferFields() []field[pastTransfer] {
	type of = pastTransfer
	return []field[of]{
		{title: "TIME", json: "at", value: func(t of) any { return t.At }},
		{title: "SHARD/LEASE", json: "shard,omitempty", value: func(t of) any { return t.shard }},
		{title: ">GENERATION", json: "generation", value: func(t of) any { return big(t.Generation) }},
		{title: "REASON", json: "reason", value: func(t of) any { return t.Reason }, cell: func(t of) string { return reason(t.Transfer) }},
		{json: "created,omitempty", value: func(t of) any { return t.Created() }}, // the row was created
		{json: "claimed,omitempty", value: func(t of) any { return t.Claimed() }}, // the shard was free for the reason before this claim
		{title: "FROM", json: "from,omitempty", value: func(t of) any { return t.From }},
		{title: "BY", json: "by,omitempty", value: func(t of) any { return t.By }},
		{title: "+TASK", json: "task,omitempty", value: func(t of) any { return t.Task }},
		{json: "mode", value: func(t of) any { return modeOf(t.Mode) }},
		{json: "cause,omitempty", value: func(t of) any { return causeOf(t.Why) }}, // of a planned move
		{json: "did,omitempty", value: func(t of) any { return t.Did }},
		{title: "~NOTE", json: "note,omitempty", value: func(t of) any { return t.Note }},
	}
}

// transferOf returns a change of hands as a part of another object.
func transferOf(t lease.Transfer) object { return objectOf(transferFields(), pastTransfer{"", t}) }

// modeOf returns the mode of a move, or nil.
func modeOf(m rebalance.Mode) any {
	if m.Validate() != nil {
		return nil
	}
	return m.String()
}

// causeOf returns the cause of a planned move; empty: it is unknown.
func causeOf(why rebalance.Why) string {
	if why == 0 {
		return ""
	}
	return why.String()
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func shardFields(positions bool) []field[*inspect.Shard] {
	type of = *inspect.Shard
	list := []field[of]{
		{title: "SHARD/LEASE", json: "name", value: func(s of) any { return s.Name }},
		{title: "STATE", json: "state", value: func(s of) any { return s.State }},
		{title: "OWNER/HOLDER", json: "owner", value: func(s of) any { return s.Owner }},
		{title: ">GENERATION", json: "generation", value: func(s of) any { return big(s.Row.Generation) }},
		{title: "!>ATTEMPTS", json: "attempts", value: func(s of) any { return s.Attempts }},
		{title: ">SINCE", json: "since", value: func(s of) any { return s.Since }},
		{title: ">CHECKPOINT", json: "checkpointAge", value: func(s of) any { return s.Checkpoint }},
		{title: "+INCARNATION", value: func(s of) any { return s.Owner.Incarnation }},
		{title: "+TASK", value: func(s of) any { return s.Owner.Task }},
		{title: "?+WAITERS", json: "waiters,omitempty", value: func(s of) any { return waitersOf(s) }, cell: describeWaiters},
		{title: "!+TARGET", json: "target", value: func(s of) any { return s.Target }},
		{title: "!+MOVE", json: "move", value: func(s of) any { return moveOf(s.Move) }, cell: func(s of) string { return describeMove(s.Move) }},
		{title: "+>SIZE", json: "sizeBytes", value: func(s of) any { return s.Size }},
		{title: "+LAST CHANGE", json: "lastTransfer", value: func(s of) any { return transferOf(s.Row.Noted(s.Row.Last)) }, cell: func(s of) string { return reason(s.Row.Last) }},
		{title: "+BY", value: func(s of) any { return s.Row.Last.By }},
		{title: "+NOTE", value: func(s of) any { return s.Row.Noted(s.Row.Last).Note }},
		{json: "parents,omitempty", value: func(s of) any { return s.Row.Parents }},
		{json: "blockedBy,omitempty", value: func(s of) any { return s.Blockers }},
		{json: "checkpoint", value: func(s of) any { return checkpointOf(s.Row.Checkpoint, positions) }},
		{json: "reserved", value: func(s of) any { return reservedOf(s.Row.Reserved) }},
		{json: "lastError,omitempty", value: func(s of) any { text, _ := s.Row.LastError(); return text }},
		{json: "lastFailure", value: func(s of) any {
			if s.LastFailure == nil {
				return nil
			}
			return transferOf(*s.LastFailure)
		}},
	}
	if positions {
		list = append(list,
			field[of]{title: "POSITION", value: func(s of) any { return s.Row.Checkpoint.Position }},
			field[of]{title: "+MARK STATE", value: func(s of) any { return s.Row.Checkpoint.State }})
	}
	return list
}

func checkpointOf(c checkpoint.Checkpoint, positions bool) *checkpointView {
	if c.Generation == 0 {
		return nil
	}
	v := &checkpointView{Generation: number(c.Generation), At: stamp(c.At)}
	if positions && !c.IsZero() {
		v.Position, v.State = &c.Position, &c.State
	}
	return v
}

func reservedOf(r lease.Reservation) *reservedView {
	if r.IsZero() {
		return nil
	}
	return &reservedView{r.For, seconds(r.Lasts), seconds(r.Delay)}
}

func moveOf(m *inspect.Move) *moveView {
	if m == nil {
		return nil
	}
	mode, _ := modeOf(m.Mode).(string)
	return &moveView{From: ownerOf(m.From), To: ownerOf(m.To), Mode: mode, Cause: causeOf(m.Why), Note: m.Note, Phase: string(m.Phase), For: ageOf(m.For), MaySeconds: seconds(m.May)}
}

func workerFields() []field[*inspect.Worker] {
	type of = *inspect.Worker
	return []field[of]{
		{title: "WORKER/SESSION", json: "name", value: func(w of) any { return w.Seat.Name }},
		{title: "INCARNATION", json: "incarnation", value: func(w of) any { return w.Seat.Incarnation }},
		{title: ">HELD", json: "held", value: func(w of) any { return w.Held }},
		{title: "!>TARGET", json: "target", value: func(w of) any {
			if w.Target < 0 {
				return nil
			}
			return w.Target
		}},
		{title: "!>TAKING", json: "taking", value: func(w of) any { return w.Taking }},
		{title: "!>GIVING", json: "giving", value: func(w of) any { return w.Giving }},
		{title: "?+>WAITS", json: "waits,omitempty", value: func(w of) any { return w.Waits() }, cell: func(w of) string { return limit(int64(w.Waits())) }},
		{title: ">HANGS", json: "hangs,omitempty", value: func(w of) any { return w.Hangs }, cell: func(w of) string { return limit(int64(len(w.Hangs))) }},
		{title: ">HEARTBEAT", json: "heartbeatAge", value: func(w of) any { return w.Silent }},
		{title: "BEATING", json: "beating", value: func(w of) any { return w.Beating }},
		{title: "~STATE", value: func(w of) any { return workerState(w) }},
		{title: "+TASK", json: "task,omitempty", value: func(w of) any { return w.Seat.Task }},
		{title: "+BUILD", json: "build,omitempty", value: func(w of) any { return w.Seat.Build }},
		{title: "!+HANDOFF", json: "handoff,omitempty", value: func(w of) any { return w.Seat.Handoff }},
		{title: "+>TTL", json: "ttlSeconds", value: func(w of) any { return w.Seat.TTL }},
		{title: "!+>MAX SHARDS", json: "maxShards,omitempty", value: func(w of) any { return w.Seat.MaxShards }, cell: func(w of) string { return limit(w.Seat.MaxShards) }},
		{title: "+SINCE", json: "since", value: func(w of) any { return w.Seat.Since }},
		{title: "!+>REVISION", json: "revision", value: func(w of) any { return big(w.Seat.Revision) }},
		{title: "!+SETTLED", json: "settled", value: func(w of) any { return w.Seat.Settled }},
		{json: "address,omitempty", value: func(w of) any { return w.Seat.Address }}, // of its deathwatch
		{json: "heartbeat", value: func(w of) any { return big(w.Seat.Beat) }},
		{json: "dead", value: func(w of) any { return w.Dead }},
		{json: "leaving", value: func(w of) any { return w.Leaves }},
		{json: "health,omitempty", value: func(w of) any { return w.Health }},
		{json: "wish,omitempty", value: func(w of) any { return w.Wish }},
		{json: "waitsFor,omitempty", value: func(w of) any { return waitsOf(w) }},
		{json: "raised,omitempty", value: func(w of) any { return wishNumber(w.Seat.Raised) }}, // the number of a wish to raise all fences again
	}
}

// wishNumber returns the number of a wish; nil: it has none.
func wishNumber(n int64) any {
	if n == 0 {
		return nil
	}
	return big(n)
}

func wishFields(now time.Time) []field[lease.Wish] {
	type of = lease.Wish
	return []field[of]{
		{title: "KIND", json: "kind", value: func(w of) any { return w.Kind }},
		{title: "SUBJECT", json: "subject,omitempty", value: func(w of) any { return w.Subject }},
		{title: "TO", json: "to,omitempty", value: func(w of) any { return w.To }},
		{json: "number,omitempty", value: func(w of) any { return wishNumber(w.Number) }},
		{title: "UNTIL", json: "until", value: func(w of) any { return w.Until }, cell: func(w of) string {
			switch {
			case !w.Stands(now):
				return "ended"
			case w.Until.IsZero():
				return "it is lifted"
			}
			return moment(w.Until)
		}},
		{json: "ended", value: func(w of) any { return !w.Stands(now) }},
		{title: "BY", json: "by", value: func(w of) any { return w.By }},
		{title: "~WHY", json: "why,omitempty", value: func(w of) any { return w.Why }},
	}
}

func warningFields() []field[inspect.Warning] {
	type of = inspect.Warning
	return []field[of]{
		{title: "LEVEL", json: "level", value: func(w of) any { return w.Level.String() }},
		{title: "CODE", json: "code", value: func(w of) any { return w.Code }},
		{title: "SUBJECT", json: "subject,omitempty", value: func(w of) any { return w.Subject }},
		{json: "subjects,omitempty", value: func(w of) any { return w.Subjects }},
		{title: "~TEXT", json: "text", value: func(w of) any { return w.Text }},
		{json: "do", value: func(w of) any { return w.Do }},
	}
}

// warningsOf returns warnings as JSON has them.
func warningsOf(all []inspect.Warning) []object {
	list := make([]object, len(all))
	for i, w := range all {
		list[i] = objectOf(warningFields(), w)
	}
	return list
}

func groupFields() []field[groupSize] {
	type of = groupSize
	return []field[of]{
		{title: "GROUP", json: "name", value: func(g of) any { return g.name }},
		{title: ">ROWS", json: "rows", value: func(g of) any { return g.rows }},
		{title: ">WORKERS", json: "workers", value: func(g of) any { return g.workers }},
	}
}
