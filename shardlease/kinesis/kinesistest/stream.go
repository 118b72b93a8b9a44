package kinesistest

import (
	"cmp"
	"crypto/md5" // #nosec: it is how Kinesis places keys, and no protection
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// largest is the largest record, and the largest answer of GetRecords.
const largest = 10 << 20

// A Stream is a stream of a server. Set its fields before the first request.
type Stream struct {
	// Redeliver is how many records before its place each read returns again.
	Redeliver int
	// Empty reports whether a read returns nothing although there are records, as reads of
	// Kinesis sometimes do.
	Empty func() bool
	// Omit reports whether listings leave out a shard that exists.
	Omit func(shard string) bool

	server    *Server
	name, arn string
	number    int // how many streams the server had before
	created   time.Time
	deleted   bool
	kept      time.Duration // the retention
	status    types.StreamStatus
	auto      bool   // records are distributed without regard to their keys
	puts      int    // records that were put
	last      uint64 // the highest sequence number
	named     int    // shards with a name of the stream's choice
	shards    []*shard
	consumers []*consumer
}

// A Shard is a shard with its records. Its zero From and To mean all hash keys.
type Shard struct {
	Name     string
	Parents  []string
	From, To string // hash keys
	Records  []Record
	Closed   bool      // its last answer names its children, if it has any
	ClosedAt time.Time // if it is zero, no listing leaves a closed shard out because of its age
}

// A Record is one entry of a shard.
type Record struct {
	Sequence string
	Key      string // empty: the record was put without a key
	Data     []byte
	Arrived  time.Time // zero: reads from any time include the record, and it never expires
}

type shard struct {
	Shard
	from, to *big.Int
	opened   time.Time
	first    uint64   // its first sequence number
	last     uint64   // the sequence number of its last record, which may have expired
	numbers  []uint64 // the sequence numbers of its records
	reads    rate
	lookups  rate
	free     time.Time // Kinesis refuses reads before
}

var hashKeys = new(big.Int).Lsh(big.NewInt(1), 128)

// Create creates a stream with a number of shards, which divide the hash keys evenly. If the server
// has a stream of this name, Create deletes it first. The name can be an ARN, of a stream of another
// account: requests can find it by this ARN only.
//
// A stream without shards gets them with [Stream.Add].
func (s *Server) Create(name string, shards int) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	arn := name
	if !strings.HasPrefix(name, "arn:") {
		arn = "arn:aws:kinesis:" + region + ":" + account + ":stream/" + name
	}
	if old := s.byARN(arn); old != nil {
		old.delete()
	}
	st := &Stream{server: s, name: name, arn: arn, number: s.made, created: time.Now()}
	s.made++
	for i := range shards {
		bound := func(i int) *big.Int {
			n := new(big.Int).Mul(hashKeys, big.NewInt(int64(i)))
			return n.Div(n, big.NewInt(int64(shards)))
		}
		st.open(bound(i), new(big.Int).Sub(bound(i+1), big.NewInt(1)))
	}
	s.streams = append(s.streams, st)
	return st
}

// ARN returns the ARN of the stream.
func (st *Stream) ARN() string { return st.arn }

// Put puts a record in the shard of its key, and returns the shard and the sequence number. An
// empty key is possible with the strategy AUTO only.
func (st *Stream) Put(key string, data []byte) (shard, sequence string) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	sh, sequence, err := st.put(key, "", data)
	if err != nil {
		panic("kinesistest: " + err.Error())
	}
	return sh.Name, sequence
}

// PutTo puts a record in an open shard, whatever its key, and returns the sequence number.
func (st *Stream) PutTo(shard, key string, data []byte) (sequence string) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	return st.store(st.must(shard), key, data)
}

// SetStrategy changes how records are distributed over the shards; it makes the stream an
// on-demand stream. With AUTO keys are ignored and can be left out.
func (st *Stream) SetStrategy(strategy types.RecordDistributionStrategy) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.auto = strategy == types.RecordDistributionStrategyAuto
}

// SetRetention changes how long records stay; at first 24 h.
func (st *Stream) SetRetention(d time.Duration) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.kept = d
}

// SetStatus changes the status of the stream; at first ACTIVE. Requests do not fail because of it.
func (st *Stream) SetStatus(status types.StreamStatus) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.status = status
}

// Add adds shards as they are. A record without a sequence number gets the one after its
// predecessor; the first gets 1.
func (st *Stream) Add(shards ...Shard) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	for _, one := range shards {
		sh := &shard{Shard: one, from: number(cmp.Or(one.From, "0")), to: new(big.Int).Sub(hashKeys, big.NewInt(1)), first: 1}
		if one.To != "" {
			sh.to = number(one.To)
		}
		sh.Records = nil
		next := uint64(1)
		for _, r := range one.Records {
			if r.Sequence != "" {
				next, _ = strconv.ParseUint(r.Sequence, 10, 64)
			}
			r.Sequence = strconv.FormatUint(next, 10)
			sh.Records, sh.numbers = append(sh.Records, r), append(sh.numbers, next)
			st.last, sh.last, next = max(st.last, next), next, next+1
		}
		st.shards = append(st.shards, sh)
	}
}

// Shards returns the shards with the records that they have now, in the order in which they were opened.
func (st *Stream) Shards() []Shard {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.expire()
	var all []Shard
	for _, sh := range st.shards {
		one := sh.Shard
		one.Records = slices.Clone(sh.Records)
		all = append(all, one)
	}
	return all
}

// Split closes an open shard, and opens two children with half of its hash keys each.
func (st *Stream) Split(shard string) (lower, upper string) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	parent := st.must(shard)
	middle := new(big.Int).Add(parent.from, parent.to)
	middle.Rsh(middle, 1)
	a := st.open(parent.from, middle, shard)
	b := st.open(new(big.Int).Add(middle, big.NewInt(1)), parent.to, shard)
	st.close(parent)
	return a.Name, b.Name
}

// Merge closes two open shards whose hash keys are adjacent, and opens their child. It panics if they are not
// adjacent; the two shards that Split returns always are.
func (st *Stream) Merge(a, b string) (child string) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	lower, upper := st.must(a), st.must(b)
	if upper.from.Cmp(lower.from) < 0 {
		lower, upper = upper, lower
	}
	if new(big.Int).Add(lower.to, big.NewInt(1)).Cmp(upper.from) != 0 {
		panic(fmt.Sprintf("kinesistest: shards %s and %s are not adjacent", a, b))
	}
	merged := st.open(lower.from, upper.to, a, b)
	st.close(lower)
	st.close(upper)
	return merged.Name
}

// Forget removes a shard and its records, as Kinesis does when the last record of a closed shard
// has expired.
func (st *Stream) Forget(name string) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.forget(func(sh *shard) bool { return sh.Name == name })
}

// Delete deletes the stream. Its iterators and subscriptions end.
func (st *Stream) Delete() {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.delete()
}

func (st *Stream) delete() {
	st.deleted = true
	for _, c := range st.consumers {
		c.end(missing("stream %s was deleted", st.name))
	}
	st.server.streams = slices.DeleteFunc(st.server.streams, func(other *Stream) bool { return other == st })
}

// open opens a shard.
func (st *Stream) open(from, to *big.Int, parents ...string) *shard {
	sh := &shard{from: from, to: to, opened: time.Now(), first: st.last + 1}
	sh.Shard = Shard{Name: fmt.Sprintf("shardId-%012d", st.named), Parents: parents, From: from.String(), To: to.String()}
	st.named++
	st.shards = append(st.shards, sh)
	return sh
}

func (st *Stream) close(sh *shard) {
	sh.Closed, sh.ClosedAt = true, time.Now()
	st.wake(sh)
}

// wake lets the subscriptions of a shard look for records.
func (st *Stream) wake(sh *shard) {
	for _, c := range st.consumers {
		if sub := c.current[sh.Name]; sub != nil {
			sub.notify()
		}
	}
}

// put puts a record where its key or its hash key belongs.
func (st *Stream) put(key, hash string, data []byte) (*shard, string, error) {
	switch {
	case len(data)+len(key) > largest:
		return nil, "", invalid("the record has more than %d bytes", largest)
	case key == "" && !st.auto:
		return nil, "", invalid("the record has no partition key, and the stream has not the strategy AUTO")
	}
	sum := md5.Sum([]byte(key))
	place := new(big.Int).SetBytes(sum[:])
	if hash != "" {
		if _, ok := place.SetString(hash, 10); !ok {
			return nil, "", invalid("%q is no hash key", hash)
		}
	}
	open := slices.DeleteFunc(slices.Clone(st.shards), func(sh *shard) bool { return sh.Closed })
	i := slices.IndexFunc(open, func(sh *shard) bool { return sh.from.Cmp(place) <= 0 && place.Cmp(sh.to) <= 0 })
	if st.auto && len(open) > 0 {
		i = st.puts % len(open)
	}
	if i < 0 {
		return nil, "", invalid("there is no open shard for hash key %s", place)
	}
	return open[i], st.store(open[i], key, data), nil
}

func (st *Stream) store(sh *shard, key string, data []byte) string {
	st.puts++
	st.last++
	sequence := strconv.FormatUint(st.last, 10)
	sh.Records = append(sh.Records, Record{Sequence: sequence, Key: key, Data: slices.Clone(data), Arrived: time.Now()})
	sh.numbers, sh.last = append(sh.numbers, st.last), st.last
	st.wake(sh)
	return sequence
}

// expire removes the records that are older than the retention, and then closed shards without
// records.
func (st *Stream) expire() {
	horizon := time.Now().Add(-st.retention())
	for _, sh := range st.shards {
		n := 0
		for n < len(sh.Records) && !sh.Records[n].Arrived.IsZero() && sh.Records[n].Arrived.Before(horizon) {
			n++
		}
		sh.Records, sh.numbers = sh.Records[n:], sh.numbers[n:]
	}
	st.forget(func(sh *shard) bool {
		return sh.Closed && len(sh.Records) == 0 && !sh.ClosedAt.IsZero() && sh.ClosedAt.Before(horizon)
	})
}

func (st *Stream) forget(which func(*shard) bool) {
	st.shards = slices.DeleteFunc(st.shards, func(sh *shard) bool {
		if !which(sh) {
			return false
		}
		for _, c := range st.consumers {
			if sub := c.current[sh.Name]; sub != nil {
				sub.stop(missing("shard %s has expired", sh.Name))
			}
		}
		return true
	})
}

func (st *Stream) retention() time.Duration { return cmp.Or(st.kept, 24*time.Hour) }

// find returns a shard, or the error of Kinesis if there is none.
func (st *Stream) find(name string) (*shard, error) {
	st.expire()
	i := slices.IndexFunc(st.shards, func(sh *shard) bool { return sh.Name == name })
	if i < 0 {
		return nil, missing("stream %s has no shard %s", st.name, name)
	}
	return st.shards[i], nil
}

// must returns an open shard.
func (st *Stream) must(name string) *shard {
	sh, err := st.find(name)
	if err != nil || sh.Closed {
		panic(fmt.Sprintf("kinesistest: stream %s has no open shard %s", st.name, name))
	}
	return sh
}

// children returns the children of a closed shard.
func (st *Stream) children(sh *shard) []map[string]any {
	var all []map[string]any
	for _, child := range st.shards {
		if slices.Contains(child.Parents, sh.Name) {
			all = append(all, map[string]any{"ShardId": child.Name, "ParentShards": child.Parents, "HashKeyRange": child.keys()})
		}
	}
	return all
}

func (sh *shard) keys() map[string]string {
	return map[string]string{"StartingHashKey": sh.from.String(), "EndingHashKey": sh.to.String()}
}

// number reads a hash key.
func number(text string) *big.Int {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		panic("kinesistest: " + text + " is no hash key")
	}
	return n
}
