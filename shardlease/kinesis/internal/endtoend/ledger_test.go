package endtoend

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

type digest = [sha256.Size]byte

// A put is a record that was put.
type put struct {
	topic  string
	key    string // empty: none
	number int    // it is the record of its key with this number
	digest digest // of its data
}

// A ledger has what was put, and where.
type ledger struct {
	mu      sync.Mutex
	puts    []put
	next    map[string]int     // the number of the next record, by topic and key
	entries map[string][]entry // by lease
	foreign int                // how many packed records the consumers should leave out
	checked map[string]int     // how many entries of a lease were checked with a checkpoint
}

// An entry is what a sequence number stands for.
type entry struct {
	sequence string
	packed   bool
	records  []packed
}

// A packed is one record in an entry. Its index counts also the records that do not belong there.
type packed struct {
	index  int
	digest digest
}

func newLedger() *ledger {
	return &ledger{next: map[string]int{}, entries: map[string][]entry{}, checked: map[string]int{}}
}

// last returns the position of a lease whose shard is processed to its end; empty if nothing was put there.
func (l *ledger) last(lease string) string {
	all := l.entries[lease]
	if len(all) == 0 {
		return ""
	}
	e := all[len(all)-1]
	if !e.packed || len(e.records) == 0 {
		return e.sequence
	}
	return e.sequence + "/" + strconv.Itoa(e.records[len(e.records)-1].index)
}

// A place is a place in a shard. Places are compared with before.
type place struct {
	sequence string
	index    int
}

// parse reads a position. Without an index it includes the whole entry.
func parse(position string) (place, error) {
	sequence, index, packed := strings.Cut(position, "/")
	if strings.Trim(sequence, "0123456789") != "" || sequence == "" {
		return place{}, fmt.Errorf("%q is no position", position)
	}
	if !packed {
		return place{sequence, 1 << 30}, nil
	}
	n, err := strconv.Atoi(index)
	return place{sequence, n}, err
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(len(p.sequence), len(o.sequence)), cmp.Compare(p.sequence, o.sequence), cmp.Compare(p.index, o.index))
}

// uncovered returns how many records up to a position of a lease have no effect, although a consumer says that they are
// processed.
func (l *ledger) uncovered(lease, position string, done func(digest) bool) (missing int, err error) {
	at, err := parse(position)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sound := true // everything so far
	for _, e := range l.entries[lease][l.checked[lease]:] {
		if at.compare(place{e.sequence, 0}) < 0 {
			break
		}
		for _, r := range e.records {
			switch {
			case at.compare(place{e.sequence, r.index}) < 0:
				sound = false
			case !done(r.digest):
				missing++
			}
		}
		if sound = sound && missing == 0; sound {
			l.checked[lease]++
		}
	}
	return missing, nil
}

// add notes an entry.
func (l *ledger) add(lease string, e entry) {
	l.entries[lease] = append(l.entries[lease], e)
}

// record notes a record, and returns its number.
func (l *ledger) record(topic, key string, d func(number int) digest) int {
	at := topic + "/" + key
	n := l.next[at]
	l.next[at]++
	l.puts = append(l.puts, put{topic, key, n, d(n)})
	return n
}

// leases returns the leases in which something was put.
func (l *ledger) leases() (all []string) {
	for name := range l.entries {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
