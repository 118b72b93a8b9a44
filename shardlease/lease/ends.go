package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
)

// Ends count the tenures of a group that ended in one hour, by the reason for the change of hands. Each worker and each session adds
// what its own writes have ended, at most once a minute, and an operator's command adds what it has ended. So a death is
// counted when another worker recovers the shard. Nothing depends on the counts: they are for people. A store may delete
// counts that are older than 90 days.
type Ends struct {
	Group   string
	Hour    time.Time // when the hour began, in UTC
	WriteID WriteID
	Counts  map[Reason]int64 // each at least 1; with reasons that only a newer version knows
	// Recent are the ids of the writes before WriteID, the newest first: at most 20. A writer whose answer was lost
	// finds its own id there, and counts nothing twice.
	Recent []WriteID
	At     time.Time // the wall clock of the last writer, for people
}

const (
	endsAge    = 90 * 24 * time.Hour
	maxRecent  = 20
	maxReasons = 40
	hourLayout = "2006-01-02T15"
)

// hourOf reads the name of a key of ends.
func hourOf(name string) (time.Time, bool) {
	at, err := time.Parse(hourLayout, name)
	return at, err == nil && at.Format(hourLayout) == name
}

// Key returns the address of the counts.
func (e Ends) Key() Key {
	return Key{Group: e.Group, Kind: KindEnds, Name: e.Hour.UTC().Format(hourLayout)}
}

// Written returns the id of the write that made the counts what they are.
func (e Ends) Written() WriteID { return e.WriteID }

func (e Ends) count() int64 { return 0 }

// Followed returns Recent after another write of the record.
func (e Ends) Followed() []WriteID {
	if e.WriteID == "" {
		return nil
	}
	recent := append([]WriteID{e.WriteID}, e.Recent...)
	return recent[:min(len(recent), maxRecent)]
}

// Knows reports whether the write with that id made e what it is, or is among the writes before that e remembers. complete reports
// whether e remembers all writes since the one with the id since; "": since the record was created.
func (e Ends) Knows(id, since WriteID) (known, complete bool) {
	written := append([]WriteID{e.WriteID}, e.Recent...)
	return slices.Contains(written, id), len(e.Recent) < maxRecent || since != "" && slices.Contains(written, since)
}

// Validate reports everything that makes e impossible to store.
func (e Ends) Validate() error {
	errs := []error{e.Key().Validate(), validWord("write id", string(e.WriteID))}
	if !e.Hour.Equal(e.Hour.Truncate(time.Hour)) {
		errs = append(errs, invalid("hour", "must be a whole hour of UTC"))
	}
	if n := len(e.Counts); n > maxReasons {
		errs = append(errs, tooMany("reasons", n, maxReasons))
	}
	if n := len(e.Recent); n > maxRecent {
		errs = append(errs, tooMany("recent writes", n, maxRecent))
	}
	for reason, n := range e.Counts {
		errs = append(errs, validWord("reason", string(reason)), positive("count", n))
	}
	for _, id := range e.Recent {
		errs = append(errs, validWord("recent write", string(id)))
	}
	return errors.Join(errs...)
}

// validWord reports an id that cannot be part of a packed list.
func validWord(field, s string) error {
	if strings.Contains(s, " ") {
		return invalid(field, "must not contain spaces")
	}
	return validID(field, s)
}

// checkEnds reports a change of counts that no transition makes.
func (e Ends) checkEnds(old Ends) string {
	for reason, n := range old.Counts {
		if e.Counts[reason] < n {
			return "counts must not decrease"
		}
	}
	if !slices.Equal(e.Recent, old.Followed()) {
		return "the counts must remember the write before"
	}
	return ""
}

func (e Ends) clone() Ends {
	e.Counts, e.Recent = maps.Clone(e.Counts), slices.Clone(e.Recent)
	return e
}

func (e Ends) encode(put func(string, any)) {
	var counts []string
	for _, reason := range slices.Sorted(maps.Keys(e.Counts)) {
		counts = append(counts, string(reason)+" "+strconv.FormatInt(e.Counts[reason], 10))
	}
	recent := make([]string, len(e.Recent))
	for i, id := range e.Recent {
		recent[i] = string(id)
	}
	put(attr.Ends, counts)
	put(attr.Recent, strings.Join(recent, " "))
	put(attr.Expires, e.Hour.Add(endsAge).Unix())
	put(attr.At, millis(e.At))
}

func (in *reader) ends(key Key) Ends {
	hour, ok := hourOf(key.Name)
	if !ok {
		in.fail(attr.Key, "must be a whole hour of UTC, such as 2026-11-28T17")
	}
	e := Ends{Group: key.Group, Hour: hour, WriteID: WriteID(in.text(attr.WriteID)), At: in.time(attr.At)}
	for _, text := range in.set(attr.Ends) {
		reason, number, _ := strings.Cut(text, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != number {
			in.fail(attr.Ends, "must have a reason and a number in each element")
			continue
		}
		if e.Counts == nil {
			e.Counts = map[Reason]int64{}
		}
		e.Counts[Reason(reason)] = n
	}
	for _, id := range strings.Fields(in.text(attr.Recent)) {
		e.Recent = append(e.Recent, WriteID(id))
	}
	return e
}

func (e Ends) String() string { return fmt.Sprintf("%v: ends %v", e.Key(), e.Counts) }

// LogValue returns the counts as a group of fields for structured logs.
func (e Ends) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("group", e.Group), slog.Time("hour", e.Hour)}
	for _, reason := range slices.Sorted(maps.Keys(e.Counts)) {
		attrs = append(attrs, slog.Int64(string(reason), e.Counts[reason]))
	}
	return slog.GroupValue(attrs...)
}
