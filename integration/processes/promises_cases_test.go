package processes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// script is a sequence of entries for a fleet of two workers, a and b, with one shard.
type script struct {
	*journal
	now     time.Duration
	counter int64
}

func newScript() *script {
	s := &script{journal: newJournal(), now: time.Hour}
	s.add(entry{Kind: seatWritten, By: "a", Incarnation: "A", Counter: 1})
	s.add(entry{Kind: seatWritten, By: "b", Incarnation: "B", Counter: 1})
	s.row(entry{By: "a", Generation: 1})
	s.row(entry{By: "a", Generation: 2, Incarnation: "A"})
	s.add(entry{Kind: handlerStarted, By: "a", Generation: 2})
	s.write("a", 2, 1)
	return s
}

func (s *script) add(e entry) {
	s.now += time.Millisecond
	e.Wall, e.Shard = int64(s.now), "s"
	s.saw(e)
}

func (s *script) row(e entry) {
	s.counter++
	e.Kind, e.Counter, e.Write = rowWritten, s.counter, fmt.Sprint("w", s.counter)
	s.add(e)
}

func (s *script) write(by string, generation, record int64) {
	s.add(entry{Kind: acceptedEffect, By: by, Generation: generation, Position: record, Value: valueOf("s", record)})
}

// expire makes b evict a after that time of silence, and claim its shard.
func (s *script) expire(silence time.Duration) {
	s.now += silence
	s.add(entry{Kind: seatDeleted, By: "b", Incarnation: "A"})
	s.row(entry{By: "b", Generation: 3, Incarnation: "B", Reason: "expired"})
}

// ends returns a script in which these entries come before the end of a tenure of a.
func ends(cause event.Cause, before ...entry) func(*script) {
	return func(s *script) {
		for _, e := range before {
			s.add(e)
		}
		s.add(entry{Kind: libraryEvent, By: "a", Event: "ended", Cause: cause})
	}
}

// TestJournal: the journal must find every error. Each script has at least one error, or none, and the
// objections must match.
func TestJournal(t *testing.T) {
	for name, c := range map[string]struct {
		play func(s *script)
		want string
	}{
		"a commit": {func(s *script) { s.row(entry{By: "a", Generation: 2, Incarnation: "A", Position: 1, Made: 2}) }, ""},
		"a planned move": {func(s *script) {
			s.row(entry{By: "a", Generation: 3, Incarnation: "B", Position: 1, Made: 2, Reason: "handoff"})
			s.add(entry{Kind: handlerStarted, By: "b", Generation: 3, Position: 1})
			s.write("b", 3, 2)
			s.add(entry{Kind: libraryEvent, By: "a", Event: "ended", Cause: event.CauseHandedOff})
		}, ""},
		"a kill": {func(s *script) { s.add(entry{Kind: killed, By: "a"}); s.expire(leaseTime()); s.write("b", 3, 1) }, ""},
		"a stop": {func(s *script) {
			s.add(entry{Kind: stopped, By: "a"})
			s.expire(leaseTime())
			s.add(entry{Kind: continued, By: "a"})
			s.add(entry{Kind: libraryEvent, By: "a", Event: "ended", Cause: event.CauseExpired})
		}, ""},
		"given up after a stop, and evicted": {func(s *script) {
			s.add(entry{Kind: stopped, By: "a"})
			s.add(entry{Kind: continued, By: "a"})
			s.add(entry{Kind: seatWritten, By: "a", Incarnation: "A", Counter: 2}) // a has received no answer to it
			s.add(entry{Kind: libraryEvent, By: "a", Event: "lost", Cause: event.CauseUnreachable})
			s.expire(leaseTime())
		}, ""},
		"a call that is reported before its row": {func(s *script) {
			s.add(entry{Kind: handlerStarted, By: "b", Generation: 3, Position: 1})
			s.now -= 2 * time.Millisecond
			s.row(entry{By: "a", Generation: 3, Incarnation: "B", Position: 1, Made: 2, Reason: "handoff"})
		}, ""},
		"effects that are reported before their row": {func(s *script) {
			s.add(entry{Kind: handlerStarted, By: "b", Generation: 3, Position: 1})
			s.write("b", 3, 2)
			s.write("b", 3, 3)
			s.now -= 4 * time.Millisecond
			s.row(entry{By: "a", Generation: 3, Incarnation: "B", Position: 1, Made: 2, Reason: "handoff"})
			s.now += 4 * time.Millisecond
			s.write("b", 3, 4)
		}, ""},
		"a stale effect after one that is reported before its row": {func(s *script) {
			s.add(entry{Kind: handlerStarted, By: "b", Generation: 3, Position: 1})
			s.write("b", 3, 2)
			s.write("a", 2, 2)
			s.now -= 4 * time.Millisecond
			s.row(entry{By: "a", Generation: 3, Incarnation: "B", Position: 1, Made: 2, Reason: "handoff"})
		}, "register"},
		"effects of a generation that nobody has": {func(s *script) { s.write("b", 3, 2) }, "S3"},
		"a call that comes before its row": {func(s *script) {
			s.add(entry{Kind: handlerStarted, By: "b", Generation: 3, Position: 1})
			s.row(entry{By: "a", Generation: 3, Incarnation: "B", Position: 1, Made: 2, Reason: "handoff"})
		}, "S3"},
		"a takeover": {func(s *script) {
			s.row(entry{By: "a", Generation: 2, Incarnation: "A", Position: 1, Made: 2, Offered: "B"})
			s.row(entry{By: "b", Generation: 3, Incarnation: "B", Position: 1, Made: 2, Reason: "handoff"})
		}, ""},
		"a takeover without an offer": {func(s *script) { s.row(entry{By: "b", Generation: 3, Incarnation: "B", Reason: "handoff"}) }, "S4"},
		"a call without a row":        {func(s *script) { s.add(entry{Kind: handlerStarted, By: "b", Generation: 3, Position: 1}) }, "S3"},
		"a stale commit": {func(s *script) {
			s.add(entry{Kind: killed, By: "a"})
			s.expire(leaseTime())
			s.row(entry{By: "a", Generation: 3, Incarnation: "B", Position: 1, Made: 2})
		}, "S1"},
		"a checkpoint that moves back": {func(s *script) {
			s.row(entry{By: "a", Generation: 2, Incarnation: "A", Position: 1, Made: 2})
			s.row(entry{By: "a", Generation: 2, Incarnation: "A", Position: 0, Made: 2})
		}, "S2"},
		"a start elsewhere": {func(s *script) {
			s.row(entry{By: "a", Generation: 3, Incarnation: "B", Position: 1, Made: 2})
			s.add(entry{Kind: handlerStarted, By: "b", Generation: 3, Position: 0})
		}, "S2"},
		"two owners":                               {func(s *script) { s.row(entry{By: "b", Generation: 2, Incarnation: "B"}) }, "S3"},
		"a generation back":                        {func(s *script) { s.row(entry{By: "a", Generation: 1, Incarnation: "A"}) }, "S3"},
		"two handlers":                             {func(s *script) { s.add(entry{Kind: handlerStarted, By: "a", Generation: 2}) }, "S3"},
		"a handler without ownership":              {func(s *script) { s.add(entry{Kind: handlerStarted, By: "b", Generation: 2}) }, "S3"},
		"a write that was applied twice":           {func(s *script) { s.counter++; s.row(entry{By: "a", Generation: 2, Incarnation: "A"}) }, "S3"},
		"evicted too soon":                         {func(s *script) { s.add(entry{Kind: stopped, By: "a"}); s.expire(leaseTime() * 9 / 10) }, "S4"},
		"evicted without a cause":                  {func(s *script) { s.expire(leaseTime()) }, "S4"},
		"one lost answer is no cause":              {ends(event.CauseUnreachable, entry{Kind: seatFault, By: "a"}), "S4"},
		"one lost answer, and no time for another": {ends(event.CauseUnreachable, entry{Kind: seatFault, By: "a"}, entry{Kind: stalled, By: "a", For: leaseTime() / 4}), ""},
		"one lost answer, and time for another":    {ends(event.CauseUnreachable, entry{Kind: seatFault, By: "a"}, entry{Kind: stalled, By: "a", For: leaseTime() / 6}), "S4"},
		"a stall that was over": {func(s *script) {
			s.add(entry{Kind: stalled, By: "a", For: leaseTime()})
			s.now += leaseTime()
			s.add(entry{Kind: libraryEvent, By: "a", Event: "ended", Cause: event.CauseUnreachable})
		}, "S4"},
		"a stall that all have seen is one": {ends(event.CauseUnreachable, entry{Kind: stalled, By: "a", For: leaseTime() / 4}, entry{Kind: stalled, For: leaseTime() / 4}, entry{Kind: slow, By: "a", For: leaseTime() / 4}), "S4"},
		"many short stalls": {func(s *script) {
			for range 15 {
				s.now += leaseTime() / 20
				s.add(entry{Kind: stalled, By: "a", For: leaseTime() / 30})
			}
			s.add(entry{Kind: libraryEvent, By: "a", Event: "ended", Cause: event.CauseUnreachable})
		}, ""},
		"seized by a worker that saw the eviction first": {func(s *script) {
			s.add(entry{Kind: killed, By: "a"})
			s.now += leaseTime()
			s.row(entry{By: "b", Generation: 3, Incarnation: "B", Reason: "expired"})
			s.saw(entry{Kind: seatDeleted, By: "c", Incarnation: "A", Wall: int64(s.now - time.Millisecond)})
		}, ""},
		"seized before the eviction": {func(s *script) {
			s.add(entry{Kind: killed, By: "a"})
			s.now += leaseTime()
			s.row(entry{By: "b", Generation: 3, Incarnation: "B", Reason: "expired"})
			s.add(entry{Kind: seatDeleted, By: "c", Incarnation: "A"})
		}, "S4"},
		"seized from a live worker":       {func(s *script) { s.row(entry{By: "b", Generation: 3, Incarnation: "B", Reason: "expired"}) }, "S4"},
		"fenced by nobody":                {ends(event.CauseFenced, entry{Kind: stopped, By: "a"}), "S4"},
		"two processes write":             {func(s *script) { s.write("b", 2, 2) }, "S3"},
		"another owner at one generation": {ends(event.CauseConflict, entry{Kind: stopped, By: "a"}), "S4"},
		"a stale effect": {func(s *script) {
			s.add(entry{Kind: killed, By: "a"})
			s.expire(leaseTime())
			s.write("b", 3, 1)
			s.write("a", 2, 2)
		}, "register"},
		"a record left out":         {func(s *script) { s.write("a", 2, 3) }, "lost"},
		"a checkpoint over nothing": {func(s *script) { s.row(entry{By: "a", Generation: 2, Incarnation: "A", Position: 2, Made: 2}) }, "lost"},
	} {
		s := newScript()
		c.play(s)
		objections := s.verdict()
		found := slices.ContainsFunc(objections, func(o string) bool { return strings.HasPrefix(o, c.want+":") })
		if found != (c.want != "") || c.want == "" && len(objections) > 0 {
			t.Errorf("%s: %q, want %q", name, objections, c.want)
		}
	}
}

// TestRecoveriesThatCount: a recovery counts only if nothing but the kill can have delayed it.
func TestRecoveriesThatCount(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *script)
		counts bool
	}{
		"nothing else":  {func(*script) {}, true},
		"a short stall": {func(s *script) { s.add(entry{Kind: stalled, By: "b", For: leaseTime() / 5}) }, true},
		"a long stall":  {func(s *script) { s.add(entry{Kind: stalled, By: "b", For: leaseTime() / 3}) }, false},
		"a worker that gave up its seat": {func(s *script) {
			s.add(entry{Kind: libraryEvent, By: "b", Event: "lost", Cause: event.CauseUnreachable})
		}, false},
		"a worker that was evicted": {func(s *script) {
			s.now += leaseTime()
			s.add(entry{Kind: seatDeleted, By: "c", Incarnation: "B"})
		}, false},
	} {
		s := newScript()
		s.add(entry{Kind: killed, By: "a"})
		c.before(s)
		s.expire(2 * leaseTime())
		s.write("b", 3, 2)
		s.mu.Lock()
		clean, mixed := s.recoveries()
		s.mu.Unlock()
		if got := len(clean) == 1; got != c.counts || !got && len(mixed) != 1 {
			t.Errorf("%s: counted %v, want %v: %v", name, got, c.counts, mixed)
		}
	}
}

// TestOnlySeatsAreEvicted: only the deletion of a seat is an eviction. The plan and the wishes, which
// are stored beside the seats, and the targets are no seats, and their faults explain no loss of one.
func TestOnlySeatsAreEvicted(t *testing.T) {
	for key, want := range map[string]bool{"g/seat i": true, "g/seat !plan": false, "g/seat !wishes": false, "g/target i/0000": false, "g/lease/3 s": false} {
		group, name, _ := strings.Cut(key, " ")
		body := fmt.Sprintf(`{"Key":{"%s":{"S":"%s"},"%s":{"S":"%s"}}}`, attr.Group, group, attr.Key, name)
		deletion := unpack(http.Header{"X-Amz-Target": {"DynamoDB_20120810.DeleteItem"}}, []byte(body), "a")
		var saw []kind
		r := &proxy{saw: func(e entry) { saw = append(saw, e.Kind) }}
		r.report(deletion, time.Now(), http.StatusOK, nil)
		if (len(saw) > 0) != want || (deletion.kind == "seat") != want {
			t.Errorf("a deletion of %s: kind %q, the proxy reports %v", key, deletion.kind, saw)
		}
	}
}
