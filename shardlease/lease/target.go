package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
)

// A Target is one page of the target assignment of one worker: which shards the worker should
// hold, and to which successors it should hand shards over. The planner of a revision writes
// the targets that differ from the earlier ones; their worker reads them once per revision.
//
// A target is advice. It is no condition of any write, so a target that is wrong, late or
// missing costs time and breaks no promise.
//
// Invariant: a target is only ever replaced by one of a higher revision.
//
// Invariant: every page of a target carries its revision and the number of its pages.
type Target struct {
	Group       string
	Incarnation Incarnation // the worker for which the target is
	Page        int64       // the number of this page, from 0
	Pages       int64       // how many pages the target has
	WriteID     WriteID
	Revision    int64 // the revision of the plan that this target is part of

	Hold []Assigned // the shards that the worker should hold, sorted by name
	// Give has hints where to look for requests: which worker will ask for which shard that
	// this worker holds. It is sorted by shard and may be incomplete. A worker also serves
	// requests that no hint names.
	Give []Give
	// Causes are those of the moves that Hold and Give are about, in any order. They are for people and for handoff
	// strategies. A shard that is in none of them does not move, or an earlier version of the library has planned the move.
	Causes []MoveCause
	At     time.Time // the planner's wall clock, for people
}

// An Assigned is a shard that a worker should hold.
type Assigned struct {
	Shard   string
	Parents []string // sorted; only of a shard that has no lease row yet
}

// A Give is the hint that another worker will ask for a shard.
type Give struct {
	Shard string
	To    Incarnation // the successor
}

// The limits of a target. A page stays far below the 400 KB of a DynamoDB item.
const (
	MaxPage = 300 // how many names of Hold and Give one page may have

	maxPages     = 10_000
	maxPageBytes = 256 << 10 // the sum of the lengths of all names of a page
)

// Key returns the address of the page.
func (t Target) Key() Key {
	return Key{Group: t.Group, Kind: KindTarget, Name: fmt.Sprintf("%s/%04d", t.Incarnation, t.Page)}
}

// cutPage returns the incarnation and the page that the name of a target's key consists of.
func cutPage(name string) (Incarnation, int64, bool) {
	cut := strings.LastIndexByte(name, '/')
	if cut < 0 || len(name)-cut != len("/0000") {
		return "", 0, false
	}
	page, err := strconv.ParseUint(name[cut+1:], 10, 16)
	return Incarnation(name[:cut]), int64(page), err == nil
}

// Written returns the id of the write that made the page what it is.
func (t Target) Written() WriteID { return t.WriteID }

func (t Target) count() int64 { return t.Revision }

// Split returns the pages of a target whose Hold and Give may have any length. Every page has
// as many names as fit; a target without names has one empty page.
func (t Target) Split() []Target {
	blank := t
	blank.Hold, blank.Give, blank.Causes = nil, nil, nil
	pages, names, size := []Target{blank}, 0, 0
	room := func(bytes int) *Target {
		if names == MaxPage || size+bytes > maxPageBytes {
			pages, names, size = append(pages, blank), 0, 0
		}
		names, size = names+1, size+bytes
		return &pages[len(pages)-1]
	}
	for _, a := range t.Hold {
		page := room(a.size())
		page.Hold = append(page.Hold, a)
	}
	for _, g := range t.Give {
		page := room(g.size())
		page.Give = append(page.Give, g)
	}
	for i := range pages {
		pages[i].Page, pages[i].Pages = int64(i), int64(len(pages))
		pages[i].Causes = pages[i].ownCauses(t.Causes)
	}
	return pages
}

// JoinPages returns the target that was split into the pages of one worker, as page 0 of all of
// them. It reports false for a mixed set: a page is missing or belongs to another revision,
// because a planner is writing them, or the names of one page are not above those of the page
// before. A worker does not act on a mixed set, and reads the pages again. Pages above those of the
// target are left from an earlier one, and do not count.
func JoinPages(pages []Target) (Target, bool) {
	if len(pages) == 0 || int64(len(pages)) < pages[0].Pages {
		return Target{}, false
	}
	whole := pages[0]
	whole.Hold, whole.Give, whole.Causes = nil, nil, nil
	for i, page := range pages[:max(whole.Pages, 1)] {
		if page.Page != int64(i) || page.Pages != whole.Pages || page.Revision != whole.Revision || page.Incarnation != whole.Incarnation {
			return Target{}, false
		}
		whole.Hold, whole.Give = append(whole.Hold, page.Hold...), append(whole.Give, page.Give...)
		for _, c := range page.Causes {
			whole.Because(c)
		}
	}
	if !whole.sorted() {
		return Target{}, false
	}
	return whole, true
}

// sorted reports whether Hold and Give are sorted, with different shards.
func (t Target) sorted() bool {
	hold, give := t.Hold, t.Give
	for i := 1; i < len(hold); i++ {
		if hold[i-1].Shard >= hold[i].Shard {
			return false
		}
	}
	for i := 1; i < len(give); i++ {
		if give[i-1].Shard >= give[i].Shard {
			return false
		}
	}
	return true
}

func (a Assigned) size() int {
	size := len(a.Shard)
	for _, parent := range a.Parents {
		size += len(parent)
	}
	return size
}

func (g Give) size() int { return len(g.Shard) + len(g.To) }

// Validate reports everything that makes t impossible to store.
func (t Target) Validate() error {
	errs := []error{t.Key().Validate(), validID("write id", string(t.WriteID)), positive("revision", t.Revision)}
	if t.Pages < 1 || t.Pages > maxPages || t.Page < 0 || t.Page >= t.Pages {
		errs = append(errs, invalid("page", fmt.Sprintf("must be one of the pages of the target, which has at most %d", maxPages)))
	}
	if n := len(t.Hold) + len(t.Give); n > MaxPage {
		errs = append(errs, tooMany("names of a page", n, MaxPage))
	}
	size := 0
	for _, a := range t.Hold {
		size += a.size()
		errs = append(errs, validName("assigned shard", a.Shard), validParents(a.Shard, a.Parents))
	}
	for _, g := range t.Give {
		size += g.size()
		errs = append(errs, validName("shard to give", g.Shard), validIncarnation(g.To))
	}
	if !t.sorted() {
		errs = append(errs, invalid("hold and give", "must be sorted, with different shards"))
	}
	errs = append(errs, t.validateCauses())
	if size > maxPageBytes {
		errs = append(errs, tooLong("page", size, maxPageBytes))
	}
	return errors.Join(errs...)
}

func (t Target) clone() Target {
	t.Hold, t.Give, t.Causes = slices.Clone(t.Hold), slices.Clone(t.Give), slices.Clone(t.Causes)
	for i, a := range t.Hold {
		t.Hold[i].Parents = slices.Clone(a.Parents)
	}
	for i, c := range t.Causes {
		t.Causes[i].Shards = slices.Clone(c.Shards)
	}
	return t
}

func (t Target) encode(put func(string, any)) {
	put(attr.Revision, t.Revision)
	put(attr.Pages, t.Pages)
	put(attr.Hold, packHold(t.Hold))
	put(attr.Give, packGive(t.Give))
	put(attr.Causes, t.packCauses())
	put(attr.At, millis(t.At))
}

func (in *reader) target(key Key) Target {
	t := Target{
		Group: key.Group, WriteID: WriteID(in.text(attr.WriteID)),
		Revision: in.number(attr.Revision), Pages: in.number(attr.Pages), At: in.time(attr.At),
	}
	ok := false
	if t.Incarnation, t.Page, ok = cutPage(key.Name); !ok {
		in.fail(attr.Key, "must be an incarnation and a page")
	}
	if t.Hold, ok = unpackHold(in.binary(attr.Hold)); !ok {
		in.fail(attr.Hold, "must be packed names")
	}
	if t.Give, ok = unpackGive(in.binary(attr.Give)); !ok {
		in.fail(attr.Give, "must be packed names and successors")
	}
	t.unpackCauses(in.text(attr.Causes))
	return t
}

// checkTarget reports a target that would replace one of the same or of a higher revision.
func (t Target) checkTarget(old Target) string {
	if t.Revision <= old.Revision {
		return "a target replaces only one of a lower revision"
	}
	return ""
}

func (t Target) String() string {
	return fmt.Sprintf("%v: page %d of %d, revision %d, %d shards to hold, %d to give",
		t.Key(), t.Page, t.Pages, t.Revision, len(t.Hold), len(t.Give))
}

// LogValue returns the target as a group of fields for structured logs.
func (t Target) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("group", t.Group), slog.String("incarnation", string(t.Incarnation)), slog.Int64("page", t.Page),
		slog.Int64("revision", t.Revision), slog.Int("hold", len(t.Hold)), slog.Int("give", len(t.Give)))
}
