package report

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A benchLine is one benchmark: values by unit, each the median of its runs.
type benchLine struct {
	pkg, name string
	values    map[string]float64
}

// benchmarks runs the benchmarks of the module with go test.
func (r *report) benchmarks() {
	out, err := r.goTest(append(slices.Clone(r.plan.bench), "./rebalance", "./memstore", "./shardlease", "./shardlease/lease")...)
	if err != nil {
		r.Fatalf("%v\n%s", err, out)
	}
	if !r.quick {
		// These first start fleets of up to 10,000 shards, which may take too long. The results that
		// they print until then count.
		more, err := r.goTest("-timeout", "3m", "./internal/engine")
		if err != nil {
			r.benchNote = "The benchmarks of internal/engine did not come to their end in 3 minutes; those that did are here."
			r.Log(r.benchNote)
		}
		out += more
	}
	r.bench = parseBench(out)
}

func (r *report) goTest(args ...string) (string, error) {
	command := exec.CommandContext(r.Context(), "go", append([]string{"test", "-run", "^$", "-bench", ".", "-benchmem"}, args...)...)
	command.Dir = "../.."
	out, err := command.CombinedOutput()
	return string(out), err
}

// parseBench reads the format in which go test prints benchmarks.
func parseBench(out string) []benchLine {
	var lines []benchLine
	runs := map[string]map[string][]float64{} // values by package and name, and by unit
	pkg := ""
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "pkg:" {
			pkg = strings.TrimPrefix(fields[1], "github.com/shardlease/shardlease-go/")
		}
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(strings.TrimSuffix(fields[0], "-"+strconv.Itoa(runtime.GOMAXPROCS(0))), "Benchmark")
		key := pkg + " " + name
		if runs[key] == nil {
			runs[key] = map[string][]float64{}
			lines = append(lines, benchLine{pkg, name, map[string]float64{}})
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, _ := strconv.ParseFloat(fields[i], 64)
			runs[key][fields[i+1]] = append(runs[key][fields[i+1]], value)
		}
	}
	for _, l := range lines {
		for unit, values := range runs[l.pkg+" "+l.name] {
			slices.Sort(values)
			l.values[unit] = values[len(values)/2]
		}
	}
	return lines
}

// benchOf returns the benchmark of that name.
func (r *report) benchOf(pkg, name string) benchLine {
	i := slices.IndexFunc(r.bench, func(l benchLine) bool { return l.pkg == pkg && l.name == name })
	if i < 0 {
		r.Errorf("there is no benchmark %s of %s", name, pkg)
		return benchLine{}
	}
	return r.bench[i]
}

// heldMemory is what a held shard costs a process, in bytes and goroutines.
type heldMemory struct{ library, user use }

type use struct{ heap, stack, goroutines float64 }

func (u use) minus(v use) use {
	return use{u.heap - v.heap, u.stack - v.stack, u.goroutines - v.goroutines}
}

func (u use) per(n int) use {
	return use{u.heap / float64(n), u.stack / float64(n), u.goroutines / float64(n)}
}

// used returns the memory in use after a garbage collection.
func used() use {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return use{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// memory compares a worker that holds many shards with the same program without it: a store with the
// same rows, and as many goroutines, each with a context of its own and blocked on it.
func (r *report) memory() {
	names := make([]string, r.plan.held)
	for i := range names {
		names[i] = fmt.Sprintf("shardId-%012d", i)
	}
	r.blocked(names) // the runtime reuses descriptors of goroutines; this call allocates them for both measurements
	before := used()
	held := r.holding(names)
	r.memoryOf.library = held.minus(before).per(len(names))
	before = used()
	r.memoryOf.user = r.blocked(names).minus(before).per(len(names))
}

// TestMemoryOfAHeldShard: the page shows more, and has a bound for heap and stacks together. With so few shards, the
// measurement of stacks is rough.
func TestMemoryOfAHeldShard(t *testing.T) {
	if fixture.UnderRace {
		return // the race detector needs memory of its own
	}
	const most = 2250
	r := &report{T: t, plan: reportPlan{held: 5_000}}
	for range 3 { // on a busy machine, the start may still need memory when it is measured
		r.memory()
		heap := r.memoryOf.library.minus(r.memoryOf.user).heap
		t.Logf("a held shard needs %.0f bytes of heap beyond its handler", heap)
		if heap <= most {
			return
		}
	}
	t.Errorf("a held shard needs more than %d bytes of heap beyond its handler", most)
}

// holding measures a worker that holds all these shards.
func (r *report) holding(names []string) use {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	w, err := shardlease.New(new(memstore.Store), shardlease.Static(names...),
		shardlease.Config{Group: "orders", Name: "a", Handoff: rebalance.Eager})
	if err != nil {
		r.Fatal(err)
	}
	began, done := make(chan struct{}, len(names)), make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
			began <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	for range names {
		<-began
	}
	fixture.Sleep(r.T, 2*time.Second) // the allocations of the start are no longer used
	u := used()
	stop()
	if err := <-done; err != nil {
		r.Error(err)
	}
	return u
}

// blocked measures the same program without a worker.
func (r *report) blocked(names []string) use {
	store := new(memstore.Store)
	write := fixture.Must[lease.Row](r, store)
	owner, done := fixture.Worker("a"), make(chan struct{}, len(names))
	parent, stop := context.WithCancel(r.Context())
	defer stop()
	for _, name := range names {
		row := write(protocol.Begin("orders", name, nil, "a", fixture.Stamp()))
		write(protocol.Claim(row, owner, fixture.Stamp()))
		ctx, cancel := context.WithCancel(parent)
		go func() {
			defer cancel()
			<-ctx.Done()
			done <- struct{}{}
		}()
	}
	fixture.Sleep(r.T, 2*time.Second) // as long as in holding
	u := used()
	stop()
	for range names {
		<-done
	}
	runtime.KeepAlive(store)
	return u
}
