package main

import (
	"strconv"
	"time"

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

type shardView struct {
	Name          string          `json:"name"`
	State         inspect.State   `json:"state"`
	Generation    string          `json:"generation"`
	Owner         *ownerView      `json:"owner,omitempty"`
	Target        *ownerView      `json:"target,omitempty"`
	Parents       []string        `json:"parents,omitempty"`
	BlockedBy     []string        `json:"blockedBy,omitempty"`
	Attempts      int64           `json:"attempts"`
	Since         *ageView        `json:"since,omitempty"`
	CheckpointAge *ageView        `json:"checkpointAge,omitempty"`
	Checkpoint    *checkpointView `json:"checkpoint,omitempty"`
	Move          *moveView       `json:"move,omitempty"`
	Reserved      *reservedView   `json:"reserved,omitempty"`
	Last          transferView    `json:"lastTransfer"`
	LastFailure   *transferView   `json:"lastFailure,omitempty"`
	SizeBytes     int             `json:"sizeBytes"`
}

// A checkpointView has no user data, unless the flag --positions is set.
type checkpointView struct {
	Generation string     `json:"generation"`
	At         *time.Time `json:"at,omitempty"`
	Position   *string    `json:"position,omitempty"`
	State      *string    `json:"state,omitempty"`
}

type reservedView struct {
	For     string  `json:"for"`
	Seconds float64 `json:"seconds"` // after the last change
}

type moveView struct {
	From       *ownerView `json:"from"`
	To         *ownerView `json:"to"`
	Mode       string     `json:"mode,omitempty"`
	Phase      string     `json:"phase"`
	For        *ageView   `json:"for,omitempty"`
	MaySeconds float64    `json:"maySeconds,omitempty"`
}

type tallyView struct {
	Worker   string `json:"worker"`
	Task     string `json:"task,omitempty"`
	Released int    `json:"released"`
	Expired  int    `json:"expired"`
	Forced   int    `json:"forced"`
}

type transferView struct {
	Shard      string     `json:"shard,omitempty"`
	Generation string     `json:"generation"`
	Reason     string     `json:"reason"`
	Claimed    bool       `json:"claimed,omitempty"` // the reason is the one for which the shard was free before this claim
	From       string     `json:"from,omitempty"`
	By         string     `json:"by,omitempty"`
	Task       string     `json:"task,omitempty"`
	Mode       string     `json:"mode,omitempty"`
	Did        string     `json:"did,omitempty"`
	At         *time.Time `json:"at,omitempty"`
	Note       string     `json:"note,omitempty"`
}

func transferOf(shard string, t lease.Transfer) transferView {
	v := transferView{Shard: shard, Generation: number(t.Generation), Reason: string(t.Reason), Claimed: t.Claimed(), From: t.From, By: t.By, Task: t.Task, Did: t.Did, At: stamp(t.At), Note: t.Note}
	if t.Mode.Validate() == nil {
		v.Mode = t.Mode.String()
	}
	return v
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func shardOf(s *inspect.Shard, positions bool) shardView {
	v := shardView{
		Name: s.Name, State: s.State, Generation: number(s.Row.Generation), Owner: ownerOf(s.Owner), Target: ownerOf(s.Target),
		Parents: s.Row.Parents, BlockedBy: s.Blockers, Attempts: s.Attempts, Since: ageOf(s.Since), CheckpointAge: ageOf(s.Checkpoint),
		Last: transferOf("", s.Row.Last), SizeBytes: s.Size,
	}
	if c := s.Row.Checkpoint; c.Generation > 0 {
		v.Checkpoint = &checkpointView{Generation: number(c.Generation), At: stamp(c.At)}
		if positions && !c.IsZero() {
			v.Checkpoint.Position, v.Checkpoint.State = &c.Position, &c.State
		}
	}
	if m := s.Move; m != nil {
		v.Move = &moveView{From: ownerOf(m.From), To: ownerOf(m.To), Phase: string(m.Phase), For: ageOf(m.For), MaySeconds: seconds(m.May)}
		if m.Mode.Validate() == nil {
			v.Move.Mode = m.Mode.String()
		}
	}
	if r := s.Row.Reserved; !r.IsZero() {
		v.Reserved = &reservedView{r.For, seconds(r.Lasts)}
	}
	if s.LastFailure != nil {
		v.LastFailure = new(transferOf("", *s.LastFailure))
	}
	return v
}

type workerView struct {
	Name        string     `json:"name"`
	Incarnation string     `json:"incarnation"`
	Task        string     `json:"task,omitempty"`
	Build       string     `json:"build,omitempty"`
	Address     string     `json:"address,omitempty"` // of its deathwatch
	Handoff     string     `json:"handoff,omitempty"`
	Held        int        `json:"held"`
	Target      *int       `json:"target,omitempty"`
	Giving      int        `json:"giving"`
	Taking      int        `json:"taking"`
	MaxShards   int64      `json:"maxShards,omitempty"`
	Heartbeat   *ageView   `json:"heartbeatAge,omitempty"`
	Beat        string     `json:"heartbeat"`
	Beating     string     `json:"beating"`
	Dead        bool       `json:"dead"`
	Leaving     bool       `json:"leaving"`
	Health      string     `json:"health,omitempty"`
	Wish        string     `json:"wish,omitempty"`
	TTLSeconds  float64    `json:"ttlSeconds"`
	Since       *time.Time `json:"since,omitempty"`
	Revision    string     `json:"revision"`
	Settled     bool       `json:"settled"`
}

func workerOf(w *inspect.Worker) workerView {
	s := &w.Seat
	v := workerView{
		Name: s.Name, Incarnation: string(s.Incarnation), Task: s.Task, Build: s.Build, Address: s.Address, Handoff: s.Handoff,
		Held: w.Held, Giving: w.Giving, Taking: w.Taking, MaxShards: s.MaxShards, Heartbeat: ageOf(w.Silent), Beat: number(s.Beat),
		Beating: string(w.Beating), Dead: w.Dead, Leaving: w.Leaves, Health: w.Health, Wish: string(w.Wish), TTLSeconds: seconds(s.TTL), Since: stamp(s.Since),
		Revision: number(s.Revision), Settled: s.Settled,
	}
	if w.Target >= 0 {
		v.Target = &w.Target
	}
	return v
}

type wishView struct {
	Kind    string     `json:"kind"`
	Subject string     `json:"subject,omitempty"`
	To      string     `json:"to,omitempty"`
	By      string     `json:"by"`
	Until   *time.Time `json:"until,omitempty"`
	Ended   bool       `json:"ended"`
	Why     string     `json:"why,omitempty"`
}

func wishOf(w lease.Wish, now time.Time) wishView {
	return wishView{string(w.Kind), w.Subject, w.To, w.By, stamp(w.Until), !w.Stands(now), w.Why}
}

type warningView struct {
	Code    string `json:"code"`
	Level   string `json:"level"`
	Subject string `json:"subject,omitempty"`
	Text    string `json:"text"`
	Do      string `json:"do"`
}

func warningOf(w inspect.Warning) warningView {
	return warningView{string(w.Code), w.Level.String(), w.Subject, w.Text, w.Do}
}
