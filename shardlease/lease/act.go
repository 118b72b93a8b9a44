package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
)

// An Act is an entry of the journal of a group: what an operator or a program has commanded, when, and why. It is written once,
// after the act, and never changes: the write id is a part of its name. Nobody decides anything by it.
type Act struct {
	Group   string
	At      time.Time // by the clock of the operator, in whole milliseconds; entries are sorted by it
	WriteID WriteID

	Did        string // the command, such as "release" or "drain"
	Subject    string // the name of a shard, a worker or a task; empty: the whole group
	To         string // the name of the worker or session to which a shard moves
	By         string // the operator
	Why        string
	Generation int64     // the generation that the act began, or that the operator of a move has seen; 0: none, or several
	Rows       int64     // how many lease rows an act has changed that is not about one shard
	Until      time.Time // when the wish or the reservation that the act made ends, in whole milliseconds; zero: it made none, or no end is set
}

// actAge is how long an entry is kept before a store may delete it.
const actAge = 90 * 24 * time.Hour

// actTime is the beginning of the name of an entry: times have the order of their texts.
const actTime = "20060102T150405.000Z"

// Key returns the address of the entry.
func (a Act) Key() Key {
	return Key{Group: a.Group, Kind: KindJournal, Name: actsSince(a.At) + string(a.WriteID)}
}

// actsSince returns the text below which the names of all entries before that time are.
func actsSince(at time.Time) string { return at.UTC().Format(actTime) + " " }

// ActsSince returns the query that lists the entries of a group from a time on, the oldest first. Entries that a store may have
// deleted at the time now are not among them.
func ActsSince(group string, since, now time.Time) Query {
	if oldest := now.Add(-actAge); since.Before(oldest) {
		since = oldest
	}
	return Query{Group: group, Kind: KindJournal, After: actsSince(since)}
}

// Written returns the id of the write that made the entry.
func (a Act) Written() WriteID { return a.WriteID }

func (a Act) count() int64 { return 0 }

// Validate reports everything that makes a impossible to store.
func (a Act) Validate() error {
	errs := []error{
		validName("group", a.Group), validID("write id", string(a.WriteID)), validID("act", a.Did), validText("subject", a.Subject, MaxName),
		validText("to", a.To, MaxName), validName("by", a.By), validText("why", a.Why, MaxName),
	}
	if at := a.At.UTC(); at.Year() < 2000 || at.Year() > 9999 || at.Nanosecond()%int(time.Millisecond) != 0 {
		errs = append(errs, invalid("time", "must be in whole milliseconds, and after 2000"))
	}
	if a.Until.Nanosecond()%int(time.Millisecond) != 0 {
		errs = append(errs, invalid("until", "must be in whole milliseconds"))
	}
	if a.Generation < 0 || a.Rows < 0 {
		errs = append(errs, invalid("number", "must not be negative"))
	}
	return errors.Join(errs...)
}

func (a Act) encode(put func(string, any)) {
	put(attr.Act, a.Did)
	put(attr.Subject, a.Subject)
	put(attr.To, a.To)
	put(attr.By, a.By)
	put(attr.Why, a.Why)
	put(attr.Generation, a.Generation)
	put(attr.Shards, a.Rows)
	put(attr.Until, millis(a.Until))
	put(attr.Expires, a.At.Add(actAge).Unix())
}

func (in *reader) act(key Key) Act {
	a := Act{
		Group: key.Group, WriteID: WriteID(in.text(attr.WriteID)), Did: in.text(attr.Act), Subject: in.text(attr.Subject), To: in.text(attr.To),
		By: in.text(attr.By), Why: in.text(attr.Why), Generation: in.number(attr.Generation), Rows: in.number(attr.Shards),
		Until: in.time(attr.Until),
	}
	text, _, _ := strings.Cut(key.Name, " ")
	if a.At, _ = time.Parse(actTime, text); a.Key() != key {
		in.fail(attr.Key, "must be the time of the act, a space, and the write id")
	}
	return a
}

func (a Act) String() string {
	words := []string{fmt.Sprintf("%v: %s", a.Key(), a.Did)}
	if a.Subject != "" {
		words = append(words, fmt.Sprintf("%q", a.Subject))
	}
	if a.To != "" {
		words = append(words, fmt.Sprintf("to %q", a.To))
	}
	words = append(words, fmt.Sprintf("by %q", a.By))
	if !a.Until.IsZero() {
		words = append(words, "until "+a.Until.Format(time.RFC3339))
	}
	if a.Why != "" {
		words = append(words, "("+a.Why+")")
	}
	return strings.Join(words, " ")
}

// LogValue returns the entry as a group of fields for structured logs.
func (a Act) LogValue() slog.Value {
	return slog.GroupValue(slog.String("group", a.Group), slog.String("act", a.Did), slog.String("subject", a.Subject), slog.String("by", a.By))
}
