package lease

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/rebalance"
)

// This file has the causes of planned moves, as targets and transfers store them.

// A MoveCause is why the plan moves some shards.
type MoveCause struct {
	Why    rebalance.Why // zero: unknown
	Note   string        // for people: of an operator's wish, by whom and why; otherwise empty
	Shards []string      // of the causes of a [Target]: the shards that move, sorted; of a single shard: empty
}

// maxCauses is how many different causes one page has. If there are more, the rarest lose their notes.
const maxCauses = 'z' - 'a' + 1

// maxCauseNote is how many bytes of the note of a wish go along with a move: as many as the history of a row keeps.
const maxCauseNote = attr.MaxPastNote

// letters are the causes as records store them, one letter each.
var letters = [...]byte{
	rebalance.Balance: 'b', rebalance.Leaving: 'l', rebalance.Drained: 'd', rebalance.Pinned: 'p', rebalance.Ordered: 'm', rebalance.Returned: 'r',
}

// letter returns the letter of a cause; 0: it is unknown.
func letter(why rebalance.Why) byte {
	if int(why) >= len(letters) {
		return 0
	}
	return letters[why]
}

// whyOf returns the cause that a letter stands for; zero: it is none, or one of a newer version.
func whyOf(of byte) rebalance.Why {
	return rebalance.Why(max(0, slices.Index(letters[1:], of)+1))
}

// steered reports whether the wish of an operator is the cause. The history of a row keeps the note of such a move, as
// that of a command.
func steered(why rebalance.Why) bool {
	return why == rebalance.Drained || why == rebalance.Pinned || why == rebalance.Ordered
}

// noted returns the cause with a note of at most the length that a page has.
func (c MoveCause) noted() MoveCause {
	c.Note = attr.Abridged(c.Note, maxCauseNote)
	return c
}

func (c MoveCause) compare(other MoveCause) int {
	return cmp.Or(cmp.Compare(c.Why, other.Why), strings.Compare(c.Note, other.Note))
}

// CauseOf returns why the plan moves a shard to the worker of the target, or from it; zero: it does not, or that is unknown.
func (t Target) CauseOf(shard string) MoveCause {
	for _, c := range t.Causes {
		if _, of := slices.BinarySearch(c.Shards, shard); of {
			return MoveCause{Why: c.Why, Note: c.Note}
		}
	}
	return MoveCause{}
}

// Because adds a cause for its shards, which no other cause of the target has.
func (t *Target) Because(c MoveCause) {
	if c = c.noted(); c.Why == 0 || len(c.Shards) == 0 {
		return
	}
	at := slices.IndexFunc(t.Causes, func(of MoveCause) bool { return of.compare(c) == 0 })
	if at < 0 {
		at, t.Causes = len(t.Causes), append(t.Causes, MoveCause{Why: c.Why, Note: c.Note})
	}
	of := &t.Causes[at]
	before := len(of.Shards)
	of.Shards = append(of.Shards, c.Shards...)
	if before > 0 && of.Shards[before-1] >= of.Shards[before] || !rising(c.Shards) {
		slices.Sort(of.Shards)
		of.Shards = slices.Compact(of.Shards)
	}
}

// rising reports whether the names are sorted and different.
func rising(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

// names calls each with the shards of Hold and then of Give.
func (t Target) names(each func(shard string)) {
	for _, a := range t.Hold {
		each(a.Shard)
	}
	for _, g := range t.Give {
		each(g.Shard)
	}
}

// ownCauses returns those of the causes that are about shards of the page, sorted.
func (t Target) ownCauses(all []MoveCause) []MoveCause {
	if len(all) == 0 {
		return nil
	}
	own, whole := Target{}, Target{Causes: all}
	t.names(func(shard string) {
		if c := whole.CauseOf(shard); c.Why != 0 {
			c.Shards = []string{shard}
			own.Because(c)
		}
	})
	slices.SortFunc(own.Causes, MoveCause.compare)
	if len(own.Causes) > maxCauses {
		own = own.folded()
	}
	return own.Causes
}

// folded returns the target without the notes of the causes that have the fewest shards: then all have letters.
func (t Target) folded() (less Target) {
	slices.SortStableFunc(t.Causes, func(a, b MoveCause) int { return cmp.Compare(len(b.Shards), len(a.Shards)) })
	for i, c := range t.Causes {
		if i >= maxCauses-(len(letters)-1) {
			c.Note = ""
		}
		less.Because(c)
	}
	slices.SortFunc(less.Causes, MoveCause.compare)
	return less
}

func (t Target) validateCauses() error {
	if len(t.Causes) > maxCauses {
		return tooMany("causes of a page", len(t.Causes), maxCauses)
	}
	if len(t.Causes) == 0 {
		return nil
	}
	var errs []error
	of := map[string]bool{}
	for i, c := range t.Causes {
		errs = append(errs, validText("note of a cause", c.Note, maxCauseNote))
		if letter(c.Why) == 0 || i > 0 && t.Causes[i-1].compare(c) >= 0 {
			errs = append(errs, invalid("causes", "must be known, sorted and different"))
		}
		if len(c.Shards) == 0 || !rising(c.Shards) {
			errs = append(errs, invalid("causes", "must have shards, which are sorted and different"))
		}
		for _, shard := range c.Shards {
			if of[shard] {
				errs = append(errs, invalid("causes", "must be one for each shard"))
			}
			of[shard] = true
		}
	}
	return errors.Join(errs...)
}

// packCauses returns the causes as a page stores them: the revision, a tab, and a letter for each name of Hold and then of
// Give, '-' for none. A number in front of a letter says how often it is repeated. Then each cause has a line, 'a' the
// first: its own letter and, after a tab, its note.
//
// The revision makes the causes void if an older version of the library writes the page: it leaves the attribute as it is.
func (t Target) packCauses() string {
	if len(t.Causes) == 0 {
		return ""
	}
	of := map[string]byte{}
	var lines strings.Builder
	for i, c := range t.Causes {
		for _, shard := range c.Shards {
			of[shard] = 'a' + byte(i)
		}
		lines.WriteString("\n" + string(rune(letter(c.Why))))
		if c.Note != "" {
			lines.WriteString("\t" + c.Note)
		}
	}
	var runs strings.Builder
	run, last := 0, byte(0)
	write := func() {
		if run > 1 {
			runs.WriteString(strconv.Itoa(run))
		}
		runs.WriteByte(last)
	}
	t.names(func(shard string) {
		now := cmp.Or(of[shard], '-')
		if now != last && run > 0 {
			write()
			run = 0
		}
		run, last = run+1, now
	})
	if last != '-' && run > 0 {
		write()
	}
	return fmt.Sprintf("%d\t%s%s", t.Revision, runs.String(), lines.String())
}

// unpackCauses reads the causes. Causes that cannot be read, or that are of another revision, are ignored: a move is the same
// without its cause.
func (t *Target) unpackCauses(packed string) {
	lines := strings.Split(packed, "\n")
	revision, runs, ok := strings.Cut(lines[0], "\t")
	if !ok || revision != strconv.FormatInt(t.Revision, 10) {
		return
	}
	var names []string
	t.names(func(shard string) { names = append(names, shard) })
	for runs != "" {
		digits := len(runs) - len(strings.TrimLeft(runs, "0123456789"))
		n, err := strconv.Atoi(cmp.Or(runs[:digits], "1"))
		if err != nil || n < 1 || n > len(names) || digits == len(runs) {
			t.Causes = nil
			return
		}
		of := runs[digits]
		if line := int(of) - 'a' + 1; line > 0 && line < len(lines) {
			word, note, _ := strings.Cut(lines[line], "\t")
			if len(word) == 1 {
				t.Because(MoveCause{Why: whyOf(word[0]), Note: note, Shards: names[:n]})
			}
		}
		names, runs = names[n:], runs[digits+1:]
	}
	slices.SortFunc(t.Causes, MoveCause.compare)
	if t.validateCauses() != nil {
		t.Causes = nil
	}
}
