package scale

import (
	"cmp"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A setting describes a fleet.
type setting struct {
	shards, workers int
	buckets         int // over how many partitions the lease rows are spread
	mode            rebalance.Mode
	commit          time.Duration // how often each handler commits; 0: never
	rest            time.Duration // how long the fleet has been settled when its story begins
	away            time.Duration // how long an outage lasts
	audits          time.Duration // how often rows are audited; 0: audit
	fresh           bool          // the rows have no history, and the workers short names
	empty           bool          // there are no rows yet
	share           float64       // of a core: what all workers together have of a processor; 0: nothing takes processor time
	request         time.Duration // the processor time of a request
}

// A fleet is many engines and one table, in virtual time.
type fleet struct {
	setting
	virtual.Time
	ttl    time.Duration
	chance *rand.Rand
	table  *table
	meter  *meter
	nodes  []*node
	source engine.Source
	cpu    *processor // nil: nothing takes processor time
	born   int

	serving []int16         // the number of running handlers, by shard
	freed   []time.Duration // when the last handler of a shard ended, by shard
	gaps    int             // how often a shard had no handler
	longest time.Duration   // the longest time for which a shard had no handler
	index   map[string]int
	held    int // the number of shards with a handler
	lost    int
	starts  int
	idle    bool // handlers commit nothing at present
}

func newFleet(s setting) *fleet {
	source := rand.NewPCG(1, 1)
	f := &fleet{
		setting: s, ttl: 10 * time.Second, chance: rand.New(source), meter: newMeter(),
		serving: make([]int16, s.shards), freed: make([]time.Duration, s.shards), index: map[string]int{},
	}
	f.table = newTable(f.meter, s.buckets)
	if s.share > 0 {
		f.cpu = &processor{f: f, share: s.share}
	}
	for i := range s.shards {
		name := fmt.Sprintf("shardId-%012d", i)
		f.index[name] = i
		f.source.Shards = append(f.source.Shards, engine.Shard{Name: name})
	}
	f.source.Complete = true
	if !s.empty {
		f.age(source)
	}
	return f
}

// past is what the rows of the last fleet had been through when it began. It follows from the two numbers, and its writes
// are a fifth of the time of a test of a small fleet, so the next fleet of these numbers begins with it.
var past struct {
	shards, transfers int
	rows              []item
	chance            rand.PCG // afterwards
}

// age puts the rows of the fleet into its table.
func (f *fleet) age(chance *rand.PCG) {
	if past.shards != f.shards || past.transfers != f.transfers() {
		past.shards, past.transfers, past.rows = f.shards, f.transfers(), nil
		for _, shard := range f.source.Shards {
			past.rows = append(past.rows, aged(shard.Name, f))
		}
		past.chance = *chance
	}
	*chance = past.chance
	for _, row := range past.rows {
		f.table.rows.put(row)
	}
}

// transfers returns how often each shard has changed hands before the story.
func (s setting) transfers() int {
	if s.fresh {
		return 0
	}
	return 6
}

// aged returns a row without owner that has changed hands a few times. Its size is the
// usual one of an old row, just below the kilobyte that costs one write unit.
func aged(name string, f *fleet) item {
	key := lease.Key{Group: group, Kind: lease.KindLease, Name: name}
	w, err := protocol.Begin(group, name, nil, workerName(0), f.stamp())
	check(err)
	for range f.transfers() {
		row := w.Next.(lease.Row)
		me := lease.Owner{Name: workerName(f.chance.IntN(100)), Incarnation: lease.Incarnation(f.id())}
		w, err = protocol.Claim(row, me, f.stamp())
		check(err)
		row = w.Next.(lease.Row)
		hold := lease.Hold{Key: key, Incarnation: me.Incarnation, Generation: row.Generation}
		w, err = protocol.Release(row, hold, protocol.End{Reason: lease.ReasonReleased, Mark: checkpoint.Mark{Position: position(1)}}, f.stamp())
		check(err)
	}
	return item{name: name, record: w.Next, size: lease.Encode(w.Next).Size()}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

const group = "orders"

// name returns the name of a worker of this fleet.
func (s setting) name(i int) string {
	if s.fresh {
		return fmt.Sprint("worker-", i)
	}
	return workerName(i)
}

// workerName returns a name of 40 bytes, as long as a host name, a process id and a few
// letters.
func workerName(i int) string {
	return fmt.Sprintf("ip-10-000-%03d-%03d.ec2.internal-12345-abcde", i/1000, i%1000)
}

// position returns a position of 56 digits, as long as those of Kinesis.
func position(n uint64) string { return fmt.Sprintf("%056d", n) }

func (f *fleet) stamp() protocol.Stamp {
	return protocol.Stamp{ID: lease.WriteID(f.id()), At: virtual.Epoch().Add(f.Now())}
}

// id returns 26 letters, as crypto/rand.Text does.
func (f *fleet) id() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], f.chance.Uint64())
	binary.LittleEndian.PutUint64(b[8:], f.chance.Uint64())
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// latency returns the latency of half a request.
func (f *fleet) latency() time.Duration {
	return time.Millisecond + time.Duration(f.chance.Int64N(int64(4*time.Millisecond)))
}

// until advances the time until cond is true, and returns how long that took; negative:
// longer than limit.
func (f *fleet) until(limit time.Duration, cond func() bool) time.Duration {
	took, ok := f.Until(limit, 20*time.Millisecond, cond)
	if !ok {
		return -1
	}
	return max(took, time.Millisecond)
}

// unready returns how many processes have not planned yet: see Worker.Ready.
func (f *fleet) unready() (n int) {
	for _, o := range f.nodes {
		if !o.leaving && !o.Engine.Status().Planned {
			n++
		}
	}
	return n
}

func (f *fleet) allHeld() bool { return f.held == f.shards }

// even reports whether every shard has one handler, and the workers' counts differ by at
// most one.
func (f *fleet) even() bool {
	least, most, sum := f.shards, 0, 0
	for _, n := range f.nodes {
		if n.Up() && !n.leaving {
			k := len(n.Handlers)
			least, most, sum = min(least, k), max(most, k), sum+k
		}
	}
	return f.allHeld() && sum == f.shards && most-least <= 1
}

func (f *fleet) config() engine.Config {
	return engine.Config{
		Group: group, Build: "v1.23.4", Strategy: f.mode.String(), TTL: f.ttl, Drain: 20 * time.Second, Handoff: f.mode,
		MaxMoves: 100, Backoff: time.Second, MaxBackoff: 5 * time.Minute, Audit: cmp.Or(f.audits, audit), Poll: 30 * time.Second,
		Commits: checkpoint.Policy{Every: -1},
	}
}
