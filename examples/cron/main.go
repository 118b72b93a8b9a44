// Cron runs a scheduled job on one of several hosts: one run at a time, and no host that
// everything hangs on.
//
//	go run ./examples/cron
//
// Every job is a shard, and the time it was last run for is the checkpoint. Three hosts
// have one job between them. One is cut off in the middle of a run; another takes the job
// over and does that run again, and what the first one brings too late is refused. Then
// all hosts are down for a while; what was missed is caught up once.
//
// cron.go is all there is to it.
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
	takes  = 200 * time.Millisecond // a run
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

// A site is where the hosts are, and where the reports go that the job makes.
type site struct {
	out     *log.Logger
	store   memstore.Store
	reports memstore.Register
	hosts   []*host

	cut     atomic.Bool   // the next run's host is to be cut off
	off     chan Run      // that is it
	wake    chan struct{} // closed when it goes on
	refused chan error    // what came of it
	made    chan Run      // every other
}

// A host is one machine.
type host struct {
	name string
	link *storetest.Link
	stop context.CancelFunc
	gone chan error
}

func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*period, errors.New("the job is not run"))
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

// takeover: a run outlives its lease.
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

// outage: nobody is there for three times of the schedule.
func (s *site) outage(ctx context.Context) error {
	s.out.Println("all hosts stop, and nobody is there for a while")
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
		return fmt.Errorf("hosts came back at %v; the runs were %v and %v", began, caughtUp, after)
	}
	s.out.Printf("of what was missed only %s was run for, once", caughtUp.Due.Format(clock))
	return nil
}

// next waits for what comes.
func next[T any](ctx context.Context, from <-chan T) (v T, err error) {
	select {
	case v = <-from:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// report is the job. A report is written under the fence.
func (s *site) report(ctx context.Context, h *host, r Run) error {
	due := r.Due.Format(clock)
	cut := s.cut.CompareAndSwap(true, false)
	if cut {
		s.out.Printf("  %s makes the report of %s, and is cut off", r.Host, due)
		h.link.Silence()
		s.off <- r
		<-s.wake // and takes its time
	} else if _, err := next(ctx, time.After(takes)); err != nil {
		return err
	}
	// A real job passes its context on. One that was paused here would not have it ended yet.
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

// every is the schedule: the full seconds.
func every(after time.Time) time.Time { return after.Truncate(period).Add(period) }

func (s *site) start(ctx context.Context, name string) {
	h := &host{name: name, link: storetest.NewLink(&s.store), gone: make(chan error, 1)}
	ctx, h.stop = context.WithCancel(ctx)
	s.hosts = append(s.hosts, h)
	report := Job{Name: "report", Next: every, Run: func(ctx context.Context, r Run) error { return s.report(ctx, h, r) }}
	go func() { h.gone <- Serve(ctx, h.link, name, ttl, report) }()
}

// stop stops all hosts.
func (s *site) stop() (err error) {
	for _, h := range s.hosts {
		h.stop()
	}
	for _, h := range s.hosts {
		err = errors.Join(err, <-h.gone)
	}
	s.hosts = nil
	return err
}
