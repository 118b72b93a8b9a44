package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
)

// A Plan is the record of the target assignment of a group: which revision is the present one,
// and whether its targets are still being written. There is one plan for each group, beside the
// seats, so one query reads the plan and the seats.
//
// A worker that plans makes two swaps: it opens the next revision, writes the targets that
// differ, and finishes the revision. If the worker dies in between, the plan stays open, and
// another worker opens the revision after it.
//
// Invariant: the revision never decreases, and a complete revision is never opened again.
//
// Invariant: only the worker that opened a revision finishes it.
//
// A group of sessions has no plan, but under the key of the plan a record with Sessions set, which
// never changes. A worker needs a plan before it claims anything, and a session needs this record
// before it acquires anything. Both have the same key, so the first creation decides the kind of the
// group.
type Plan struct {
	Group    string
	WriteID  WriteID
	Revision int64  // grows with every plan
	Open     bool   // the targets of the revision are being written
	By       Owner  // the worker that opened the revision
	Planner  string // the name of its planner, for people

	Finding           // what the last complete plan found
	Tick    int64     // grows while a watcher lives; workers that do not watch read it
	Late    bool      // a seat has missed a heartbeat
	At      time.Time // the wall clock of the last writer, for people

	Sessions bool // the group is one of sessions, and this record is no plan
}

// A Finding is what a plan stores about the fleet when it is complete. It names no members: a
// worker finds out by its target whether the plan has it.
type Finding struct {
	Inputs  string // the hash of everything that the plan was computed from, and whether a target was malformed
	Members int64  // how many workers the plan has
	// Watchers are the workers that list the seats, the first one most often.
	Watchers []Incarnation
	Unplaced int64    // how many shards no worker has room for
	Examples []string // the names of some unplaced shards, sorted
	Shards   int64    // how many names of shards are known
	Raise    int64    // the Number of the wish that stands that all fences be raised again; 0: none does
}

// The limits of a plan. Every worker reads the plan with every heartbeat, and a consistent read
// costs a unit for each 4 KB. With these limits the largest plan has less.
const (
	MaxWatchers = 8 // how many watchers a plan names

	maxExamples     = 10
	maxExampleBytes = 1024 // the sum of the lengths of the examples
)

// planName is the name of the plan's key. It is below every incarnation.
const planName = "!plan"

// Key returns the address of the plan.
func (p Plan) Key() Key { return Key{Group: p.Group, Kind: KindPlan, Name: planName} }

// Written returns the id of the write that made the plan what it is.
func (p Plan) Written() WriteID { return p.WriteID }

func (p Plan) count() int64 { return p.Revision }

// Validate reports everything that makes p impossible to store.
func (p Plan) Validate() error {
	errs := []error{
		p.Key().Validate(), validID("write id", string(p.WriteID)), positive("revision", p.Revision), p.By.Validate(),
		validText("planner", p.Planner, MaxID), p.Finding.validate(),
	}
	if p.Tick < 0 {
		errs = append(errs, invalid("tick", "must not be negative"))
	}
	if p.By.LockDelay != 0 {
		errs = append(errs, invalid("lock delay", "must be 0: a plan is no lease"))
	}
	if p.Sessions && (p.Open || p.Late || p.Tick != 0 || p.Planner != "" || !p.Finding.equal(Finding{})) {
		errs = append(errs, invalid("sessions", "must not be set in a plan"))
	}
	return errors.Join(errs...)
}

// Fit returns the finding with its examples in order, and no more of them than a plan may have.
func (f Finding) Fit() Finding {
	if len(f.Examples) == 0 {
		f.Examples = nil
		return f
	}
	f.Examples = slices.Compact(slices.Sorted(slices.Values(f.Examples)))
	size := 0
	for i, shard := range f.Examples {
		if size += len(shard); i == maxExamples || size > maxExampleBytes {
			f.Examples = f.Examples[:i]
			break
		}
	}
	return f
}

func (f Finding) validate() error {
	errs := []error{validText("inputs", f.Inputs, MaxID)}
	if min(f.Members, f.Unplaced, f.Shards, f.Raise) < 0 {
		errs = append(errs, invalid("members, unplaced, shards and raise", "must not be negative"))
	}
	if n := len(f.Watchers); n > MaxWatchers {
		errs = append(errs, tooMany("watchers", n, MaxWatchers))
	}
	for i, inc := range f.Watchers {
		errs = append(errs, validIncarnation(inc))
		if slices.Contains(f.Watchers[:i], inc) {
			errs = append(errs, invalid("watchers", "must be different"))
		}
	}
	if len(f.Fit().Examples) < len(f.Examples) {
		errs = append(errs, invalid("examples", fmt.Sprintf("must be different, and have at most %d names of %d bytes together", maxExamples, maxExampleBytes)))
	}
	for i, shard := range f.Examples {
		errs = append(errs, validName("unplaced shard", shard))
		if i > 0 && f.Examples[i-1] >= shard {
			errs = append(errs, invalid("examples", "must be sorted"))
		}
	}
	return errors.Join(errs...)
}

func (f Finding) equal(other Finding) bool {
	if !slices.Equal(f.Watchers, other.Watchers) || !slices.Equal(f.Examples, other.Examples) {
		return false
	}
	f.Watchers, other.Watchers, f.Examples, other.Examples = nil, nil, nil, nil // nil and empty are equal
	return reflect.DeepEqual(f, other)
}

// checkNewPlan reports a plan that no planner creates.
func (p Plan) checkNewPlan() string {
	switch {
	case !p.Sessions && (!p.Open || p.Tick != 0 || p.Late || !p.Finding.equal(Finding{})):
		return "a new plan must be open and without findings"
	case p.Revision < generation.First(p.At) || generation.ValidClock(p.At) != nil:
		return "a new plan must start at the revision of its clock or above"
	}
	return ""
}

// checkPlan reports a change of a plan that is not one of these: another revision is opened, the
// open revision is completed, or the plan ticks.
func (p Plan) checkPlan(old Plan) string {
	sameMaker := p.By == old.By && p.Planner == old.Planner
	sameFinding := p.Finding.equal(old.Finding)
	sameTick := p.Tick == old.Tick && p.Late == old.Late
	switch {
	case p.Sessions || old.Sessions:
		return "a group of sessions has no plan, and remains one"
	case p.Revision < old.Revision:
		return "the revision must not decrease"
	case p.Revision > old.Revision:
		if !p.Open || !sameFinding || !sameTick {
			return "another revision must be opened, and change nothing else"
		}
	case p.Open && !old.Open:
		return "a complete revision must not be opened again"
	case p.Open != old.Open:
		if !sameMaker || !sameTick {
			return "a complete revision may only have other findings"
		}
	case !sameMaker || !sameFinding || !follows(p.Tick, old.Tick):
		return "within a revision the plan may only tick"
	}
	return ""
}

func (p Plan) clone() Plan {
	p.Watchers, p.Examples = slices.Clone(p.Watchers), slices.Clone(p.Examples)
	return p
}

func (p Plan) encode(put func(string, any)) {
	put(attr.Revision, p.Revision)
	put(attr.Open, p.Open)
	put(attr.Owner, p.By.Name)
	put(attr.Incarnation, string(p.By.Incarnation))
	put(attr.Task, p.By.Task)
	put(attr.Planner, p.Planner)
	put(attr.Inputs, p.Inputs)
	put(attr.Members, p.Members)
	watchers := make([]string, len(p.Watchers))
	for i, inc := range p.Watchers {
		watchers[i] = string(inc)
	}
	put(attr.Watchers, strings.Join(watchers, "\t")) // in order, which a set would lose
	put(attr.Unplaced, p.Unplaced)
	put(attr.Examples, p.Examples)
	put(attr.Shards, p.Shards)
	put(attr.Raise, p.Raise)
	put(attr.Tick, p.Tick)
	put(attr.Late, p.Late)
	put(attr.Sessions, p.Sessions)
	put(attr.At, millis(p.At))
}

func (in *reader) plan(key Key) Plan {
	p := Plan{
		Group: key.Group, WriteID: WriteID(in.text(attr.WriteID)), Revision: in.number(attr.Revision), Open: in.flag(attr.Open),
		By: in.owner(), Planner: in.text(attr.Planner),
		Finding: Finding{
			Inputs: in.text(attr.Inputs), Members: in.number(attr.Members),
			Unplaced: in.number(attr.Unplaced), Examples: in.set(attr.Examples),
			Shards: in.number(attr.Shards), Raise: in.number(attr.Raise),
		},
		Tick: in.number(attr.Tick), Late: in.flag(attr.Late), At: in.time(attr.At), Sessions: in.flag(attr.Sessions),
	}
	if watchers := in.text(attr.Watchers); watchers != "" {
		for inc := range strings.SplitSeq(watchers, "\t") {
			p.Watchers = append(p.Watchers, Incarnation(inc))
		}
	}
	return p
}

func (p Plan) String() string {
	state := "complete"
	if p.Open {
		state = "open"
	}
	if p.Sessions {
		return fmt.Sprintf("%v: none, because the group is one of sessions; recorded by %v", p.Key(), p.By)
	}
	text := fmt.Sprintf("%v: revision %d, %s, by %v, %d workers, %d shards", p.Key(), p.Revision, state, p.By, p.Members, p.Shards)
	if p.Unplaced > 0 {
		text += fmt.Sprintf(", no room for %d shards, such as %q", p.Unplaced, p.Examples)
	}
	return text
}

// LogValue returns the plan as a group of fields for structured logs.
func (p Plan) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("group", p.Group), slog.Int64("revision", p.Revision), slog.Bool("open", p.Open),
		slog.String("by", p.By.Name), slog.String("incarnation", string(p.By.Incarnation)),
		slog.Int64("members", p.Members), slog.Int64("shards", p.Shards), slog.Int64("unplaced", p.Unplaced))
}
