//go:build unix

package processes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// A fleet is a set of worker processes with one table, one proxy, one register and one journal.
type fleet struct {
	*testing.T
	fleetConfig
	journal  *journal
	proxy    *proxy
	register *register
	chance   *rand.Rand
	table    string
	slots    []*process
	spared   int // how many slots are never attacked
	started  []*process
	watching sync.WaitGroup
	over     context.CancelFunc

	kills, stops, cuts map[phase]int
	missed             map[phase]int // ambushes that no process reached
}

// A process is one worker process.
type process struct {
	name   string
	slot   int
	born   time.Time
	cmd    *exec.Cmd
	life   io.WriteCloser // its standard input
	errors bytes.Buffer
	done   chan struct{}

	mu     sync.Mutex
	killed bool // killed by the test
	gone   bool
}

func newFleet(t *testing.T, c fleetConfig) *fleet {
	t.Helper()
	f := &fleet{
		T: t, fleetConfig: c, journal: newJournal(), chance: rand.New(rand.NewPCG(c.seed, 1)), table: local.Table(t), slots: make([]*process, c.workers),
		kills: map[phase]int{}, stops: map[phase]int{}, cuts: map[phase]int{}, missed: map[phase]int{},
	}
	f.journal.record(t)
	f.journal.watchful = c.deathwatch
	f.register = newRegister(t, c.register, f.journal.saw)
	f.proxy = newProxy(t, c, f.journal.saw)
	ctx, over := context.WithCancel(context.Background())
	f.over = over
	f.watching.Go(func() { local.Stalls(ctx, stallTick, f.stalled) })
	t.Cleanup(f.end)
	for slot := range f.slots {
		f.enter(slot)
		if c.workers > 4 && !c.deathwatch { // the workers of a large fleet do not start at the same time
			fixture.Sleep(t, leaseTime()/2)
		}
	}
	return f
}

// stalled reports how late this process was scheduled, which also runs the proxy and the register.
func (f *fleet) stalled(late time.Duration) {
	if late > stallFrom {
		f.journal.saw(entry{Kind: stalled, For: late})
	}
}

// enter starts a worker process. It reuses the name of the earlier process in its slot.
func (f *fleet) enter(slot int) *process {
	f.Helper()
	p := &process{name: fmt.Sprintf("w%d.%d", slot, len(f.started)), slot: slot, born: time.Now(), done: make(chan struct{})}
	var reports *os.File
	p.cmd, p.life, reports = spawn(f.T, "TestProcessWorker", workerEnv, orders{
		Process: p.name, Name: fmt.Sprintf("w%d", slot), Endpoint: f.proxy.URL + "/" + p.name, Table: f.table,
		Register: f.register.address(), Shards: f.shards, Mode: []rebalance.Mode{rebalance.Eager, rebalance.Cooperative}[len(f.started)%2],
		Pause: f.pause, Commit: f.commit, Buckets: f.buckets, Deathwatch: f.deathwatch,
	}, &p.errors)
	f.slots[slot], f.started = p, append(f.started, p)
	f.watching.Go(func() { f.read(p, reports) })
	return p
}

// spawn starts a process of this test binary. Its main function is a test that finds its orders, as JSON, in a variable of
// the environment. The process ends when its standard input ends, and writes its reports to file 3.
func spawn(t testing.TB, main, variable string, orders any, out io.Writer) (cmd *exec.Cmd, life io.WriteCloser, reports *os.File) {
	t.Helper()
	text, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	reports, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], "-test.run=^"+main+"$", "-test.timeout=0", "-process.ttl="+leaseTime().String())
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, leash()
	if life, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	return cmd, life, reports
}

// read passes the reports of a process to the journal until the process is dead, and fails the test if
// the process ended by itself.
func (f *fleet) read(p *process, reports *os.File) {
	defer close(p.done)
	defer reports.Close()
	lines := bufio.NewReader(reports)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // an incomplete line was cut off when the process died
		}
		var e entry
		if json.Unmarshal(line, &e) != nil || e.By != p.name {
			f.Errorf("%s reports %q", p.name, line)
			continue
		}
		f.journal.saw(e)
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	f.journal.exited(p.name)
	if !p.killed && err != nil {
		f.Errorf("%s ended by itself: %v\n%s", p.name, err, p.errors.Bytes())
	}
}

// signal sends a signal under the lock, so that it reaches no other process with the same id.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	p.killed = p.killed || s == syscall.SIGKILL
	_ = p.cmd.Process.Signal(s)
}

// dead records that a process was killed, or has ended. Its last requests may still be in the proxy.
func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed || p.gone
}

// leave makes a process shut down gracefully.
func (p *process) leave() { _ = p.life.Close() }

// end shuts the fleet down gracefully, and kills processes that do not stop.
func (f *fleet) end() {
	for _, p := range f.started {
		p.leave()
		p.signal(syscall.SIGCONT) // a failed test may have left the process stopped
	}
	limit := time.After(patience + 5*leaseTime())
	for _, p := range f.started {
		select {
		case <-p.done:
		case <-limit:
			f.Errorf("%s does not stop", p.name)
			limit = time.After(0)
			p.signal(syscall.SIGKILL)
			<-p.done
		}
	}
	f.over()
	f.watching.Wait()
}

// whole waits until every shard has been processed since now. Effects in the next f.pause do not count, because a dead
// worker may have sent them.
func (f *fleet) whole() {
	f.Helper()
	since := time.Now().Add(f.pause)
	limit := since.Add(patience + 10*leaseTime())
	for tick := time.Tick(20 * time.Millisecond); ; <-tick {
		silent := f.journal.quietSince(f.shards, since)
		if len(silent) == 0 || f.Failed() {
			return
		}
		if time.Now().After(limit) {
			f.Fatalf("no worker processes %v\n%s", silent, f.journal.summary())
		}
	}
}

// An attack is a fault for a worker. If it is early, at a random moment, it happens one commit
// earlier.
type attack struct{ early, now func(p *process) }

// strike attacks a worker: a random one, or the one that reaches a phase of a handoff, just before or
// just after the service has its write.
//
// For a handoff one worker leaves and another joins. Each of them, or a third worker, may be attacked.
func (f *fleet) strike(what attack) (*process, phase) {
	f.Helper()
	if f.chance.IntN(2) == 0 {
		return f.random(what), other
	}
	at, after := phases[f.chance.IntN(len(phases))], f.chance.IntN(2) == 0
	for range 2 { // not every move has every phase, because the modes are mixed
		if p := f.lurk(at, after, what.now); p != nil {
			return p, at
		}
	}
	f.missed[at]++
	return f.random(what), other
}

// lurk waits for a process to reach the phase.
func (f *fleet) lurk(at phase, after bool, what func(p *process)) *process {
	f.Helper()
	a := &ambush{phase: at, after: after, struck: make(chan string, 1)}
	f.cycle()
	processes := map[string]*process{}
	for _, p := range f.started {
		processes[p.name] = p
	}
	a.spares = func(name string) bool { return processes[name].slot < f.spared || processes[name].dead() }
	a.strike = func(name string) { what(processes[name]) }
	f.proxy.ambush.Store(a)
	defer f.proxy.ambush.Store(nil)
	select {
	case name := <-a.struck:
		return processes[name]
	case <-time.After(2 * leaseTime()):
	}
	if !a.taken.CompareAndSwap(false, true) {
		return processes[<-a.struck]
	}
	return nil
}

// victim returns a random slot.
func (f *fleet) victim() int { return f.spared + f.chance.IntN(len(f.slots)-f.spared) }

// cycle makes one worker leave, and another one join.
func (f *fleet) cycle() {
	f.Helper()
	slot := f.victim()
	f.slots[slot].leave()
	f.enter(slot)
}

func (f *fleet) random(what attack) *process {
	p := f.slots[f.victim()]
	if what.early != nil {
		what.early(p)
		fixture.Sleep(f.T, f.commit)
	}
	fixture.Sleep(f.T, time.Duration(f.chance.Int64N(int64(leaseTime()/3))))
	what.now(p)
	return p
}

// kill kills a worker, and starts another in its slot after a while.
func (f *fleet) kill() {
	f.Helper()
	p, at := f.strike(attack{now: func(p *process) {
		p.signal(syscall.SIGKILL)
		f.journal.saw(entry{Kind: killed, By: p.name})
	}})
	f.kills[at]++
	if f.slots[p.slot] == p {
		fixture.Sleep(f.T, time.Duration(f.chance.Int64N(int64(leaseTime()))))
		f.enter(p.slot)
	}
}

// pauseNumber returns how long to stop a worker: too short to be noticed, just within its lease time,
// just longer, or so long that other workers hold all its shards.
func pauseNumber(n int) time.Duration {
	t := leaseTime()
	return []time.Duration{t / 2, t * 95 / 100, t * 12 / 10, 3 * t}[n%4]
}

// stop stops a worker for a while.
func (f *fleet) stop(pause time.Duration) {
	f.Helper()
	p, at := f.strike(f.halt())
	f.stops[at]++
	f.resume(p, pause)
}

// stopOne stops a worker at a random moment.
func (f *fleet) stopOne(pause time.Duration) { f.resume(f.random(f.halt()), pause) }

// halt stops a worker. Commits that it sent shortly before may arrive long after it was replaced.
func (f *fleet) halt() attack {
	keep := func(p *process) { f.proxy.lane(p.name).keep.Store(true) }
	return attack{early: keep, now: func(p *process) {
		keep(p)
		f.journal.saw(entry{Kind: stopped, By: p.name})
		p.signal(syscall.SIGSTOP)
	}}
}

func (f *fleet) resume(p *process, after time.Duration) {
	fixture.Sleep(f.T, after)
	f.proxy.lane(p.name).keep.Store(false)
	p.signal(syscall.SIGCONT)
	f.journal.saw(entry{Kind: continued, By: p.name})
}

// isolate cuts a worker off from the store, but not from the register.
func (f *fleet) isolate(d time.Duration) {
	f.Helper()
	p, at := f.strike(attack{now: func(p *process) {
		f.journal.saw(entry{Kind: cut, By: p.name})
		f.proxy.lane(p.name).cut.Store(true)
	}})
	f.cuts[at]++
	fixture.Sleep(f.T, d)
	f.proxy.lane(p.name).cut.Store(false)
	f.journal.saw(entry{Kind: healed, By: p.name})
}
