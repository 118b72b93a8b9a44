package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// objects checks that err is nil if want is empty, and contains want otherwise.
func objects(t *testing.T, name string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v, want %q", name, err, want)
	}
}

// TestHistory: a tenure starts once, for its owner, where the stored position is, and its commits are stored.
func TestHistory(t *testing.T) {
	next, h := fixture.Next(t), History{}
	saw := func(before lease.Row, w lease.Write, err error) lease.Row {
		after := next(w, err)
		h.Saw(Accepted{Before: before, After: after, Write: w}, checkpoint.Decimal)
		return after
	}
	see := func(before lease.Row) func(lease.Write, error) lease.Row {
		return func(w lease.Write, err error) lease.Row { return saw(before, w, err) }
	}
	free := fixture.Free(t)
	first := see(free)(protocol.Claim(free, fixture.Worker("a"), fixture.Stamp()))
	held := see(first)(protocol.Commit(first, fixture.Hold(first), fixture.At("100"), fixture.Stamp()))
	second := see(held)(protocol.Recover(held, fixture.Worker("b"), fixture.Stamp()))
	a, b := first.Owner.Incarnation, second.Owner.Incarnation
	objects(t, "another worker", h.Start(TenureOf(first), b, ""), "S3: ")
	h[TenureOf(first)] = Generation{Owner: first.Owner, Last: "100", Ended: h[TenureOf(first)].Ended}
	objects(t, "the owner", h.Start(TenureOf(first), a, ""), "")
	objects(t, "the owner again", h.Start(TenureOf(first), a, ""), "started before")
	objects(t, "not where the position is", h.Start(TenureOf(second), b, "50"), "S2: ")
	objects(t, "a stored commit", h.Committed(TenureOf(first), "100", checkpoint.Decimal), "")
	objects(t, "a commit that is not stored", h.Committed(TenureOf(first), "101", checkpoint.Decimal), "S4: ")
	objects(t, "a commit of a tenure without any", h.Committed(TenureOf(second), "1", checkpoint.Decimal), "S4: ")
	for name, e := range map[string]Ended{"history": h[TenureOf(first)].Ended, "row": EndOf(TenureOf(first), second)} {
		if e.Reason != lease.ReasonExpired || e.Next != second.Generation || e.Given {
			t.Errorf("the %s shows that the generation ended as %+v", name, e)
		}
	}
	if e := EndOf(TenureOf(second), second); e != (Ended{}) {
		t.Errorf("the present generation ended as %+v", e)
	}
}

// TestEnd: a handler winds down, and a tenure ends, only for a reason.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		End
		soft bool
		want string
	}{
		"requested":                       {End{Cause: event.CauseHandedOff, Requested: true}, true, ""},
		"not requested":                   {End{Cause: event.CauseHandedOff}, true, "S4: "},
		"twice":                           {End{Cause: event.CauseHandedOff, Requested: true, Soft: true}, true, "S4: "},
		"listed":                          {End{Cause: event.CauseUnlisted}, true, "S4: "},
		"not stalled":                     {End{Cause: event.CauseStalled}, true, "S4: "},
		"not stopped":                     {End{Cause: event.CauseStopped}, true, "S4: "},
		"not released":                    {End{Cause: event.CauseGivenUp}, true, "S4: "},
		"lost while it trusts":            {End{Cause: event.CauseExpired}, false, "S4: "},
		"lost in calm":                    {End{Cause: event.CauseExpired, Untrusted: true, Calm: true}, false, "S4: "},
		"lost":                            {End{Cause: event.CauseExpired, Untrusted: true}, false, ""},
		"moved without a request":         {End{Cause: event.CauseHandedOff, Soft: true}, false, "S4: "},
		"moved without a hand-over":       {End{Cause: event.CauseHandedOff, Requested: true}, false, "S4: "},
		"moved":                           {End{Cause: event.CauseHandedOff, Requested: true, Ended: Ended{Reason: lease.ReasonHandoff}}, false, ""},
		"fenced by nobody":                {End{Cause: event.CauseFenced}, false, "S4: "},
		"fenced":                          {End{Cause: event.CauseFenced, Ended: Ended{Next: 2}}, false, ""},
		"forced by nobody":                {End{Cause: event.CauseForced, Ended: Ended{Reason: lease.ReasonExpired, Next: 2}}, false, "S4: "},
		"finished before the row is":      {End{Cause: event.CauseFinished, Finishing: true}, false, "S4: "},
		"given up by nobody":              {End{Cause: event.CauseGivenUp}, false, "S4: "},
		"stalled while it is answered":    {End{Cause: event.CauseStalled, Returned: true}, false, "S4: "},
		"stopped by nobody":               {End{Cause: event.CauseStopped}, false, "S4: "},
		"unlisted without a soft end":     {End{Cause: event.CauseUnlisted}, false, "S4: "},
		"vanished":                        {End{Cause: event.CauseVanished}, false, "S4: "},
		"a conflict":                      {End{Cause: event.CauseConflict}, false, "S4: "},
		"a conflict after a restore":      {End{Cause: event.CauseConflict, WentBack: true}, false, ""},
		"a conflict in calm":              {End{Cause: event.CauseConflict, WentBack: true, Calm: true}, false, "S4: "},
		"no cause":                        {End{}, false, "S4: "},
		"a soft end that has no cause":    {End{}, true, "S4: "},
		"a soft end for another's expiry": {End{Cause: event.CauseExpired, Untrusted: true}, true, "S4: "},
	} {
		if c.soft {
			objects(t, name, c.WindDown(), c.want)
		} else {
			objects(t, name, c.Check(), c.want)
		}
	}
}

// TestHandover: a worker that takes a shard, or gives it up, has to be entitled to the change.
func TestHandover(t *testing.T) {
	next, held := fixture.Next(t), fixture.Held(t, "a")
	b, now := fixture.Worker("b"), time.Minute
	at, hold := fixture.At("100"), fixture.Hold(held)
	asked := Requests{{b.Incarnation, TenureOf(held)}: now - 2*time.Second}
	longAgo := Requests{{b.Incarnation, TenureOf(held)}: now - 3*time.Second}
	gone := Seats{held.Owner.Incarnation: {Gone: true, Deleted: now - time.Second}}
	write := func(w lease.Write, err error) lease.Write { return fixture.Write(t)(w, err) }
	recovery := write(protocol.Recover(held, b, fixture.Stamp()))
	seizure := write(protocol.Seize(held, b, fixture.Stamp()))
	offer := write(protocol.Offer(held, hold, b.Incarnation, at, fixture.Stamp()))
	release := write(protocol.Release(held, hold, protocol.End{Reason: lease.ReasonReleased, Mark: at}, fixture.Stamp()))
	cutOff := write(protocol.Release(held, hold, protocol.End{Reason: lease.ReasonDrainTimeout, Mark: at}, fixture.Stamp()))
	yield := write(protocol.Yield(held, hold, b, protocol.End{Reason: lease.ReasonHandoff, Mark: at}, fixture.Stamp()))
	claim := write(protocol.Claim(held, held.Owner, fixture.Stamp()))
	quarantine := write(protocol.Quarantine(held, protocol.Command{Seen: held.Generation}, lease.ReasonExpired, fixture.Stamp()))
	forced := write(protocol.Quarantine(held, protocol.Command{Seen: held.Generation}, lease.ReasonForced, fixture.Stamp()))
	for name, c := range map[string]struct {
		write lease.Write
		Handover
		want string
	}{
		"acquired again by the owner":         {claim, Handover{}, ""},
		"acquired again during a tenure":      {claim, Handover{Holder: Holder{Trusts: true}}, "was taken"},
		"recovered":                           {recovery, Handover{Seats: gone, Seated: true}, ""},
		"recovered beside a seat":             {recovery, Handover{Seated: true}, "S4: "},
		"recovered by the same process":       {recovery, Handover{Seated: true, Same: true}, ""},
		"recovered after a restore":           {recovery, Handover{Seated: true, WentBack: true}, ""},
		"recovered from a holder that trusts": {recovery, Handover{Seats: gone, Holder: Holder{Trusts: true}}, "trusts itself"},
		"quarantined":                         {quarantine, Handover{Seats: gone, Seated: true}, ""},
		"quarantined beside a seat":           {quarantine, Handover{Seated: true}, "S4: "},
		"quarantined while its holder trusts": {quarantine, Handover{Seats: gone, Holder: Holder{Trusts: true}}, "trusts itself"},
		"quarantined by command":              {forced, Handover{Seated: true, Holder: Holder{Trusts: true, Works: true}}, ""},
		"seized":                              {seizure, Handover{Requests: longAgo}, ""},
		"seized too early":                    {seizure, Handover{Requests: asked}, "seized"},
		"seized without a request":            {seizure, Handover{}, "seized"},
		"offered":                             {offer, Handover{Requests: asked}, ""},
		"offered without a request":           {offer, Handover{}, "did not request"},
		"released":                            {release, Handover{}, ""},
		"released while the handler runs":     {release, Handover{Holder: Holder{Works: true}}, "overlap"},
		"cut off":                             {cutOff, Handover{Holder: Holder{Winds: true, Since: now - 2*time.Second}}, ""},
		"cut off too early":                   {cutOff, Handover{Holder: Holder{Winds: true, Since: now - time.Second}}, "cut off"},
		"given":                               {yield, Handover{Requests: asked}, ""},
		"given without a request":             {yield, Handover{}, "did not request"},
	} {
		h := c.Handover
		h.Accepted, h.Now, h.Drain = Accepted{Before: held, After: next(c.write, nil), Write: c.write}, now, 1500*time.Millisecond
		objects(t, name, h.Check(), c.want)
	}
	delayed := held
	delayed.Owner.LockDelay = 2 * time.Second
	h := Handover{Accepted: Accepted{Before: delayed, After: next(recovery, nil), Write: recovery}, Now: now, Seats: gone}
	objects(t, "recovered in the lock delay", h.Check(), "lock delay")
	h.Now += time.Second
	objects(t, "recovered after the lock delay", h.Check(), "")
	offered := next(offer, nil)
	h = Handover{Accepted: Accepted{Before: offered, Write: write(protocol.Take(offered, b, fixture.Stamp()))}}
	h.After = next(h.Write, nil)
	objects(t, "taken", h.Check(), "")
	h.Before.OfferedTo = "c-1"
	objects(t, "taken by another", h.Check(), "not offered")
}

// TestSeats: a seat is deleted by another process only after it has stood still for its lease time.
func TestSeats(t *testing.T) {
	me := fixture.Worker("a")
	seat := lease.Seat{Group: "orders", Incarnation: me.Incarnation, Name: me.Name, TTL: 10 * time.Second, Says: lease.Says{Revision: 5}}
	again := seat
	again.Revision = 4
	create, remove := lease.Write{Op: lease.OpCreate, Next: seat}, lease.Write{Op: lease.OpDelete, Old: seat}
	for name, c := range map[string]struct {
		by      string
		at      time.Duration
		clocks  Clocks
		excused bool
		want    string
	}{
		"in time":              {"b", 10 * time.Second, 0, false, ""},
		"too early":            {"b", 9900 * time.Millisecond, 0, false, "S4: "},
		"by a fast clock":      {"b", 9900 * time.Millisecond, 40, false, ""},
		"too early for any":    {"b", 9500 * time.Millisecond, 40, false, "S4: "},
		"its own":              {"a", time.Second, 0, false, ""},
		"with another excuse":  {"b", time.Second, 0, true, ""},
		"a late twin of it":    {"b", 30 * time.Second, 0, false, ""},
		"by a clock one ms in": {"b", 10*time.Second - time.Millisecond, 0, false, "S4: "},
	} {
		s := Seats{}
		objects(t, name, s.Wrote(create, "a", 0, c.clocks, false), "")
		objects(t, name, s.Wrote(remove, c.by, c.at, c.clocks, c.excused), c.want)
		objects(t, name, s.Wrote(create, "a", 40*time.Second, c.clocks, false), "")
		objects(t, name, s.Wrote(remove, "b", 41*time.Second, c.clocks, false), "") // it was gone
		if of := s[me.Incarnation]; !of.Gone || of.Deleted != c.at {
			t.Errorf("%s: %+v", name, of)
		}
	}
	others := Seats{seat.Incarnation: {By: "a"}}
	objects(t, "another's seat", others.Wrote(lease.Write{Op: lease.OpSwap, Old: seat, Next: seat}, "b", 0, 0, false), "b wrote the seat")
	objects(t, "a seat that forgets", Seats{}.Wrote(lease.Write{Op: lease.OpSwap, Old: seat, Next: again}, "a", 0, 0, false), "revision 5 to 4")
}

// TestRevision: neither a plan nor a target is replaced by an earlier one, or by another one of the same revision.
func TestRevision(t *testing.T) {
	plan := func(n int64) lease.Plan { return lease.Plan{Group: "orders", Revision: n} }
	target := func(n int64) lease.Target { return lease.Target{Group: "orders", Incarnation: "a-1", Revision: n} }
	for name, c := range map[string]struct {
		write lease.Write
		want  string
	}{
		"a later plan":             {lease.Write{Op: lease.OpSwap, Old: plan(7), Next: plan(8)}, ""},
		"the same plan":            {lease.Write{Op: lease.OpSwap, Old: plan(7), Next: plan(7)}, ""},
		"the same revision again":  {lease.Write{Op: lease.OpSwap, Old: plan(6), Next: plan(7)}, "revision 7"},
		"an earlier plan":          {lease.Write{Op: lease.OpCreate, Next: plan(6)}, "revision 6"},
		"a later target":           {lease.Write{Op: lease.OpCreate, Next: target(8)}, ""},
		"a target of the revision": {lease.Write{Op: lease.OpSwap, Old: target(7), Next: target(7)}, "revision 7"},
	} {
		highest, err := Revision(c.write, 7)
		objects(t, name, err, c.want)
		if highest < 7 {
			t.Errorf("%s: the highest revision is %d", name, highest)
		}
	}
}

// TestRegister: effects follow generations, and each generation has one process.
func TestRegister(t *testing.T) {
	var r Register
	for _, c := range []struct {
		generation int64
		by         string
		accepted   bool
		want       string
	}{{5, "a", true, ""}, {5, "a", true, ""}, {5, "b", true, "S3: "}, {7, "b", true, ""}, {5, "a", false, ""}} {
		accepted, err := r.Effect(Tenure{"shard-1", c.generation}, c.by)
		objects(t, c.by, err, c.want)
		if accepted != c.accepted {
			t.Errorf("an effect of %s under %d: accepted: %t", c.by, c.generation, accepted)
		}
	}
}
