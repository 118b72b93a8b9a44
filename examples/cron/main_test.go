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
			`all hosts stop.*\n  four has made .*of what was missed only`
		if !regexp.MustCompile(story).MatchString(out.String()) {
			t.Errorf("another story:\n%s", out.String())
		}
	})
}

// A diary has all runs of a job, and complains of two at a time.
type diary struct {
	t    *testing.T
	mu   sync.Mutex
	now  int
	runs []Run
}

// job takes a while, and fails where it is told to.
func (d *diary) job(name string, takes, deadline time.Duration, fail func(n int) error) Job {
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

// serve starts a host, and gives what stops it and waits.
func serve(t *testing.T, store *memstore.Store, host string, jobs ...Job) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- Serve(ctx, store, host, ttl, jobs...) }()
	return func() {
		cancel()
		if err := <-gone; err != nil {
			t.Error(err)
		}
	}
}

// TestOneRunAtATime: whoever comes and goes, and however long a run takes, no two of a job
// overlap, and no time is run for twice.
func TestOneRunAtATime(t *testing.T) {
	for _, takes := range []time.Duration{0, period / 2, 5 * period / 2} {
		synctest.Test(t, func(t *testing.T) {
			var store memstore.Store
			reports, backups := &diary{t: t}, &diary{t: t}
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
			for _, d := range []*diary{reports, backups} {
				if len(d.runs) < 5 {
					t.Errorf("runs that take %v: only %d", takes, len(d.runs))
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

// TestMissedTimes: they are caught up once, or not at all where they are too late.
func TestMissedTimes(t *testing.T) {
	for deadline, want := range map[time.Duration][]int{0: {1, 5, 6}, period / 4: {1, 6}, period: {1, 5, 6}} {
		synctest.Test(t, func(t *testing.T) {
			var store memstore.Store
			d := &diary{t: t}
			began := time.Now()
			stop := serve(t, &store, "one", d.job("report", 0, deadline, never))
			time.Sleep(period + period/2)
			stop()
			time.Sleep(4 * period) // nobody is there at 2, 3, 4 and 5
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

// TestMoveWaitsForARun: a job moves to a host that has come, but not in the middle of a
// run, however long that takes.
func TestMoveWaitsForARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		reports, backups := &diary{t: t}, &diary{t: t}
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
			t.Errorf("nothing has moved: %v, %v", reports.runs, backups.runs)
		}
	})
}

// TestFailedRunIsTriedAgain: under another fence.
func TestFailedRunIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		d := &diary{t: t}
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
