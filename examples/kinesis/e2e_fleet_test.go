//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/examples/kinesis/journal"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// put puts the records, round by round.
func (e *world) put() {
	for round := range *rounds {
		next := time.After(*spread / time.Duration(*rounds))
		var entries []types.PutRecordsRequestEntry
		for _, k := range e.keys {
			entries = append(entries, types.PutRecordsRequestEntry{PartitionKey: aws.String(k.name), Data: dataOf(k, round)})
		}
		// Each key is in a round once, so entries that were refused may be put again without
		// changing the order of a key.
		for len(entries) > 0 && e.ctx.Err() == nil {
			batch := entries[:min(100, len(entries))]
			out, err := e.kinesis.PutRecords(e.ctx, &kinesis.PutRecordsInput{StreamName: &e.name, Records: batch})
			if err != nil {
				e.Errorf("put: %v", err)
				return
			}
			entries = entries[len(batch):]
			for i, result := range out.Records {
				if result.ErrorCode != nil {
					entries = append(entries, batch[i])
				}
			}
		}
		<-next
	}
}

// dataOf returns one record, or several that are packed.
func dataOf(k key, round int) []byte {
	if k.each == 1 {
		return k.payload(round)
	}
	records := make([]kpl.Record, k.each)
	for i := range records {
		records[i] = kpl.Record{Key: k.name, Data: string(k.payload(round*k.each + i))}
	}
	return kpl.Pack(records...)
}

// A fleet is the three running consumer processes, and those that ran before.
type fleet struct {
	*world
	mode    rebalance.Mode
	started []*worker
	slots   [3]*worker
}

func (e *world) newFleet(mode rebalance.Mode) *fleet {
	f := &fleet{world: e, mode: mode}
	e.Cleanup(f.end)
	for i := range f.slots {
		f.slots[i] = f.enter()
	}
	f.whole()
	return f
}

// A worker is one consumer, including a platform that restarts it when it ends by itself.
type worker struct {
	name    string
	kinesis string // the address of its Kinesis endpoint
	done    chan struct{}

	mu      sync.Mutex
	cmd     *exec.Cmd
	leaving bool  // it must not be restarted
	result  error // the result of the last process
	counts  map[string]int64
}

// enter starts a worker.
func (f *fleet) enter() *worker {
	f.Helper()
	p := &worker{name: fmt.Sprintf("consumer-%d", len(f.started)), kinesis: f.proxy.URL, done: make(chan struct{}), counts: map[string]int64{}}
	args := []string{"-stream", f.name, "-group", f.name, "-name", p.name, "-leases", f.table("leases"),
		"-journal", f.table("journal"), "-handoff", f.mode.String(), "-start", "trim-horizon", "-ttl", ttl.String(), "-poll", "5s"}
	log, err := os.Create(filepath.Join(f.ArtifactDir(), p.name+".log"))
	f.must(err)
	f.started = append(f.started, p)
	go func() {
		defer close(p.done)
		defer log.Close()
		for p.live(args, log) {
			p.count("restarted", 1)
		}
	}()
	return p
}

// live runs one process, and reports whether the platform must start another one.
func (p *worker) live(args []string, log io.Writer) (again bool) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), workerEnv+"=1", "AWS_ENDPOINT_URL_KINESIS="+p.kinesis)
	cmd.SysProcAttr = leash()
	out, err := cmd.StderrPipe()
	p.mu.Lock()
	if err == nil && !p.leaving {
		err = cmd.Start()
	}
	p.cmd, p.result = cmd, err
	p.mu.Unlock()
	if cmd.Process == nil {
		return false
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		_, _ = fmt.Fprintln(log, lines.Text())
		p.heard(lines.Bytes())
	}
	err = cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result = err
	return !p.leaving
}

// heard counts the log messages of a process. Messages of the SDK are no JSON.
func (p *worker) heard(text []byte) {
	line := struct {
		Msg                string
		Kept, Known, Stale int64
	}{}
	if json.Unmarshal(text, &line) == nil {
		p.count(line.Msg, 1)
		p.count("kept", line.Kept)
		p.count("known", line.Known)
		p.count("stale", line.Stale)
	}
}

func (p *worker) count(what string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[what] += n
}

// signal sends a signal under the lock, and not to a process that has not started. A process
// that is stopped or killed is not restarted.
func (p *worker) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = p.leaving || s == syscall.SIGTERM || s == syscall.SIGKILL
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// rows returns the lease rows, and the number of shards that each worker with a seat holds.
func (f *fleet) rows() (rows []lease.Row, held map[string]int) {
	s := shardlease.Supervisor{Store: f.leases, Group: f.name}
	seats, err := s.Workers(f.ctx)
	if err != nil {
		return nil, nil
	}
	held = map[string]int{}
	alive := map[lease.Incarnation]bool{}
	for _, seat := range seats {
		held[seat.Name], alive[seat.Incarnation] = 0, true
	}
	rows, _ = s.List(f.ctx)
	for _, row := range rows {
		if alive[row.Owner.Incarnation] {
			held[row.Owner.Name]++
		}
	}
	return rows, held
}

// whole waits until the three workers, and no others, hold all shards.
func (f *fleet) whole() {
	f.Helper()
	f.until("for the fleet to hold all shards", func() bool {
		rows, held := f.rows()
		all := len(rows) >= 8
		for _, row := range rows {
			all = all && (row.Finished || held[row.Owner.Name] > 0)
		}
		for _, p := range f.slots {
			all = all && held[p.name] > 0
		}
		return all && len(held) == len(f.slots)
	})
}

// busy waits until the sink has this many rounds, so that the next action meets a busy fleet.
func (f *fleet) busy(rounds int) {
	f.Helper()
	f.until("for the first records to be in the sink", func() bool {
		k := f.keys[len(f.keys)-1]
		effects, err := f.outcome.Effects(f.ctx, k.name)
		return err == nil && len(effects) >= rounds*k.each
	})
}

// resharded waits until this many shards are finished, and their children are held.
func (f *fleet) resharded(finished int) {
	f.Helper()
	f.until("for the parents to be finished", func() bool {
		n := 0
		rows, _ := f.rows()
		for _, row := range rows {
			if row.Finished {
				n++
			}
		}
		return n == finished && len(rows) == 8+3
	})
	f.whole()
}

// deploy replaces the workers one after the other; each new one starts before the old one stops.
func (f *fleet) deploy() {
	f.Helper()
	for i, old := range f.slots {
		f.slots[i] = f.enter()
		f.until("for "+f.slots[i].name+" to hold shards", func() bool {
			_, held := f.rows()
			return held[f.slots[i].name] > 0
		})
		f.leave(old)
	}
	f.whole()
}

// leave stops a process by a graceful shutdown.
func (f *fleet) leave(p *worker) {
	f.Helper()
	p.signal(syscall.SIGTERM)
	f.until("for "+p.name+" to stop", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	if p.result != nil {
		f.Errorf("%s stops with %v", p.name, p.result)
	}
}

// freeze stops a process with SIGSTOP, and continues it when the other workers hold all its
// shards. The process then has to find out that it was replaced. It may find out before it sends
// a write, so the writes that it could send are sent here too.
func (f *fleet) freeze(p *worker) {
	f.Helper()
	p.signal(syscall.SIGSTOP)
	rows, _ := f.rows()
	f.until("for "+p.name+" to be replaced", func() bool {
		rows, held := f.rows()
		_, there := held[p.name]
		for _, row := range rows {
			there = there || row.Owner.Name == p.name
		}
		return held != nil && !there
	})
	f.fenced(p, rows)
	p.signal(syscall.SIGCONT)
	f.whole()
}

// fenced writes to the journal as a replaced process would: under the holds that it had. The
// fence must refuse each write.
func (f *fleet) fenced(p *worker, rows []lease.Row) {
	f.Helper()
	sink := &journal.Journal{Client: f.db, Table: f.table("journal"), Leases: f.leases, Stream: f.name, Group: f.name}
	tried := 0
	for _, row := range rows {
		if row.Owner.Name != p.name {
			continue
		}
		tried++
		h := lease.Hold{Key: row.Key(), Incarnation: row.Owner.Incarnation, Generation: row.Generation, Order: stream.Order}
		late := consumer.Effect{Record: stream.Record{Shard: row.Shard, Sequence: "1", Key: "late"}, Value: []byte("late")}
		if err := sink.Write(f.ctx, h, []consumer.Effect{late}); !errors.Is(err, checkpoint.ErrStale) {
			f.Errorf("%s was replaced, and its write to %s: %v", p.name, row.Shard, err)
		}
	}
	if _, _, stale := sink.Stats(); tried == 0 || stale != int64(tried) {
		f.Errorf("%s was replaced: %d of %d writes fenced", p.name, stale, tried)
	}
}

// caughtUp waits until the sink has all effects.
func (f *fleet) caughtUp() {
	f.Helper()
	behind := f.keys
	f.until("for the last records to be in the sink", func() bool {
		for len(behind) > 0 {
			effects, err := f.outcome.Effects(f.ctx, behind[0].name)
			if err != nil || len(effects) < f.want(behind[0]) {
				return false
			}
			behind = behind[1:]
		}
		return true
	})
}

// stop stops all running processes, and adds up their counts. A killed process has not reported
// its counts.
func (f *fleet) stop() {
	f.Helper()
	for _, p := range f.slots {
		f.leave(p)
	}
	sum := map[string]int64{}
	for _, p := range f.started {
		p.mu.Lock()
		for what, n := range p.counts {
			sum[what] += n
		}
		p.mu.Unlock()
	}
	f.Logf("%d processes, %d restarts; %d tenures; effects kept %d, left out as known %d; writes fenced %d",
		len(f.started), sum["restarted"], sum["started"], sum["kept"], sum["known"], sum["stale"])
	// The killed process had stored effects after its last checkpoint, and has not reported its
	// counts.
	if sum["known"] == 0 || sum["kept"] == 0 || sum["kept"] >= int64(*rounds*4000) {
		f.Errorf("want some known effects, and less than %d kept effects", *rounds*4000)
	}
}

// end kills the processes that a failed test has left running.
func (f *fleet) end() {
	for _, p := range f.started {
		select {
		case <-p.done:
		default:
			p.signal(syscall.SIGKILL)
			<-p.done
		}
	}
	if f.Failed() {
		f.Logf("with -artifacts, the logs of the processes are in %s", f.ArtifactDir())
	}
}
