// Cron runs a scheduled job on one of several hosts: one run at a time, without a single
// point of failure.
//
//	go run ./examples/cron
//
// Each job is a shard, and its checkpoint is the scheduled time of the last run. Three hosts
// share one job. One host is cut off from the table in the middle of a run; another host claims
// the job and repeats that run, and the late report of the first host is refused. Then all
// hosts are down for a while, and the missed times are caught up with one run.
//
// cron.go contains the whole implementation.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

const (
	period = time.Second
	takes  = 200 * time.Millisecond // the duration of a run
	ttl    = 500 * time.Millisecond // the default is 10 s
	clock  = "15:04:05"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

// A site is the state of this example: the hosts, and the register to which the job writes.
type site struct {
	out     *log.Logger
	store   memstore.Store
	reports memstore.Register
	hosts   []*host

	cut     atomic.Bool   // cut off the host of the next run
	off     chan Run      // receives the run whose host was cut off
	wake    chan struct{} // closed when that run may continue
	refused chan error    // receives the result of that run's late write
	made    chan Run      // receives all other runs
}

// A host is one machine.
type host struct {
	name  string
	link  *storetest.Link
	stop  context.CancelFunc
	ended chan error
}

func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*period, errors.New("the job does not run"))
	defer cancel()
	s := &site{
		out: log.New(out, "", 0),
		off: make(chan Run, 1), wake: make(chan struct{}), refused: make(chan error, 1), made: make(chan Run, 16),
	}
	wake := sync.OnceFunc(func() { close(s.wake) })
	defer func() {
		wake()
		err = errors.Join(err, s.stop())
	}()
	if err := s.takeover(ctx, wake); err != nil {
		return err
	}
	return s.outage(ctx)
}

// takeover plays a run that outlives its lease.
func (s *site) takeover(ctx context.Context, wake func()) error {
	for _, name := range []string{"one", "two", "three"} {
		s.start(ctx, name)
	}
	for range 2 {
		if _, err := next(ctx, s.made); err != nil {
			return err
		}
	}
	s.cut.Store(true)
	cut, err := next(ctx, s.off)
	if err != nil {
		return err
	}
	again, err := next(ctx, s.made)
	if err != nil {
		return err
	}
	if again.Host == cut.Host || !again.Due.Equal(cut.Due) {
		return fmt.Errorf("the run that was cut off is %v, the next is %v", cut, again)
	}
	wake()
	if late, err := next(ctx, s.refused); err != nil || !errors.Is(late, checkpoint.ErrStale) {
		return fmt.Errorf("a late report was not refused: %v", errors.Join(late, err))
	}
	return nil
}

// outage plays an outage of all hosts over three times of the schedule.
func (s *site) outage(ctx context.Context) error {
	s.out.Println("all hosts stop, and none runs for a while")
	if err := s.stop(); err != nil {
		return err
	}
	for len(s.made) > 0 {
		<-s.made
	}
	select {
	case <-time.After(3*period + period/2):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	began := time.Now()
	s.start(ctx, "four")
	caughtUp, err := next(ctx, s.made)
	if err != nil {
		return err
	}
	after, err := next(ctx, s.made)
	if err != nil {
		return err
	}
	if !caughtUp.Due.Equal(began.Truncate(period)) || !after.Due.Equal(caughtUp.Due.Add(period)) {
		return fmt.Errorf("a host started again at %v; the runs were %v and %v", began, caughtUp, after)
	}
	s.out.Printf("of the missed times the job ran only for the latest, %s", caughtUp.Due.Format(clock))
	return nil
}

// next waits for the next value from a channel, or for the end of ctx.
func next[T any](ctx context.Context, from <-chan T) (v T, err error) {
	select {
	case v = <-from:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// report is the Run of the job. It writes a report under the fence of the run.
func (s *site) report(ctx context.Context, h *host, r Run) error {
	due := r.Due.Format(clock)
	cut := s.cut.CompareAndSwap(true, false)
	if cut {
		s.out.Printf("  %s makes the report of %s, and is cut off", r.Host, due)
		h.link.Silence()
		s.off <- r
		<-s.wake // until another host has made the report
	} else if _, err := next(ctx, time.After(takes)); err != nil {
		return err
	}
	// A real job passes ctx. WithoutCancel simulates a process that was paused here: when it
	// wakes up, its ctx has not ended yet.
	err := s.reports.Put(context.WithoutCancel(ctx), "report", r.Fence, due)
	if cut {
		s.out.Printf("  %s has made the report of %s, too late: %v", r.Host, due, err)
		s.refused <- err
	}
	if cut || err != nil {
		return err
	}
	s.out.Printf("  %s has made the report of %s", r.Host, due)
	s.made <- r
	return nil
}

// every is the schedule: each full second.
func every(after time.Time) time.Time { return after.Truncate(period).Add(period) }

func (s *site) start(ctx context.Context, name string) {
	h := &host{name: name, link: storetest.NewLink(&s.store), ended: make(chan error, 1)}
	ctx, h.stop = context.WithCancel(ctx)
	s.hosts = append(s.hosts, h)
	report := Job{Name: "report", Next: every, Run: func(ctx context.Context, r Run) error { return s.report(ctx, h, r) }}
	go func() { h.ended <- Serve(ctx, h.link, name, ttl, report) }()
}

// stop stops all hosts.
func (s *site) stop() (err error) {
	for _, h := range s.hosts {
		h.stop()
	}
	for _, h := range s.hosts {
		err = errors.Join(err, <-h.ended)
	}
	s.hosts = nil
	return err
}
