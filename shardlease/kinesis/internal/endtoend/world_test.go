package endtoend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// settings are the sizes and times of a run.
type settings struct {
	records int
	most    int           // bytes of the largest record
	lasts   time.Duration // how long records are put, unless something takes longer
	ttl     time.Duration // the lease time
	idle    time.Duration // between two reads of a shard without new records
	settle  time.Duration // how long nothing may change before all is processed
	seed    uint64
	read    func(*kinesis.Config) // sets how consumers read
}

const group = "billing"

// A world is a fleet with its streams, table and sink.
type world struct {
	*testing.T
	settings
	*ledger
	handoff   rebalance.Mode // of members that start now
	begun     time.Time
	store     *memstore.Store
	sink      *sink
	faults    *faults
	topics    []*topic
	dial      func(*member) *awskinesis.Client
	members   []*member // that are neither killed nor stopped
	everybody []*member

	restarts atomic.Int64 // consumers that could not begin
	allowed  atomic.Int64 // records that may be put now

	dice   sync.Mutex
	chance *rand.Rand
}

func newWorld(t *testing.T, s settings, handoff rebalance.Mode) *world {
	return &world{
		T: t, settings: s, ledger: newLedger(), handoff: handoff, begun: time.Now(), store: new(memstore.Store), sink: newSink(),
		chance: rand.New(rand.NewPCG(s.seed, 1)),
		faults: &faults{
			every: map[string]int{"DescribeStreamSummary": 2, "ListShards": 5, "GetShardIterator": 3, "SubscribeToShard": 2, "": 31},
			late:  time.Second, requests: map[string]int{}, had: map[string]int{},
		},
	}
}

// random returns a number from 0 to below n.
func (w *world) random(n int) int {
	w.dice.Lock()
	defer w.dice.Unlock()
	return w.chance.IntN(n)
}

// chances returns a source of chance of its own, for one goroutine.
func (w *world) chances(n uint64) (*rand.Rand, *rand.ChaCha8) {
	source := rand.NewChaCha8([32]byte{byte(n), byte(w.seed), byte(w.seed >> 8), byte(w.seed >> 16), byte(w.seed >> 24), byte(w.seed >> 32)})
	return rand.New(rand.NewPCG(w.seed, n)), source
}

func (w *world) step(what string) {
	w.Helper()
	w.Logf("%6.1f s: %s", time.Since(w.begun).Seconds(), what)
}

// play is a run from its beginning to its end.
func (w *world) play() {
	for range 3 {
		w.enter()
	}
	p := &producer{world: w}
	p.chance, p.source = w.chances(2)
	chance, _ := w.chances(3)
	put := make(chan struct{})
	go func() { defer close(put); p.run() }()
	steps := []func(*rand.Rand){w.kills, w.splits, w.merges, w.splitsTwice, w.freezes, w.freezes, w.troubles, w.deploys, w.deploys, w.deploys}
	chance.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for i, do := range steps {
		w.allowed.Store(int64(w.records * (i + 2) / (len(steps) + 2)))
		pause(w.Context(), time.Duration(chance.Int64N(int64(w.lasts)/int64(len(steps)))))
		do(chance)
	}
	w.allowed.Store(int64(w.records))
	<-put
	w.step("all records are put")
	w.settles()
	w.faults.stop()
	for len(w.members) > 0 {
		w.members[0].stop()
	}
	for _, m := range w.everybody {
		<-m.ended
	}
	w.verdict()
}

func (w *world) any(chance *rand.Rand) *member { return w.members[chance.IntN(len(w.members))] }

// leave notes that a member leaves the fleet.
func (m *member) leave() {
	m.members = slices.DeleteFunc(m.members, func(other *member) bool { return other == m })
}

func (w *world) kills(chance *rand.Rand) {
	w.step("one is killed")
	w.any(chance).kill()
	pause(w.Context(), time.Duration(chance.Int64N(int64(w.ttl))))
	w.enter()
}

// freezes freezes a member in the middle of a record until it was replaced. Then it goes on. While there is nothing to process,
// it lets more records be put.
func (w *world) freezes(chance *rand.Rand) {
	for range 10 {
		m := w.any(chance)
		had := len(m.frozen())
		thaw := m.freeze()
		pause(w.Context(), 2*time.Second)
		frozen := m.frozen()[had:]
		if len(frozen) == 0 {
			thaw()
			w.allowed.Store(min(w.allowed.Load()+10, int64(w.records)))
			continue
		}
		w.step(fmt.Sprintf("one is frozen in %d calls, and replaced", len(frozen)))
		pause(w.Context(), time.Duration(chance.Int64N(int64(3*w.ttl))))
		for until := time.Now().Add(20 * w.ttl); !w.sink.replaced(frozen) && time.Now().Before(until); {
			pause(w.Context(), 100*time.Millisecond)
		}
		thaw()
		w.step("it wakes up")
		return
	}
}

// deploys replaces all members, one after the other, by members with the other handoff mode.
func (w *world) deploys(chance *rand.Rand) {
	if w.handoff == rebalance.Eager {
		w.handoff = rebalance.Cooperative
	} else {
		w.handoff = rebalance.Eager
	}
	w.step(fmt.Sprint("a deploy begins, ", w.handoff))
	for _, old := range slices.Clone(w.members) {
		w.enter()
		pause(w.Context(), time.Duration(chance.Int64N(int64(2*w.ttl))))
		old.stop()
	}
}

// troubles loses the answers of the table for one member, and delays those for another.
func (w *world) troubles(chance *rand.Rand) {
	w.step("the table answers one late, and loses the answers of another")
	first, second := w.any(chance), w.any(chance)
	first.link.Delay(w.ttl / 10)
	second.link.LoseAnswers()
	pause(w.Context(), w.ttl/2)
	second.link.Heal()
	first.link.Delay(0)
}

func (w *world) splits(chance *rand.Rand) {
	w.reshard(func(t *topic) {
		o := t.open[chance.IntN(len(t.open))]
		w.step(fmt.Sprintf("%s of %s is split", o.name, t.name))
		t.split(o)
	}, chance)
}

// splitsTwice also splits a new shard at once, which ends without a record.
func (w *world) splitsTwice(chance *rand.Rand) {
	w.reshard(func(t *topic) {
		o := t.open[chance.IntN(len(t.open))]
		w.step(fmt.Sprintf("%s of %s is split twice", o.name, t.name))
		t.split(o)
		t.split(t.of(o.from))
	}, chance)
}

func (w *world) merges(chance *rand.Rand) {
	w.reshard(func(t *topic) {
		i := chance.IntN(len(t.open) - 1)
		w.step(fmt.Sprintf("%s and %s of %s are merged", t.open[i].name, t.open[i+1].name, t.name))
		t.merge(i)
	}, chance)
}

// reshard changes the shards of one topic while no record is put.
func (w *world) reshard(change func(*topic), chance *rand.Rand) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	change(w.topics[chance.IntN(3)%len(w.topics)])
}

// covered notes a checkpoint in front of which a record has no effect.
func (w *world) covered(row lease.Row) {
	missing, err := w.uncovered(row.Shard, row.Checkpoint.Position, w.sink.has)
	if err != nil || missing > 0 {
		w.Errorf("shard %s: %d records up to the checkpoint %s have no effect; %v", row.Shard, missing, row.Checkpoint.Position, err)
	}
}

// settles waits until everything is processed, and each kind of fault has happened. It does not wait longer if nothing
// changes.
func (w *world) settles() {
	last, since := "", time.Now()
	for !w.Failed() {
		h := w.history()
		v := verdict{}
		h.judgeRows(v)
		unseen := w.faults.unseen()
		if len(h.effects) >= len(h.puts) && len(v) == 0 && len(unseen) == 0 {
			break
		}
		if now := fmt.Sprint(len(h.effects), v, unseen); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > w.settle || !pause(w.Context(), time.Second) {
			break
		}
	}
	if unseen := w.faults.unseen(); len(unseen) > 0 {
		w.Errorf("not all faults have happened: %v", unseen)
	}
	w.step("the last members stop")
}

func (w *world) history() history {
	h := history{ledger: w.ledger, unordered: map[string]bool{}, shards: map[string]shard{}, rows: map[string]lease.Row{}}
	for _, t := range w.topics {
		h.unordered[t.name] = t.auto
		for name, s := range t.listed() {
			h.shards[name] = s
		}
	}
	for record, err := range w.store.List(w.Context(), lease.Query{Group: group, Kind: lease.KindLease}) {
		if row, ok := record.(lease.Row); ok && err == nil {
			h.rows[row.Shard] = row
		}
	}
	for _, m := range w.everybody {
		m.mu.Lock()
		for _, c := range m.consumers {
			h.left += int(c.Stats().Total.Foreign)
		}
		m.mu.Unlock()
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	h.effects = w.sink.effects
	return h
}

// verdict judges the run.
func (w *world) verdict() {
	h := w.history()
	if v := judge(h); len(v) > 0 {
		w.Error(v)
	}
	for name, row := range h.rows {
		if row.Owner.Incarnation != "" {
			w.Errorf("%s is held by %s", name, row.Owner.Name)
		}
	}
	w.Logf("%d records in %d shards, %d effects; %d came again, %d were refused; %d packed records of other shards; %d restarts; seed %d",
		len(h.puts), len(h.shards), len(h.effects), w.sink.repeats, w.sink.stale, h.foreign, w.restarts.Load(), w.seed)
	if w.sink.repeats == 0 || w.sink.stale == 0 || h.foreign == 0 || w.restarts.Load() == 0 {
		w.Error("the run should see each of these")
	}
}
