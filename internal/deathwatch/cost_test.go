//go:build unix

package deathwatch

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// TestCostOfLinks measures what 1,000 quiet links cost the process that watches. The peers run in
// another process. Where the process may open too few files, the test is skipped, except in CI, where it fails.
func TestCostOfLinks(t *testing.T) {
	const links, most = 1000, 10 << 10
	if files := openFiles(); files < 2*links+100 {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the process may open only %d files: raise its limit (ulimit -n) to %d", files, 2*links+100)
		}
		t.Skipf("the process may open only %d files", files)
	}
	_, addresses := startPeers(t, links)
	w := watch(t, nil)
	before := memory()
	for i, address := range addresses { // one at a time, because the machine may be busy
		peer := fmt.Sprintf("p-%d", i)
		w.Watch(peer, address)
		w.expect(t, peer, Confirmed)
	}
	after := memory()
	each := (after.heap - before.heap + after.stacks - before.stacks) / links
	t.Logf("%d bytes per link: %d of heap, %d of stacks", each, (after.heap-before.heap)/links, (after.stacks-before.stacks)/links)
	if each > most && !fixture.UnderRace { // the race detector needs memory of its own for each goroutine
		t.Errorf("%d bytes per link, at most %d are allowed", each, most)
	}

	rest := fixture.Size(400*time.Millisecond, 2*time.Second)
	began := cpu(t)
	w.quiet(t, rest)
	used := cpu(t) - began
	t.Logf("%v of CPU time in %v: %.2f %% of a core", used, rest, 100*used.Seconds()/rest.Seconds())
	if used > rest/100 {
		t.Errorf("%v of CPU time in %v, at most a hundredth is allowed", used, rest)
	}
}

type use struct{ heap, stacks int64 }

// memory returns the memory in use after the garbage is gone. The first collection makes stacks
// shrink that are larger than needed, and the second returns those.
func memory() use {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return use{int64(m.HeapAlloc), int64(m.StackInuse)}
}

// cpu returns the CPU time that the process has used.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// openFiles returns how many files the process may open, after it has raised that as far as it may.
func openFiles() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	r.Cur = r.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r)
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return int(min(uint64(r.Cur), 1<<20))
}
