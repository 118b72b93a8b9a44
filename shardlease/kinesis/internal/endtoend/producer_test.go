package endtoend

import (
	"crypto/md5" // #nosec: it is how Kinesis places keys, and how the KPL checks an entry
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"time"
)

const (
	small     = 2 << 10
	large     = 1 << 20
	largest   = 10 << 20
	magic     = "\xf3\x89\x9a\xc2" // begins an entry with several records
	mostInOne = 8                  // records in an entry
)

// A producer puts records. Only its goroutine uses its source of chance.
type producer struct {
	*world
	chance *rand.Rand
	source *rand.ChaCha8
	made   int  // records
	large  int  // large ones
	whale  bool // the largest one is made
}

// A customer is a partition key of a topic with its hash key.
type customer struct {
	name     string // empty: the record has no key
	place    *big.Int
	explicit bool // the hash key is not that of its name
}

func hashOf(key string) *big.Int {
	sum := md5.Sum([]byte(key))
	return new(big.Int).SetBytes(sum[:])
}

// customer returns one of the keys. Every fifth has an explicit hash key, always the same.
func (p *producer) customer() customer {
	i := p.chance.IntN(max(12, p.records/200))
	c := customer{name: fmt.Sprint("customer-", i)}
	c.place, c.explicit = hashOf(c.name), i%5 == 4
	if c.explicit {
		c.place = hashOf("elsewhere/" + c.name)
	}
	return c
}

// run puts all records, and never more than are allowed.
func (p *producer) run() {
	each := p.lasts / time.Duration(p.records)
	for p.made < p.records {
		before := p.made
		if p.made >= int(p.allowed.Load()) {
			if !pause(p.Context(), 100*time.Millisecond) {
				return
			}
			continue
		}
		p.topic(func(t *topic) {
			switch n := p.chance.IntN(100); {
			case t.auto:
				p.putAnywhere(t)
			case n < 55 || p.due():
				p.putOne(t, p.customer())
			case n < 97:
				p.putSeveral(t)
			default:
				p.putStrangers(t)
			}
		})
		pause(p.Context(), each*time.Duration(p.made-before))
	}
	// The last entry of some shard has no records of its own.
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	for foreign := p.foreign; p.foreign == foreign; {
		p.putStrangers(p.topics[0])
	}
}

// topic calls put for one of the topics, mostly the first, while no shard is split or merged.
func (p *producer) topic(put func(*topic)) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	put(p.topics[p.chance.IntN(3)%len(p.topics)])
}

// due reports whether a large record is next: one of a thousand, and one that is as large as possible.
func (p *producer) due() bool { return p.made >= 1000*p.large+500 || p.largest() }

func (p *producer) largest() bool { return !p.whale && p.made >= p.records*2/5 }

// size returns the size of the next record.
func (p *producer) size(key string) int {
	switch {
	case p.largest():
		p.whale = true
		return p.most - len(key)
	case p.due():
		p.large++
		return large - len(key)
	}
	return 17 + int(float64(small-17-len(key))*p.chance.Float64()*p.chance.Float64())
}

// data makes the next record of a key, and notes it. No two have the same bytes.
func (p *producer) data(t *topic, key string, size int) (data []byte, d digest) {
	p.made++
	data = make([]byte, size)
	_, _ = p.source.Read(data[8:])
	p.record(t.name, key, func(n int) digest {
		binary.BigEndian.PutUint64(data, uint64(n))
		if n%50 == 7 {
			copy(data, magic) // and yet it is no entry with several records
		}
		d = sha256.Sum256(data)
		return d
	})
	return data, d
}

// putOne puts a record in an entry of its own.
func (p *producer) putOne(t *topic, c customer) {
	data, d := p.data(t, c.name, p.size(c.name))
	shard, sequence := t.put(c.place, c.name, data)
	p.add(t.name+"/"+shard, entry{sequence, false, []packed{{0, d}}})
}

// putSeveral puts an entry with records of some keys of one shard. Some entries also have records of other shards, as if
// the shard had been split while they were packed; the producer then puts these again.
func (p *producer) putSeveral(t *topic) {
	first := p.customer()
	in := t.of(first.place)
	strangers := p.chance.IntN(6) == 0
	var e entry
	var pack packer
	var again []func()
	for range 1 + p.chance.IntN(mostInOne) {
		c := first
		if e.records != nil {
			c = p.customer()
		}
		if !in.has(c.place) && !strangers {
			continue
		}
		data, d := p.data(t, c.name, 17+p.chance.IntN(small-64))
		if in.has(c.place) {
			e.records = append(e.records, packed{pack.count, d})
		} else {
			p.foreign++
			again = append(again, func() { p.putAgain(t, c, data, d) })
		}
		pack.add(c, data)
	}
	p.put(t, first, pack, e)
	for _, f := range again {
		f()
	}
}

// putStrangers puts an entry with two records of another shard, and none of its own. Without a second shard it puts an
// ordinary record.
func (p *producer) putStrangers(t *topic) {
	at, c := p.customer(), p.customer()
	if t.of(at.place).has(c.place) {
		p.putOne(t, c)
		return
	}
	var pack packer
	var again []func()
	for range 2 {
		data, d := p.data(t, c.name, 17+p.chance.IntN(small-64))
		pack.add(c, data)
		p.foreign++
		again = append(again, func() { p.putAgain(t, c, data, d) })
	}
	p.put(t, at, pack, entry{})
	for _, f := range again {
		f()
	}
}

// putAgain puts a record again, where it belongs.
func (p *producer) putAgain(t *topic, c customer, data []byte, d digest) {
	var pack packer
	pack.add(c, data)
	p.put(t, c, pack, entry{records: []packed{{0, d}}})
}

// put puts an entry with several records.
func (p *producer) put(t *topic, at customer, pack packer, e entry) {
	shard, sequence := t.put(at.place, at.name, pack.bytes())
	e.sequence, e.packed = sequence, true
	p.add(t.name+"/"+shard, e)
}

// putAnywhere puts a record or an entry with several, with keys or without, in a stream that ignores keys.
func (p *producer) putAnywhere(t *topic) {
	c := p.customer()
	if p.chance.IntN(2) == 0 {
		c.name = ""
	}
	if p.due() || p.chance.IntN(3) > 0 {
		p.putOne(t, c)
		return
	}
	var e entry
	var pack packer
	for i := range 1 + p.chance.IntN(mostInOne) {
		of := p.customer()
		data, d := p.data(t, of.name, 17+p.chance.IntN(small-64))
		pack.add(of, data)
		e.records = append(e.records, packed{i, d})
	}
	p.put(t, c, pack, e)
}

// A packer makes an entry as the Kinesis Producer Library does: protocol buffers with a table of partition keys (field 1), a
// table of explicit hash keys (2) and the records (3). A record has the index of its partition key (1), that of its explicit
// hash key (2), and its data (3).
type packer struct {
	keys, hashes []string
	records      []byte
	count        int
}

func (p *packer) add(c customer, data []byte) {
	record := binary.AppendUvarint([]byte{1 << 3}, index(&p.keys, c.name))
	if c.explicit {
		record = binary.AppendUvarint(append(record, 2<<3), index(&p.hashes, c.place.String()))
	}
	p.records = appendBytes(p.records, 3, appendBytes(record, 3, data))
	p.count++
}

func (p *packer) bytes() []byte {
	var message []byte
	for _, key := range p.keys {
		message = appendBytes(message, 1, []byte(key))
	}
	for _, hash := range p.hashes {
		message = appendBytes(message, 2, []byte(hash))
	}
	message = append(message, p.records...)
	sum := md5.Sum(message)
	return append(append([]byte(magic), message...), sum[:]...)
}

// index returns the index of a text in a table, in which it then is.
func index(table *[]string, text string) uint64 {
	for i, one := range *table {
		if one == text {
			return uint64(i)
		}
	}
	*table = append(*table, text)
	return uint64(len(*table) - 1)
}

// appendBytes appends a field of bytes.
func appendBytes(to []byte, field byte, bytes []byte) []byte {
	return append(binary.AppendUvarint(append(to, field<<3|2), uint64(len(bytes))), bytes...)
}
