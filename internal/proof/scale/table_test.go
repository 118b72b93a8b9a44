package scale

import (
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Limits that DynamoDB documents.
const (
	writeUnit      = 1 << 10
	readUnit       = 4 << 10
	pageSize       = 1 << 20
	partitionWrite = 1_000 // units per second, as all below
	partitionRead  = 3_000
	tableWrite     = 4_000 // of a new table
	tableRead      = 12_000
)

// A bucket fills at a rate and holds the units of one second. A request is admitted while
// the bucket is not empty, and is charged when its cost is known: that may leave a debt.
type bucket struct {
	rate, level float64
	filled      time.Duration
}

func newBucket(rate float64) bucket { return bucket{rate: rate, level: rate} }

func (b *bucket) open(now time.Duration) bool {
	b.level = min(b.rate, b.level+b.rate*(now-b.filled).Seconds())
	b.filled = now
	return b.level > 0
}

// A limit is the capacity of one part of the table.
type limit struct{ read, write bucket }

func newLimit(read, write float64) *limit {
	return &limit{read: newBucket(read), write: newBucket(write)}
}

// An item is a record and the size of its stored form.
type item struct {
	name   string
	record lease.Record
	size   int
}

// A partition contains the records of one kind, sorted by name. Lease rows are spread over one or
// more buckets, each of which is a partition of DynamoDB.
type partition struct {
	items   []*item
	by      map[string]*item
	bytes   int // the size of all items
	buckets []*limit
}

// A table is the metered store. Its semantics are those of lease.Write.Apply.
type table struct {
	rows, seats, targets *partition // the plan and the wishes are among the seats

	whole   *limit
	meter   *meter
	limited bool // requests over the limits are refused
	silent  bool // no request is answered
}

// newTable returns a table that was created with the throughput for so many buckets of lease rows.
func newTable(m *meter, buckets int) *table {
	whole := newLimit(max(tableRead, float64(buckets)*partitionRead), max(tableWrite, float64(buckets)*partitionWrite))
	return &table{rows: newPartition(buckets), seats: newPartition(1), targets: newPartition(1), meter: m, whole: whole}
}

func newPartition(buckets int) *partition {
	p := &partition{by: map[string]*item{}}
	for range buckets {
		p.buckets = append(p.buckets, newLimit(partitionRead, partitionWrite))
	}
	return p
}

func (t *table) of(k lease.Kind) *partition {
	switch k.Listed() {
	case lease.KindSeat:
		return t.seats
	case lease.KindTarget:
		return t.targets
	}
	return t.rows
}

// bucket returns the number of the bucket of a record, as dynamostore computes it.
func (p *partition) bucket(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(len(p.buckets)))
}

func (p *partition) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(p.items, name, func(it *item, name string) int { return strings.Compare(it.name, name) })
}

// item returns the item of that name, or an empty one if there is none.
func (p *partition) item(name string) item {
	if it := p.by[name]; it != nil {
		return *it
	}
	return item{name: name}
}

// admits reports whether the table has capacity for another request of that kind now.
func (t *table) admits(now time.Duration, l *limit, write bool) bool {
	if !t.limited {
		return true
	}
	here, all := &l.read, &t.whole.read
	if write {
		here, all = &l.write, &t.whole.write
	}
	return here.open(now) && all.open(now)
}

func (t *table) charge(now time.Duration, k lease.Kind, l *limit, write bool, units float64) {
	t.meter.charge(now, k, write, units)
	if !t.limited {
		return
	}
	if write {
		l.write.level -= units
		t.whole.write.level -= units
	} else {
		l.read.level -= units
		t.whole.read.level -= units
	}
}

// write makes one conditional write; ok is false if it was throttled.
func (t *table) write(now time.Duration, w lease.Write) (r lease.Record, err error, ok bool) {
	key := w.Key()
	p := t.of(key.Kind)
	l := p.buckets[p.bucket(key.Name)]
	if !t.admits(now, l, true) {
		t.meter.throttle(now, key.Kind)
		return nil, nil, false
	}
	old := p.item(key.Name)
	next, err := w.Apply(old.record)
	after := item{name: key.Name, record: next}
	if err == nil && next != nil {
		after.size = lease.Encode(next).Size()
	}
	t.charge(now, key.Kind, l, true, float64(max(1, units(max(old.size, after.size), writeUnit))))
	t.meter.wrote(w, err)
	if err != nil {
		return nil, err, true
	}
	p.put(after)
	if row, is := next.(lease.Row); is {
		before, _ := old.record.(lease.Row)
		check(judge.Accepted{Before: before, After: row, Write: w}.Check(checkpoint.Decimal))
	}
	return next, nil, true
}

// get reads one record consistently.
func (t *table) get(now time.Duration, k lease.Key) (lease.Record, bool) {
	p := t.of(k.Kind)
	l := p.buckets[p.bucket(k.Name)]
	if !t.admits(now, l, false) {
		t.meter.throttle(now, k.Kind)
		return nil, false
	}
	found := p.item(k.Name)
	t.charge(now, k.Kind, l, false, float64(max(1, units(found.size, readUnit))))
	t.meter.count("get "+k.Kind.String(), 1)
	return found.record, true
}

// page reads the records of a kind from a name on, as many as fit on a page, or as many as the query
// allows. It returns the name after which the next page begins; "" if there is none. It asks all buckets at
// once, and is refused if one of them refuses.
func (t *table) page(now time.Duration, q lease.Query, from string, into []lease.Record) (records []lease.Record, next string, ok bool) {
	p := t.of(q.Kind)
	if slices.ContainsFunc(p.buckets, func(l *limit) bool { return !t.admits(now, l, false) }) {
		t.meter.throttle(now, q.Kind)
		return into, from, false
	}
	at, found := p.find(from)
	if found {
		at++
	}
	end, costs := p.paged(at, q)
	if q.Kind == lease.KindLease && q.Limit > 0 {
		t.meter.audited(now, costs, from == "")
	}
	for _, it := range p.items[at:end] {
		if row, is := it.record.(lease.Row); !is || !row.Removed {
			into = append(into, it.record)
		}
	}
	if end < len(p.items) {
		next = p.items[end-1].name
	}
	for b, l := range p.buckets {
		t.charge(now, q.Kind, l, false, costs[b])
	}
	return into, next, true
}

// paged returns where the page ends that begins at an item, and what it costs in each bucket.
func (p *partition) paged(at int, q lease.Query) (end int, costs []float64) {
	end, size, sizes := at, 0, make([]int, len(p.buckets))
	for ; end < len(p.items) && (q.Limit == 0 || end-at < q.Limit); end++ {
		it := p.items[end]
		if q.Limit == 0 && size > 0 && size+it.size > pageSize {
			break
		}
		size += it.size
		sizes[p.bucket(it.name)] += it.size
	}
	costs = make([]float64, len(p.buckets))
	if q.Limit > 0 {
		costs = p.shares(at, end, q.Limit)
	} else {
		for b := range costs {
			costs[b] = float64(max(1, units(sizes[b], readUnit)))
		}
	}
	for b := range costs {
		if q.Eventually {
			costs[b] /= 2
		}
	}
	return end, costs
}

// shares returns the units of a page with a limit. As in dynamostore, each bucket is asked for its share, and for
// a few more as long as that was not enough to know which record comes next. Records beyond the page are
// charged too.
func (p *partition) shares(at, end, limit int) (costs []float64) {
	type asked struct{ rows, read, size int }
	share := (limit-1)/len(p.buckets) + 1
	few := max(1, int(math.Sqrt(float64(share))))
	costs = make([]float64, len(p.buckets))
	of, open := make([]asked, len(p.buckets)), len(p.buckets)
	for b := range of {
		of[b].rows = share
	}
	for i := at; i < len(p.items) && open > 0; i++ {
		b := p.bucket(p.items[i].name)
		a := &of[b]
		if a.rows == 0 {
			continue
		}
		a.read++
		a.size += p.items[i].size
		if full := a.read == a.rows; !full && a.size < pageSize {
			continue
		} else if costs[b], a.size = costs[b]+float64(units(a.size, readUnit)), 0; !full {
			continue
		}
		if a.rows += max(few, a.read-share); i >= end-1 {
			a.rows, open = 0, open-1
		}
	}
	for b, a := range of {
		if a.rows > 0 {
			costs[b] += float64(max(1, units(a.size, readUnit)))
		}
	}
	return costs
}

func units(size, unit int) int { return (size + unit - 1) / unit }

// put replaces the item of that name. An item without a record removes it.
func (p *partition) put(it item) {
	old, there := p.by[it.name]
	if there {
		p.bytes -= old.size
	}
	p.bytes += it.size
	at, _ := p.find(it.name)
	switch {
	case it.record != nil && there:
		*old = it
	case it.record != nil:
		p.items = slices.Insert(p.items, at, &it)
		p.by[it.name] = &it
	case there:
		p.items = slices.Delete(p.items, at, at+1)
		delete(p.by, it.name)
	}
}

// typical returns the size of the average record.
func (p *partition) typical() int { return p.bytes / max(len(p.items), 1) }
