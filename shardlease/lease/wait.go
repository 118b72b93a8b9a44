package lease

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
)

// A Wait is a lease by name for which a session waits, as the seat of the session shows it. It is for people and tools:
// no decision depends on it. A session stores its waits with the heartbeat that is due, so a short wait may never be
// stored, and a wait that has ended may stay on the seat for a heartbeat interval.
type Wait struct {
	Lease string
	Task  string    // what the lease is wanted for; empty: the task of the session
	Since time.Time // since when the session has found the lease taken, by its wall clock
}

// MaxWaits is how many waits one seat may have.
const MaxWaits = 10

// Compare orders waits by their beginning, then by lease and task.
func (w Wait) Compare(other Wait) int {
	return cmp.Or(w.Since.Compare(other.Since), strings.Compare(w.Lease, other.Lease), strings.Compare(w.Task, other.Task))
}

// String returns the text in which a seat stores the wait: since when, in milliseconds, the lease and, if there is one,
// the task, with tabs between.
func (w Wait) String() string {
	text := strconv.FormatInt(millis(w.Since), 10) + "\t" + w.Lease
	if w.Task != "" {
		text += "\t" + w.Task
	}
	return text
}

func (w Wait) validate() error {
	return errors.Join(validName("awaited lease", w.Lease), validTask(w.Task))
}

func (s Says) validateWaits() error {
	if len(s.Waits) > MaxWaits {
		return tooMany("waits", len(s.Waits), MaxWaits)
	}
	for i, w := range s.Waits {
		if err := w.validate(); err != nil {
			return err
		}
		if i > 0 && s.Waits[i-1].Compare(w) >= 0 {
			return invalid("waits", "must be sorted and different")
		}
	}
	return nil
}

// waits reads the waits, and ignores those that cannot be read.
func (in *reader) waits() (waits []Wait) {
	for _, text := range in.set(attr.Waits) {
		since, rest, _ := strings.Cut(text, "\t")
		name, task, _ := strings.Cut(rest, "\t")
		at, err := strconv.ParseInt(since, 10, 64)
		if w := (Wait{Lease: name, Task: task, Since: fromMillis(at)}); err == nil && w.validate() == nil {
			waits = append(waits, w)
		}
	}
	slices.SortFunc(waits, Wait.Compare)
	return slices.Compact(waits)
}
