package processes

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// A recovery is the time from the kill of a worker until all its shards are processed again.
type recovery struct {
	process string
	at      time.Duration
	missing map[string]int64 // shards that are not processed yet, with the generation of the killed worker
	took    time.Duration    // 0: not recovered yet
	mixed   string           // why the figure does not count; empty: it counts
}

// kill begins a recovery.
func (j *journal) kill(e entry) {
	r := &recovery{process: e.By, at: e.at(), missing: map[string]int64{}}
	for name := range j.shards {
		if row := j.judge.Row(name); !row.Owner.IsZero() && j.who(row.Owner.Incarnation) == e.By {
			r.missing[name] = row.Generation
		}
	}
	j.life(e.By).dead = r
	j.kills = append(j.kills, r)
}

// recovered records that a shard is processed again, because it has an effect.
func (j *journal) recovered(e entry) {
	for _, r := range j.kills {
		if died, ok := r.missing[e.Shard]; ok && e.Generation > died {
			delete(r.missing, e.Shard)
			if len(r.missing) == 0 {
				r.took = e.at() - r.at
			}
		}
	}
}

// disturbed records other events in the fleet during a recovery.
func (j *journal) disturbed(r *recovery) {
	for name, l := range j.lives {
		if name == r.process {
			continue
		}
		if d := l.dead; d != nil && d.at < r.at+r.took && (d.took == 0 || d.at+d.took > r.at) && len(d.missing) > 0 {
			r.mixed = "another was killed"
		}
		for _, t := range l.troubles {
			before := t.to != 0 && t.to < r.at-leaseTime()/2 || t.kind == killed
			short := t.kind == seatFault || (t.kind == stalled || t.kind == slow) && t.to-t.from < leaseTime()/4
			if !before && !short && t.from < r.at+r.took {
				r.mixed = "another was " + string(t.kind)
			}
		}
		// Many short stalls can cost a worker its seat too; the journal decides that separately.
		if slices.ContainsFunc(l.lost, r.during) || slices.ContainsFunc(l.evicted, r.during) {
			r.mixed = "another lost its seat"
		}
	}
}

// during reports whether an event happened during the recovery, or so shortly before it that some
// shards were not processed yet.
func (r *recovery) during(at time.Duration) bool {
	return r.at-leaseTime()/2 < at && at < r.at+r.took
}

// recoveries returns the durations of the recoveries that no other event can have delayed.
func (j *journal) recoveries() (clean spread, mixed map[string]int) {
	mixed = map[string]int{}
	for _, r := range j.kills {
		j.disturbed(r)
		switch {
		case r.mixed != "":
			mixed[r.mixed]++
		case len(r.missing) > 0:
			mixed["not recovered at the end"]++
		case r.took == 0:
			mixed["it held nothing"]++
		default:
			clean.add(r.took)
		}
	}
	return clean, mixed
}

// A spread is a set of durations.
type spread []time.Duration

// add adds a duration unless it is zero, which means that there was nothing to measure.
func (s *spread) add(d time.Duration) {
	if d > 0 {
		*s = append(*s, d)
	}
}

func (s spread) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%d: mean %v, p99 %v, max %v", len(s), round(fixture.Mean(s)), round(fixture.Quantile(s, 0.99)), round(fixture.Quantile(s, 1)))
}

// A sample is the heap of a process and its goroutines, except those of handlers, at one time.
type sample struct {
	at         time.Duration
	heap       uint64
	goroutines int
}

// A footprint summarizes the samples in one part of a process's life: the smallest heap, which is what
// remains after a garbage collection, and the median of goroutines.
type footprint struct {
	heap       uint64
	goroutines int
}

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MB, %d", float64(f.heap)/1e6, f.goroutines)
}

func footprintOf(stats []sample) footprint {
	var heap []uint64
	var goroutines []int
	for _, s := range stats {
		heap, goroutines = append(heap, s.heap), append(goroutines, s.goroutines)
	}
	slices.Sort(goroutines)
	return footprint{slices.Min(heap), goroutines[len(goroutines)/2]}
}

// growth returns the footprints of each process that lived for the whole run, in the second quarter
// and in the last.
func (j *journal) growth(whole time.Duration) map[string][2]footprint {
	j.mu.Lock()
	defer j.mu.Unlock()
	grown := map[string][2]footprint{}
	for _, name := range slices.Sorted(maps.Keys(j.lives)) {
		s := j.lives[name].stats
		if n := len(s); n > 8 && s[n-1].at-s[0].at > whole*9/10 {
			grown[name] = [2]footprint{footprintOf(s[n/4 : n/2]), footprintOf(s[n*3/4:])}
		}
	}
	return grown
}

// slowest returns the longest recovery that counts.
func (j *journal) slowest() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	clean, _ := j.recoveries()
	return fixture.Quantile(clean, 1)
}

// accepted returns the number of checkpoints that the table has accepted.
func (j *journal) accepted() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.commits
}
