package lease_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	stamp  = fixture.Stamp
	owner  = fixture.Worker
	at     = fixture.At
	handle = fixture.Hold
	next   = fixture.Next
)

// fullRow returns a row that uses every field, with names of the given length.
func fullRow(t *testing.T, name int, transfers int) lease.Row {
	t.Helper()
	pad := func(s string) string { return (s + strings.Repeat("-", name))[:name] }
	id := func(n int) string { return fmt.Sprintf("%026d", n) } // as long as crypto/rand.Text
	long := func(n int) protocol.Stamp { return protocol.Stamp{ID: lease.WriteID(id(n)), At: time.Now()} }
	r := next(t)(protocol.Begin(pad("group"), pad("shard"), []string{pad("parent-1"), pad("parent-2")}, pad("source"), long(0)))
	for n := 1; n <= transfers; n++ {
		by := lease.Owner{Name: pad(fmt.Sprint("worker", n)), Incarnation: lease.Incarnation(id(n)), Task: pad("task")}
		if r.Owner.IsZero() {
			r = next(t)(protocol.Claim(r, by, long(4*n)))
		} else {
			r = next(t)(protocol.Recover(r, by, long(4*n)))
		}
	}
	return next(t)(protocol.Offer(r, handle(r), lease.Incarnation(id(77)), at("49590338271490256608559692538361571095921575989136588898"), long(5000)))
}

// oneUnit is the largest size that costs one write unit if dynamostore adds a bucket to the
// partition key. The room that is kept for a large counter is enough for the bucket.
const oneUnit = 1024 - len("/63")

// TestFullRowCostsOneWriteUnit: a row with names of 40 bytes, a position as long as Kinesis' and
// an offer fits into one write unit, however many transfers it has had. The test counts the size
// by DynamoDB's rules, independently of Size.
func TestFullRowCostsOneWriteUnit(t *testing.T) {
	for _, transfers := range []int{1, 2, 3, 10, 50} {
		r := fullRow(t, 40, transfers)
		item := lease.Encode(r)
		size := 0
		for name, value := range item {
			size += len(name)
			switch v := value.(type) {
			case string:
				size += len(v) // UTF-8 bytes
			case []byte:
				size += len(v)
			case int64:
				digits := len(strings.TrimRight(fmt.Sprint(v), "0")) // no negatives among these
				size += (digits+1)/2 + 1
			case bool:
				size++
			case []string:
				size += 3
				for _, s := range v {
					size += 1 + len(s)
				}
			default:
				t.Fatalf("attribute %s is a %T", name, value)
			}
		}
		if size > oneUnit || size != item.Size() {
			t.Errorf("%d transfers: %d bytes, %d by Size; at most %d", transfers, size, item.Size(), oneUnit)
		}
		if transfers >= 3 && len(r.History()) < 2 {
			t.Errorf("%d transfers: only %d earlier ones kept", transfers, len(r.History()))
		}
		// A release stores a note, and the longest reason or the count of failed attempts.
		for _, reason := range []lease.Reason{lease.ReasonDrainTimeout, lease.ReasonStalled} {
			w, err := protocol.Release(r, handle(r), protocol.End{Reason: reason, Note: strings.Repeat("n", lease.MaxNote)},
				protocol.Stamp{ID: lease.WriteID(strings.Repeat("w", 26)), At: time.Now()})
			if size := lease.Encode(next(t)(w, err)).Size(); size > oneUnit {
				t.Errorf("%d transfers, released as %s: %d bytes", transfers, reason, size)
			}
		}
		t.Logf("%d transfers: %d bytes, %d earlier transfers kept", transfers, size, len(r.History()))
	}
	short := fullRow(t, 12, 50)
	if n := len(short.History()); n < 8 {
		t.Errorf("names of 12 bytes: only %d earlier transfers kept", n)
	}
}

// TestCommitsKeepTheRowInOneUnit: a row keeps room for a position as long as Kinesis'. If a
// position grows longer, the row drops old transfers before it costs a second write unit.
func TestCommitsKeepTheRowInOneUnit(t *testing.T) {
	for name := 20; name <= 40; name++ {
		r := fullRow(t, name, 20)
		hold := lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}
		for n := range 100 {
			id := protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("%026d", 9000+n)), At: time.Now()}
			r = next(t)(protocol.Commit(r, hold, checkpoint.Mark{Position: strings.Repeat("1", 1+n), State: strings.Repeat("s", n/2)}, id))
			if size := lease.Encode(r).Size(); size > oneUnit {
				t.Fatalf("names of %d bytes, a position of %d: %d bytes", name, 1+n, size)
			}
		}
	}
}

func TestItemsComeBack(t *testing.T) {
	records := []lease.Record{fixture.Free(t), fixture.Held(t, "a"), fullRow(t, 40, 1), fullRow(t, 20, 9), fullRow(t, 255, 2)}
	r := fixture.Held(t, "a")
	failed := next(t)(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonFailed, Note: "a note", Mark: checkpoint.Mark{Position: "1", State: "\x00\xff"}}, stamp()))
	command := protocol.Command{Seen: failed.Generation, By: "op"}
	tombstone := next(t)(protocol.Remove(failed, command, stamp()))
	by := lease.Owner{Name: "s", Incarnation: "i", Task: "t", LockDelay: 1500 * time.Millisecond}
	sessions, _ := protocol.BeginSessions("g", lease.Owner{Name: "s", Incarnation: "i"}, stamp())
	records = append(records, sessions.Next, next(t)(protocol.BeginHeld("g", "name", by, stamp())), failed, tombstone, next(t)(protocol.Quarantine(failed, command, lease.ReasonFailed, stamp())))
	seat := lease.Seat{
		Group: "g/lease", Incarnation: "i", WriteID: "w", Name: "n", TTL: time.Second, MaxShards: 3, Task: "t", At: time.Unix(5, 0).UTC(),
		Says: lease.Says{Freed: 12, Wants: []lease.Want{{Shard: "a b", Generation: 7, Terms: rebalance.Terms{Mode: rebalance.Cooperative, Drain: time.Second, AfterDrain: rebalance.Wait}}}},
	}
	leaving := seat
	leaving.Beat, leaving.Leaving = 4, true
	for _, record := range append(append(records, seat, leaving), fixture.Full(t)...) {
		back, err := lease.Decode(lease.Encode(record))
		if err != nil || !reflect.DeepEqual(back, record) {
			t.Errorf("%v was read back as %v, %v", record, back, err)
		}
		item := lease.Encode(record)
		item["fromTheFuture"] = "kept by the store"
		if _, err := lease.Decode(item); err != nil {
			t.Errorf("item with an unknown attribute: %v", err)
		}
	}
	expires := time.Unix(lease.Encode(tombstone)[attr.Expires].(int64), 0)
	if kept := expires.Sub(tombstone.Last.At); kept < 30*24*time.Hour-time.Second {
		t.Errorf("a tombstone is kept for %v", kept)
	}
	if _, ok := lease.Encode(failed)[attr.Expires]; ok {
		t.Error("a row that is not a tombstone has an expiry")
	}
}

// TestTombstoneOutlivesAFastClock: a clock that was two months ahead issued the generation of a tombstone. When the
// tombstone may be deleted, the clock of a new row gives a higher one.
func TestTombstoneOutlivesAFastClock(t *testing.T) {
	removed := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	ahead := removed.Add(60 * 24 * time.Hour)
	r := lease.Row{Group: "g", Shard: "s", Counter: 3, WriteID: "w", Generation: generation.First(ahead) + 2, Removed: true,
		Last: lease.Transfer{Generation: generation.First(ahead) + 2, Reason: lease.ReasonRemoved, By: "w", At: removed}}
	swept := time.Unix(lease.Encode(r)[attr.Expires].(int64), 0)
	if next := generation.First(swept); next <= r.Generation || swept.Before(ahead.Add(lease.TombstoneAge)) {
		t.Errorf("deleted at %v: the next row begins at %d, and the tombstone had %d", swept, next, r.Generation)
	}
}

// TestLockDelayEndsWithItsOwner: a release by a version that does not know the attribute leaves it in
// the row, which stays readable.
func TestLockDelayEndsWithItsOwner(t *testing.T) {
	item := lease.Encode(fixture.Free(t))
	item[attr.LockDelay] = int64(5000)
	r, err := lease.Decode(item)
	if err != nil || !r.(lease.Row).Owner.IsZero() || !r.(lease.Row).Reserved.IsZero() {
		t.Errorf("read as %v, %v", r, err)
	}
}

func TestMalformedItemsAreNamed(t *testing.T) {
	row, seat := lease.Encode(fullRow(t, 20, 3)), lease.Encode(lease.Seat{Group: "g", Incarnation: "i", WriteID: "w", Name: "n", TTL: time.Second})
	for name, tc := range map[string]struct {
		item  lease.Item
		attr  string
		value any // nil: absent
	}{
		"no version":        {row, attr.Version, nil},
		"a newer version":   {row, attr.Version, int64(attr.Format + 1)},
		"version as text":   {row, attr.Version, "1"},
		"no partition":      {row, attr.Group, nil},
		"unknown kind":      {row, attr.Group, "group/sofa"},
		"no group":          {row, attr.Group, "/lease"},
		"no key":            {row, attr.Key, nil},
		"key not UTF-8":     {row, attr.Key, "\xff"},
		"no counter":        {row, attr.Counter, nil},
		"negative counter":  {row, attr.Counter, int64(-1)},
		"counter as text":   {row, attr.Counter, "7"},
		"no generation":     {row, attr.Generation, nil},
		"no write id":       {row, attr.WriteID, nil},
		"owner by number":   {row, attr.Owner, int64(3)},
		"owner, no id":      {row, attr.Incarnation, nil},
		"finished and held": {row, attr.Finished, true},
		"finished as text":  {row, attr.Finished, "yes"},
		"parents as text":   {row, attr.Parents, "p"},
		"state as text":     {row, attr.State, "s"},
		"transfer absent":   {row, attr.Last, nil},
		"transfer short":    {row, attr.Last, "handoff\ta"},
		"transfer undated":  {row, attr.Last, "handoff\ta\tb\tx\tw\t"},
		"past garbled":      {row, attr.Past, "x"},
		"past ahead":        {row, attr.Past, "0\thandoff\ta\tb\t0"},
		"past before time":  {row, attr.Past, "9223372036854775807\thandoff\ta\tb\t0"},
		"no lease time":     {seat, attr.TTL, nil},
		"endless":           {seat, attr.TTL, int64(1 << 62)},
		"endless, wrapped":  {seat, attr.TTL, int64(1000 - 1<<58)},
		"beat below zero":   {seat, attr.Beat, int64(-4)},
		"a long rest":       {seat, attr.Backoff, int64(86_400_001)},
		"build as flag":     {seat, attr.Build, true},
		"build of lines":    {seat, attr.Build, "v1\nv2"},
		"a long build":      {seat, attr.Build, strings.Repeat("v", lease.MaxName+1)},
		"since as text":     {seat, attr.Since, "yesterday"},
		"handoff as number": {seat, attr.Handoff, int64(1)},
		"a long handoff":    {seat, attr.Handoff, strings.Repeat("e", lease.MaxName+1)},
		"missing below":     {seat, attr.Missing, int64(-1)},
		"revision below":    {seat, attr.Revision, int64(-1)},
		"silent below":      {seat, attr.Silent, int64(-1)},
		"news left below":   {seat, attr.NewsLeft, int64(-1)},
		"news as text":      {seat, attr.News, "finished s"},
		"waits left below":  {seat, attr.WaitsLeft, int64(-1)},
		"waits as text":     {seat, attr.Waits, "5\ta"},
		"too many waits":    {seat, attr.Waits, strings.Split("1\ta,2\ta,3\ta,4\ta,5\ta,6\ta,7\ta,8\ta,9\ta,10\ta,11\ta", ",")},
		"unwell as flag":    {seat, attr.Unwell, true},
		"reserved name":     {seat, attr.Key, "!seat"},
	} {
		item := maps.Clone(tc.item)
		item[tc.attr] = tc.value
		if tc.value == nil {
			delete(item, tc.attr)
		}
		r, err := lease.Decode(item)
		malformed, ok := errors.AsType[*lease.MalformedError](err)
		if !ok || r != nil || !errors.Is(err, lease.ErrMalformed) || !errors.Is(malformed.Cause, checkpoint.ErrInvalid) {
			t.Errorf("%s: got %v, %v", name, r, err)
			continue
		}
		owner := ""
		if malformed.Key.Kind == lease.KindLease {
			owner, _ = item[attr.Owner].(string)
		}
		if malformed.Owner != owner {
			t.Errorf("%s: the owner is %q, want %q", name, malformed.Owner, owner)
		}
	}
}

// storedWants returns the requests that Decode reads from a seat with these texts.
func storedWants(t *testing.T, texts ...string) []lease.Want {
	t.Helper()
	item := lease.Encode(lease.Seat{Group: "g", Incarnation: "i", WriteID: "w", Name: "n", TTL: time.Second})
	item[attr.Wants] = texts
	r, err := lease.Decode(item)
	if err != nil {
		t.Fatal(err)
	}
	return r.(lease.Seat).Wants
}

// TestUnreadableWantIsNotServed: a request that cannot be read is ignored, and its seat stays
// readable.
func TestUnreadableWantIsNotServed(t *testing.T) {
	wants := storedWants(t, "7 cooperative 48h0m0s wait 0s too-long", "1 eager", "x eager 1s force 0s s", "8 eager 1s force 0s good", "9 eager 1s force 0s good")
	if len(wants) != 1 || wants[0].Shard != "good" {
		t.Errorf("wants %v", wants)
	}
	for _, terms := range []string{"", "eager", "eager 20s force", "eager x force 0s", "eager 20s force 25h", " 20s force 0s", "eager 20s  0s", "eager -1s force 0s", "eager default force 0s", "eager 20s force default"} {
		if wants := storedWants(t, "7 "+terms+" s"); len(wants) != 0 {
			t.Errorf("the terms %q are read as %v", terms, wants)
		}
	}
}

// TestSettledSeatIsShort: an attribute that almost all seats of a large fleet would have is left out, because it
// would make every listing of the seats more expensive.
func TestSettledSeatIsShort(t *testing.T) {
	usual := fixture.Seat()
	usual.Handoff = "cooperative"
	moving, waits, session := usual, usual, usual
	moving.Settled, waits.Settled, waits.Revision, session.Handoff = false, false, 0, ""
	for name, of := range map[string]struct {
		seat    lease.Seat
		settled any
		handoff any
	}{
		"settled": {usual, nil, nil}, "it moves shards": {moving, true, nil}, "no revision": {waits, nil, nil}, "a session": {session, nil, "none"},
	} {
		item := lease.Encode(of.seat)
		if item[attr.Unsettled] != of.settled || item[attr.Handoff] != of.handoff {
			t.Errorf("%s: unsettled %v, handoff %v", name, item[attr.Unsettled], item[attr.Handoff])
		}
		if again, err := lease.Decode(item); err != nil || !reflect.DeepEqual(again, lease.Record(of.seat)) {
			t.Errorf("%s: %v is read as %v, %v", name, of.seat, again, err)
		}
	}
	session.Handoff = "none"
	if session.Validate() == nil {
		t.Error("a strategy that would be read as no strategy is valid")
	}
}

// TestUnreadableNewsAreIgnored: the seat of a live worker stays readable, and a kind of news of a
// newer version is kept.
func TestUnreadableNewsAreIgnored(t *testing.T) {
	item := lease.Encode(fixture.Seat())
	item[attr.News] = []string{"finished a", "finished", "", " a", "finished a\tb", "telepathy a"}
	r, err := lease.Decode(item)
	if err != nil {
		t.Fatal(err)
	}
	want := []lease.News{{Kind: lease.NewsFinished, Shard: "a"}, {Kind: "telepathy", Shard: "a"}}
	if got := r.(lease.Seat).News; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestUnreadableWaitsAreIgnored: the seat of a live session stays readable, and its waits are in order.
func TestUnreadableWaitsAreIgnored(t *testing.T) {
	item := lease.Encode(fixture.Seat())
	item[attr.Waits] = []string{
		"1795346043001\tb\trun/7", "1795346043000\ta b", "9\tz", "-9\ty", "0\tx", "01795346043000\ta b", "", "7", "7\t", "x\ta", "\ta",
		"7\ta\t/run", "7\ta\trun\tmore", "7\ta\x00", "99999999999999999999\ta", "7\t" + strings.Repeat("a", lease.MaxName+1),
	}
	r, err := lease.Decode(item)
	if err != nil {
		t.Fatal(err)
	}
	at := func(millis int64) time.Time { return time.UnixMilli(millis).UTC() }
	want := []lease.Wait{
		{Lease: "x"}, {Lease: "y", Since: at(-9)}, {Lease: "z", Since: at(9)}, {Lease: "a b", Since: at(1795346043000)}, {Lease: "b", Task: "run/7", Since: at(1795346043001)},
	}
	got := r.(lease.Seat).Waits
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if texts := lease.Encode(r)[attr.Waits].([]string); texts[0] != "0\tx" || texts[4] != "1795346043001\tb\trun/7" {
		t.Errorf("written as %q", texts)
	}
}

// TestWantNamesTheOwner: a request carries the incarnation that its worker saw as the owner, and
// one without it is read too.
func TestWantNamesTheOwner(t *testing.T) {
	for text, owner := range map[string]lease.Incarnation{
		"7 eager 1s force 0s a b": "", "7 eager 1s force 0s a b\tthe owner": "the owner",
	} {
		wants := storedWants(t, text)
		if len(wants) != 1 || wants[0].Shard != "a b" || wants[0].Owner != owner || wants[0].String() != text {
			t.Errorf("%q is read as %v of %q", text, wants, owner)
		}
	}
	if wants := storedWants(t, "7 eager 1s force 0s s\t!plan", "7 eager 1s force 0s r\ta\tb"); len(wants) != 0 {
		t.Errorf("read %v", wants)
	}
}

// TestSeatsShareNothing: a clone of a seat has its own requests and news.
func TestSeatsShareNothing(t *testing.T) {
	seat := fixture.Seat()
	clone := lease.Clone(seat).(lease.Seat)
	clone.Wants[0].Shard, clone.News[0].Shard = "changed", "changed"
	if !reflect.DeepEqual(seat, fixture.Seat()) {
		t.Error("a clone shares memory")
	}
	one := lease.Seat{Says: lease.Says{News: []lease.News{{Shard: "a"}}}}
	lease.Clone(one).(lease.Seat).News[0].Shard = "changed"
	if one.News[0].Shard != "a" {
		t.Error("a clone shares the news")
	}
}

func TestTermsOfANewerVersionAreServedAsEager(t *testing.T) {
	got := storedWants(t, "7 telepathic 20s implore 0s s")
	want := lease.Want{Shard: "s", Generation: 7, Terms: rebalance.Terms{Mode: rebalance.Eager, Drain: 20 * time.Second, AfterDrain: rebalance.Force}}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// FuzzWants: a request that is read, encoded and read again does not change.
func FuzzWants(f *testing.F) {
	f.Add("7 eager 20s force 0s s")
	f.Add("7 cooperative 1m0s wait 5s a b")
	f.Add("7 eager 20s force 0s a b\tthe owner")
	f.Add("7 eager 20s force 0s s\t")
	f.Add("7 eager 20s force 0s s\t!reserved")
	f.Fuzz(func(t *testing.T, text string) {
		for _, want := range storedWants(t, text) {
			if again := storedWants(t, want.String()); len(again) != 1 || again[0] != want {
				t.Errorf("%q became %v, then %v", text, want, again)
			}
		}
	})
}

// TestRowFitsAgainAtTheFirstWrite: a transfer from an outdated row keeps a later checkpoint, for
// which no room was made. The next write of the row makes that room.
func TestRowFitsAgainAtTheFirstWrite(t *testing.T) {
	r := fullRow(t, 12, 40)
	recovery, err := protocol.Recover(r, owner("b"), stamp())
	if err != nil {
		t.Fatal(err)
	}
	grown, err := recovery.Apply(next(t)(protocol.Commit(r, handle(r), checkpoint.Mark{Position: strings.Repeat("9", 56), State: strings.Repeat("s", 500)}, stamp())))
	if err != nil {
		t.Fatal(err)
	}
	b := grown.(lease.Row)
	if size := lease.Encode(next(t)(protocol.Commit(b, handle(b), b.Checkpoint.Mark, stamp()))).Size(); size > oneUnit {
		t.Errorf("%d bytes after the transfer, %d after the next write", lease.Encode(b).Size(), size)
	}
	// Longer ids than those for which the row keeps room.
	r = fullRow(t, 40, 20)
	if size := lease.Encode(next(t)(protocol.Offer(r, handle(r), lease.Incarnation(strings.Repeat("i", lease.MaxID)), checkpoint.Mark{}, protocol.Stamp{ID: lease.WriteID(strings.Repeat("w", lease.MaxID)), At: time.Now()}))).Size(); size > oneUnit {
		t.Errorf("%d bytes with the longest ids", size)
	}
}

// FuzzDecode: whatever a table contains, Decode returns a record that could have been written, or
// a MalformedError.
func FuzzDecode(f *testing.F) {
	f.Add("orders/lease", "s", int64(5), int64(900), "a", "i", "p1", "handoff\ta\tb\t5\tw\tnote", "1\treleased\tb\ta\t7", []byte("state"), true)
	f.Add("orders/seat", "i", int64(5), int64(900), "a", "", "7 eager 20s force 0s shard", "", "", []byte(nil), false)
	f.Add("orders/seat", "i", int64(5), int64(-900), "finished s", "", "telepathy s", "", "", []byte(nil), true)
	f.Add("orders/target", "i/0000", int64(1), int64(0), "", "", "", "", "", []byte{0, 2, 'a'}, false)
	f.Add("orders/seat", "!plan", int64(5), int64(900), "a", "i", "", "", "", []byte(nil), true)
	f.Add("orders/seat", "!wishes", int64(5), int64(900), "", "", "pause\t\t\t0\tme\t", "", "", []byte(nil), true)
	f.Add("orders/seat", "!newer", int64(5), int64(900), "", "", "", "", "", []byte(nil), true)
	full := lease.Item{} // every attribute, with a value of its type
	for _, r := range fixture.Full(f) {
		maps.Copy(full, lease.Encode(r))
	}
	f.Fuzz(func(t *testing.T, partition, key string, n, m int64, owner, id, element, last, past string, state []byte, flag bool) {
		item := lease.Item{}
		for name, value := range full {
			switch value.(type) {
			case string:
				item[name] = owner
			case int64:
				item[name] = n
			case bool:
				item[name] = flag
			case []byte:
				item[name] = state
			case []string:
				item[name] = []string{element, owner}
			}
		}
		maps.Copy(item, lease.Item{
			attr.Group: partition, attr.Key: key, attr.Version: int64(attr.Format), attr.WriteID: "w",
			attr.Generation: m, attr.Incarnation: id, attr.Parents: []string{element}, attr.Last: last, attr.Past: past,
			attr.Position: past, attr.CheckpointAt: m, attr.TTL: m, attr.Backoff: m, attr.Wants: []string{element},
		})
		r, err := lease.Decode(item)
		if err != nil {
			if !errors.Is(err, lease.ErrMalformed) {
				t.Fatalf("got %v", err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("an invalid record was read: %v", err)
		}
		again, err := lease.Decode(lease.Encode(r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v came back as %v, %v", r, again, err)
		}
	})
}

// TestUserDataStaysPrivate puts a canary into positions and states and prints rows, writes,
// refusals and errors in every way in which a log might.
func TestUserDataStaysPrivate(t *testing.T) {
	const canary = "canary"
	secret := checkpoint.Mark{Position: canary, State: canary}
	r := fixture.Held(t, "a")
	h := handle(r)
	h.Order = checkpoint.Lexical
	w, err := protocol.Commit(r, h, secret, stamp())
	r = next(t)(w, err)
	_, backwards := protocol.Commit(r, h, checkpoint.Mark{Position: "a" + canary}, stamp())
	bad := w
	spoilt := w.Next.(lease.Row)
	spoilt.Checkpoint.Position += "\xff"
	bad.Next = spoilt
	item := lease.Encode(r)
	item[attr.Position] = canary + "\xff"
	_, malformed := lease.Decode(item)
	_, notDecimal := protocol.Commit(r, handle(r), secret, stamp())

	held := protocol.NewCopy(r.Key(), "a-1")
	held.Saw(r)
	if err := held.Send(w); err != nil {
		t.Fatal(err)
	}
	answer := held.Answer(w, nil, errors.New("timeout"))

	var out bytes.Buffer
	for _, v := range []any{
		held, &held, answer, map[string]lease.Row{"r": r}, []lease.Write{w},
		r, &r, w, &w, lease.Record(r), []lease.Row{r}, backwards, notDecimal, bad.Check(), malformed,
		&lease.RefusedError{Op: lease.OpSwap, Key: r.Key(), Now: r}, r.Checkpoint,
		protocol.End{Reason: lease.ReasonFailed, Mark: secret},
	} {
		fmt.Fprintf(&out, "%v %+v %#v %s %d %x %q\n", v, v, v, v, v, v, v)
		text, _ := json.Marshal(v)
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		log := slog.New(handler)
		log.Info("x", "row", r, "write", w, "pointer", &r, "checkpoint", r.Checkpoint,
			"err", &lease.RefusedError{Op: lease.OpSwap, Key: r.Key(), Now: r}, "backwards", backwards)
	}
	hex := fmt.Sprintf("%x", canary)
	if text := out.String(); strings.Contains(text, canary) || strings.Contains(text, hex) {
		at := max(strings.Index(text, canary), strings.Index(text, hex))
		t.Errorf("user data leaked: …%s…", text[max(0, at-200):at+20])
	}
}

func TestStringsReadInAnIncident(t *testing.T) {
	r := fullRow(t, 20, 2)
	text := r.String()
	for _, want := range []string{"lease group---------------/shard---------------", "generation", "counter 4", "worker2", "offered to", "checkpoint of 56 bytes", "expired from", "task"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "row", r, "seat", lease.Seat{Group: "g", Incarnation: "i", Name: "n", Beat: 3})
	for _, want := range []string{`"shard":"shard---------------"`, `"generation":`, `"incarnation":"`, `"last_transfer":"expired`, `"beat":3`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s lacks %s", out.String(), want)
		}
	}
	t.Log(text)
}
