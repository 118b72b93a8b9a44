//go:build darwin || linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/examples/internal/ledger"
	"github.com/shardlease/shardlease-go/examples/internal/process"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

func TestMain(m *testing.M) { process.Main(m, map[string]func(){"workitems": main}) }

// TestHangingWorkerIsReplaced: a worker is paused while it calls a tool. A supervisor takes the item
// away, another worker continues it, and the tool refuses the call of the first worker when it arrives.
func TestHangingWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"by any run": nil, "by a named run": {"-to", "run-2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the subtests mostly wait for a supervisor
			replaced(t, flags)
		})
	}
}

// replaced plays TestHangingWorkerIsReplaced with more flags for the supervisor.
func replaced(t *testing.T, flags []string) {
	var tool ledger.Ledger
	network := process.NewNetwork(t, &tool, "/a/3")
	leases, file := process.Table(t)
	start := func(role string, flags ...string) *process.Process {
		return process.Start(t, "workitems", slices.Concat([]string{role, "-tool", network.URL}, leases, flags)...)
	}

	one := start("worker", "-task", "run-1", "-items", "a,b")
	old := <-network.Delayed
	one.Pause(file)
	supervisor := start("supervisor", append(flags, "-patience", "1s")...)
	two := start("worker", "-task", "run-2", "-items", "a,b")

	supervisor.Await(`a: taken away from run-1 after step "2" of generation ` + old + `: no step for 1s`)
	two.Await(`a: continues after step 2 under generation \d+; 0 failed attempts`)
	two.Await(`a: done`)
	if status := network.Arrive(); status != http.StatusPreconditionFailed {
		t.Errorf("the late call of the first worker got %d", status)
	}
	if refused := tool.Refused(); len(refused) != 1 || strconv.FormatInt(refused[0].Generation, 10) != old {
		t.Errorf("the tool refused %v, and not generation %s", refused, old)
	}

	// The first worker wakes up, and does not repeat what is done.
	one.Signal(syscall.SIGCONT)
	one.Await("a: stopped under generation " + old + ": .*")
	for _, p := range []*process.Process{one, two} {
		if code := p.Wait(); code != 0 {
			t.Errorf("a worker ended with code %d", code)
		}
	}
	var done []string
	for _, e := range tool.Effects() {
		done = append(done, e.Path)
	}
	slices.Sort(done)
	var want []string
	for _, item := range []string{"a", "b"} {
		for step := range steps {
			want = append(want, fmt.Sprintf("/%s/%d", item, step+1))
		}
	}
	if !slices.Equal(done, want) {
		t.Errorf("done: %q", done)
	}
}

// TestHangingCallLosesItsItem: a call of the tool never returns, although the process of the run lives. The run loses the
// item, and the same run or another one completes it.
func TestHangingCallLosesItsItem(t *testing.T) {
	t.Parallel()
	var tool ledger.Ledger
	var hung atomic.Bool
	network := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a/2" && hung.CompareAndSwap(false, true) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		tool.ServeHTTP(w, r)
	}))
	defer network.Close()
	leases, _ := process.Table(t)
	start := func(task string) *process.Process {
		return process.Start(t, "workitems", append([]string{
			"worker", "-tool", network.URL, "-task", task, "-items", "a", "-ttl", process.Time(1500 * time.Millisecond).String(), "-stall", process.Time(time.Second).String(),
		}, leases...)...)
	}
	one := start("run-1")
	one.Await(`a: continues after step 0 under generation \d+; 0 failed attempts`)
	two := start("run-2")
	one.Await(`a: stopped under generation \d+: .*`)
	for _, p := range []*process.Process{one, two} {
		if code := p.Wait(); code != 0 {
			t.Errorf("a worker ended with code %d", code)
		}
	}
	if done := len(tool.Effects()); done != steps {
		t.Errorf("%d steps are done", done)
	}
}

// TestFailingItemIsQuarantined: the tool fails the second step of an item. Two workers try it three times in all, then
// one of them quarantines it. Both end when the other item is done.
func TestFailingItemIsQuarantined(t *testing.T) {
	t.Parallel()
	var tool ledger.Ledger
	calls := make(chan bool, 100)
	network := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad/2" {
			calls <- true
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		tool.ServeHTTP(w, r)
	}))
	defer network.Close()
	leases, _ := process.Table(t)
	var workers []*process.Process
	for _, task := range []string{"run-1", "run-2"} {
		workers = append(workers, process.Start(t, "workitems", append([]string{
			"worker", "-tool", network.URL, "-task", task, "-items", "bad,good", "-ttl", process.Time(3 * time.Second).String(),
		}, leases...)...))
	}
	for _, w := range workers {
		w.Await("bad: quarantined")
		if code := w.Wait(); code != 0 {
			t.Errorf("a worker ended with code %d", code)
		}
	}
	if n := len(calls); n < 3 || n > 20 { // failures under one name do not suffice
		t.Errorf("the step that fails was tried %d times", n)
	}
}

// TestItemThatKillsItsWorkers: an item kills the process of each run that works on it. The fourth run quarantines the item
// instead of trying it, and completes the other one.
func TestItemThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	const most = 3 // attempts
	var tool ledger.Ledger
	calls := make(chan bool, 100)
	network := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad/1" {
			calls <- true
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		tool.ServeHTTP(w, r)
	}))
	defer network.Close()
	leases, _ := process.Table(t)
	start := func(run int) *process.Process {
		return process.Start(t, "workitems", append([]string{
			"worker", "-tool", network.URL, "-task", fmt.Sprint("run-", run), "-items", "bad,good", "-ttl", process.Time(time.Second).String(),
		}, leases...)...)
	}
	for run := 1; run <= most; run++ {
		p := start(run)
		process.Until(t, fmt.Sprintf("call %d", run), func() bool { return len(calls) == run })
		p.Signal(syscall.SIGKILL)
		p.Wait()
	}
	last := start(most + 1)
	last.Await("bad: quarantined")
	if code := last.Wait(); code != 0 {
		t.Errorf("the last worker ended with code %d", code)
	}
	if n, done := len(calls), len(tool.Effects()); n != most || done != steps {
		t.Errorf("the item was tried %d times, and %d steps of the other one are done", n, done)
	}
}

// TestTakenItemIsReserved: the supervisor reserves an item that it takes away for the run that it names, except if that
// run is the holder, which has just made no progress.
func TestTakenItemIsReserved(t *testing.T) {
	for to, want := range map[string]string{"": "", "run-1": "", "run-2": "run-2"} {
		synctest.Test(t, func(t *testing.T) { reserved(t, to, want) })
	}
}

// reserved takes an item away from run-1 for the run to, and checks for which run the item is reserved.
func reserved(t *testing.T, to, want string) {
	store := new(memstore.Store)
	session, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: group, Name: "run-1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- session.Run(ctx) }()
	if _, err := session.TryAcquire(ctx, "a", shardlease.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	s := supervisor{Supervisor: shardlease.Supervisor{Store: store, Group: group, By: "supervisor"}, patience: time.Minute, to: to}
	held, err := s.List(ctx)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	if err := s.take(ctx, held[0], "a test"); err != nil {
		t.Fatal(err)
	}
	if rows, err := s.List(ctx); err != nil || !rows[0].Owner.IsZero() || rows[0].Reserved.For != want {
		t.Errorf("for %q: %v, %v", to, rows, err)
	}
	stop()
	<-over
}
