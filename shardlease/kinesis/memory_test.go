package kinesis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A meter is between the client and the server. It counts the bytes of records that were sent and that the function has
// not processed, and knows nothing of the consumer. The data of a record begins with the name of its shard.
type meter struct {
	server *kinesistest.Server

	mu        sync.Mutex
	now, most map[string]int // by shard; those of all shards under ""
	largest   int            // the largest answer
}

func (m *meter) client() *awskinesis.Client {
	m.now, m.most = map[string]int{}, map[string]int{}
	return awskinesis.New(m.server.Client().Options(), func(o *awskinesis.Options) { o.HTTPClient = m })
}

func (m *meter) Do(r *http.Request) (*http.Response, error) {
	out, err := m.server.Do(r)
	if err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetRecords") {
		return out, err
	}
	text, err := io.ReadAll(out.Body)
	out.Body = io.NopCloser(bytes.NewReader(text))
	var answer struct{ Records []struct{ Data []byte } }
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	size := 0
	for _, one := range answer.Records {
		m.add(one.Data, len(one.Data))
		size += len(one.Data)
	}
	m.mu.Lock()
	m.largest = max(m.largest, size)
	m.mu.Unlock()
	return out, err
}

// add adds to the bytes of the shard of a record.
func (m *meter) add(data []byte, n int) {
	shard, _, _ := strings.Cut(string(data[:min(len(data), 20)]), " ")
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range []string{shard, ""} {
		m.now[name] += n
		m.most[name] = max(m.most[name], m.now[name])
	}
}

// sized returns n records of a number of bytes in a shard.
func sized(shard string, n, bytes int) (all []kinesistest.Record) {
	for i := range n {
		data := make([]byte, bytes)
		copy(data, shard+" ")
		all = append(all, kinesistest.Record{Key: fmt.Sprint("k", i%keys), Data: data})
	}
	return all
}

// TestBytesInFlight: while the function is stuck, and while it is slow, what is read and not processed stays below the
// bound and one answer more, for each shard and for all together. Then everything is processed.
func TestBytesInFlight(t *testing.T) {
	notUnderRace(t)
	const shards, each, size = 8, 800, 4 << 10 // 3 MiB a shard
	for name, bound := range map[string]struct{ shard, total int64 }{
		"of each shard": {512 << 10, 0}, "of all shards": {0, 2 << 20}, "of both": {512 << 10, 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all []kinesistest.Shard
				for i := range shards {
					name := fmt.Sprint("s", i)
					all = append(all, kinesistest.Shard{Name: name, Records: sized(name, each, size), Closed: true})
				}
				b := newBench(t, all...)
				b.config.ShardMemory, b.config.Memory, b.config.InFlight = bound.shard, bound.total, 250
				m := &meter{server: b.server}
				c, err := kinesis.New(m.client(), b.store, b.config)
				if err != nil {
					t.Fatal(err)
				}
				free := make(chan struct{})
				end := b.run(func(ctx context.Context) error {
					return c.Run(ctx, func(_ context.Context, r kinesis.Record) error {
						<-free
						time.Sleep(5 * time.Millisecond)
						m.add(r.Data, -len(r.Data))
						return nil
					})
				})
				time.Sleep(time.Minute)
				close(free)
				time.Sleep(10 * time.Minute)
				end()
				for shard, most := range m.most {
					limit := bound.shard
					if shard == "" {
						limit = bound.total
					}
					if limit > 0 && int64(most) > limit+int64(m.largest) {
						t.Errorf("%d KiB in flight in %q, the bound is %d and an answer has %d", most>>10, shard, limit>>10, m.largest>>10)
					}
				}
				if s := c.Stats().Total; s.Processed != shards*each || m.now[""] != 0 || m.largest > 1<<20 {
					t.Errorf("%d records processed, %d bytes in flight, the largest answer has %d", s.Processed, m.now[""], m.largest)
				}
			})
		})
	}
}

// TestHeapIsFlat: with a function that is stuck for an hour the heap stays at the bound of the memory.
func TestHeapIsFlat(t *testing.T) {
	notUnderRace(t) // it needs memory of its own
	shards, bound := fixture.Size(4, 16), fixture.Size[int64](32<<20, 128<<20)
	synctest.Test(t, func(t *testing.T) {
		var all []kinesistest.Shard
		for i := range shards {
			name := fmt.Sprint("s", i)
			all = append(all, kinesistest.Shard{Name: name, Records: sized(name, 12, 1<<20)})
		}
		b := newBench(t, all...)
		b.config.Memory, b.config.StallAfter = bound, -1
		c := b.consumer()
		before := heap()
		free := make(chan struct{})
		end := b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(context.Context, kinesis.Record) error { <-free; return nil })
		})
		time.Sleep(time.Minute)
		early := heap() - before
		time.Sleep(time.Hour)
		late := heap() - before
		t.Logf("%d MiB on the heap after a minute, %d after an hour; the bound is %d", early>>20, late>>20, bound>>20)
		if early > bound*5/4 || late > early+8<<20 || // the fake and the log note what happens
			early < bound/2 {
			t.Errorf("%d MiB on the heap after a minute, %d after an hour; the bound is %d", early>>20, late>>20, bound>>20)
		}
		close(free)
		end()
	})
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what a pool holds survives the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLargestRecords: records of 10 MiB are processed, also with a memory that is smaller than one of them.
func TestLargestRecords(t *testing.T) {
	for _, memory := range []int64{0, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, kinesistest.Shard{Name: "a", Records: sized("a", 3, 10<<20-2), Closed: true})
			b.config.Memory, b.config.ShardMemory = memory, memory
			var sum atomic.Int64
			b.runFor(5*time.Minute, func(_ context.Context, r kinesis.Record) error {
				sum.Add(int64(len(r.Data) + len(r.Key)))
				return nil
			})
			if sum.Load() != 3*10<<20 || !b.row("a").Finished {
				t.Errorf("%d bytes were processed", sum.Load())
			}
		})
	}
}
