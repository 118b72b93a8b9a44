package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		story := `(?s)has made the report of 00:00:01\n.* has made the report of 00:00:02\n  \w+ makes the report of 00:00:03, and is cut off\n` +
			`  \w+ has made the report of 00:00:03\n.* has made the report of 00:00:03, too late: .*stale generation.*` +
			`all hosts stop.*\n  four has made .*of the missed times the job ran only for the latest`
		if !regexp.MustCompile(story).MatchString(out.String()) {
			t.Errorf("unexpected output:\n%s", out.String())
		}
	})
}

// A history records all runs of a job, and reports an error if two overlap.
type history struct {
	t    *testing.T
	mu   sync.Mutex
	now  int
	runs []Run
}

// job returns a job whose runs take a while; fail returns the result of the n-th run.
func (d *history) job(name string, takes, deadline time.Duration, fail func(n int) error) Job {
	return Job{Name: name, Next: every, Deadline: deadline, Run: func(ctx context.Context, r Run) error {
		d.mu.Lock()
		d.now++
		if d.now > 1 {
			d.t.Errorf("%d runs at a time: %v", d.now, r)
		}
		d.runs = append(d.runs, r)
		n := len(d.runs)
		d.mu.Unlock()
		time.Sleep(takes)
		d.mu.Lock()
		d.now--
		d.mu.Unlock()
		return fail(n)
	}}
}

func never(int) error { return nil }

// serve starts a host. The result stops it and waits.
func serve(t *testing.T, store *memstore.Store, host string, jobs ...Job) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, store, host, ttl, jobs...) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestOneRunAtATime: while hosts join and leave, and however long a run takes, no two runs of
// a job overlap, and no job runs twice for the same time.
func TestOneRunAtATime(t *testing.T) {
	for _, takes := range []time.Duration{0, period / 2, 5 * period / 2} {
		synctest.Test(t, func(t *testing.T) {
			var store memstore.Store
			reports, backups := &history{t: t}, &history{t: t}
			jobs := []Job{reports.job("report", takes, 0, never), backups.job("backup", takes, 0, never)}
			var stops []func()
			for _, host := range []string{"one", "two", "three", "four"} {
				stops = append(stops, serve(t, &store, host, jobs...))
				time.Sleep(3*period + period/3)
			}
			for _, stop := range stops {
				stop()
				time.Sleep(period / 2)
			}
			for _, d := range []*history{reports, backups} {
				if len(d.runs) < 5 {
					t.Errorf("runs that take %v: only %d runs", takes, len(d.runs))
				}
				for i := range d.runs[1:] {
					if before, r := d.runs[i], d.runs[i+1]; !r.Due.After(before.Due) || r.Fence < before.Fence {
						t.Errorf("runs that take %v: %v after %v", takes, r, before)
					}
				}
			}
		})
	}
}

// TestMissedTimes: missed times are caught up with one run, or none if the deadline has passed.
func TestMissedTimes(t *testing.T) {
	for deadline, want := range map[time.Duration][]int{0: {1, 5, 6}, period / 4: {1, 6}, period: {1, 5, 6}} {
		synctest.Test(t, func(t *testing.T) {
			var store memstore.Store
			d := &history{t: t}
			began := time.Now()
			stop := serve(t, &store, "one", d.job("report", 0, deadline, never))
			time.Sleep(period + period/2)
			stop()
			time.Sleep(4 * period) // no host runs at 2, 3, 4 and 5
			stop = serve(t, &store, "two", d.job("report", 0, deadline, never))
			time.Sleep(period)
			stop()
			for i, r := range d.runs {
				if len(d.runs) != len(want) || !r.Due.Equal(began.Add(time.Duration(want[i])*period)) {
					t.Errorf("deadline %v: got %v, want those of %v", deadline, d.runs, want)
					break
				}
			}
		})
	}
}

// TestMoveWaitsForARun: a job moves to a new host, but not in the middle of a run, however
// long the run takes.
func TestMoveWaitsForARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		reports, backups := &history{t: t}, &history{t: t}
		const takes = 40 * time.Second // the drain time is 20 s
		jobs := []Job{reports.job("report", takes, 0, never), backups.job("backup", takes, 0, never)}
		stopOne := serve(t, &store, "one", jobs...)
		time.Sleep(period + period/2)
		stopTwo := serve(t, &store, "two", jobs...)
		time.Sleep(3 * takes)
		var all sync.WaitGroup
		all.Go(stopOne)
		all.Go(stopTwo)
		all.Wait()
		hosts := map[string]bool{}
		for _, r := range append(reports.runs, backups.runs...) {
			hosts[r.Host] = true
		}
		if len(hosts) != 2 {
			t.Errorf("no job has moved: %v, %v", reports.runs, backups.runs)
		}
	})
}

// TestFailedRunIsTriedAgain: a failed run is repeated under a higher fence.
func TestFailedRunIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		d := &history{t: t}
		stop := serve(t, &store, "one", d.job("report", 0, 0, func(n int) error {
			if n == 1 {
				return errors.New("no paper")
			}
			return nil
		}))
		time.Sleep(3*period - period/2)
		stop()
		if len(d.runs) < 2 || d.runs[1].Fence <= d.runs[0].Fence {
			t.Errorf("runs: %v", d.runs)
		}
	})
}
