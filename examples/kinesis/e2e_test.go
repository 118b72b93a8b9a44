//go:build darwin || linux

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
	"github.com/shardlease/shardlease-go/examples/internal/process"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/outcome"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	rounds = flag.Int("e2e.rounds", 25, "how many rounds of 4,000 records are put")
	spread = flag.Duration("e2e.for", 75*time.Second, "how long records are put")
	ttl    = flag.Duration("e2e.ttl", 10*time.Second, "lease time of the consumers")
)

func TestMain(m *testing.M) {
	process.Main(m, map[string]func(){"consumer": process.Service(func(ctx context.Context, args []string, log *slog.Logger) error {
		return run(ctx, args, log, unevenly)
	})})
}

// unevenly is work with occasional delays, so that records of other lanes overtake.
func unevenly(ctx context.Context, r kinesis.Record) ([]byte, error) {
	if mathrand.IntN(50) == 0 {
		<-time.After(mathrand.N(10 * time.Millisecond))
	}
	return work(ctx, r)
}

// TestEndToEnd runs consumer processes on kinesis-local and DynamoDB Local while records are put, and plays the events of
// a month: one process is killed, one is frozen and wakes up after it was replaced, a shard is split and two are merged,
// and the whole fleet is deployed again, in both handoff modes. In the end the sink has exactly the records that were put:
// none is missing, none is there twice, the records of each key are in order and have their bytes, and each lease is at
// the last record of its shard. Meanwhile a proxy repeats records and leaves shards out of listings.
//
// run-local starts the servers that the test needs.
func TestEndToEnd(t *testing.T) {
	e := newWorld(t)
	for i := range e.slots {
		e.slots[i] = e.enter()
	}
	e.whole(8)
	put := make(chan struct{})
	go func() { defer close(put); e.put() }()

	process.Until(t, "the first records to be in the sink", func() bool { return e.stored(e.keys[len(e.keys)-1], 2) })
	e.step("one is killed")
	e.slots[0].Signal(syscall.SIGKILL)
	e.slots[0] = e.enter()
	e.whole(8)

	e.step("a shard is split, and two others are merged")
	e.split("shardId-000000000000")
	e.merge("shardId-000000000002", "shardId-000000000003")
	process.Until(t, "the parents to be finished", func() bool { return e.finished() == 3 })
	e.whole(8 + 3)

	e.step("the fleet is deployed, eagerly")
	e.deploy()

	e.step("one is frozen, replaced, and wakes up")
	e.freeze(e.slots[1])

	e.step("the fleet is deployed with the other handoff, which is a matter of configuration")
	e.mode = rebalance.Cooperative
	e.deploy()
	e.step("the fleet is deployed, cooperatively")
	e.deploy()

	e.step("the last records are put")
	<-put
	for _, k := range e.keys {
		process.Until(t, "the last records to be in the sink", func() bool { return e.stored(k, *rounds) })
	}
	for _, w := range e.slots {
		e.leave(w)
	}
	e.verdict()
}

// A world has a stream, a lease table and a sink, on local servers, and three consumers.
type world struct {
	*testing.T
	begun   time.Time
	kinesis *awskinesis.Client
	name    string // of the stream and of the group; the prefix of the tables
	sink    *effects.Sink
	leases  outcome.Leases
	proxy   *proxy
	keys    []key

	mode  rebalance.Mode
	all   []worker
	slots [3]worker
}

// A worker is one consumer.
type worker struct {
	*process.Process
	name string
}

// A key is one partition key of the stream, and the number of its records in each round. If a
// round has more than one, they are packed into one entry.
type key struct {
	name  string
	each  int
	sizes []int // the sizes of its records, in turn
}

// payload returns the bytes of record n of a key: pseudorandom, but always the same.
func (k key) payload(n int) []byte {
	data := make([]byte, k.sizes[n%len(k.sizes)])
	_, _ = mathrand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%s %d", k.name, n))).Read(data)
	return data
}

// entry returns the records of a round: one record, or several that are packed.
func (k key) entry(round int) []byte {
	if k.each == 1 {
		return k.payload(round)
	}
	var all [][]byte
	for i := range k.each {
		all = append(all, k.payload(round*k.each+i))
	}
	return outcome.Pack(k.name, all...)
}

func newWorld(t *testing.T) *world {
	if os.Getenv("AWS_ENDPOINT_URL_KINESIS") == "" || os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		t.Skip("no local servers: start this with ./run-local")
	}
	e := &world{T: t, begun: time.Now(), name: "orders-" + rand.Text()[:8], mode: rebalance.Eager}
	c, err := config.LoadDefaultConfig(t.Context())
	e.must(err)
	e.kinesis = awskinesis.NewFromConfig(c)
	_, err = e.kinesis.CreateStream(t.Context(), &awskinesis.CreateStreamInput{StreamName: &e.name, ShardCount: aws.Int32(8)})
	e.must(err)
	e.active()
	e.sink = &effects.Sink{Client: effects.Connect(c), Table: e.name + "-effects"}
	e.must(effects.CreateTable(t.Context(), e.sink.Client, e.sink.Table))
	e.leases = outcome.Leases{DynamoDB: e.sink.Client, Kinesis: e.kinesis, Table: e.name + "-leases", Stream: e.name, Group: e.name}
	e.must(dynamostore.CreateTable(t.Context(), e.sink.Client, e.leases.Table, dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}))
	e.sink.Leases, err = dynamostore.Open(t.Context(), e.sink.Client, e.leases.Table, dynamostore.Options{Timeout: 20 * time.Second})
	e.must(err)
	e.proxy, err = newProxy()
	e.must(err)
	t.Cleanup(e.proxy.Close)
	t.Setenv("AWS_ENDPOINT_URL_KINESIS", e.proxy.URL) // for the consumers
	// 4,000 records in 390 entries per round. kinesis-local reads a whole shard again for each
	// entry that is put, so 100,000 entries would take most of an hour.
	for i := range 390 {
		k := key{fmt.Sprintf("customer-%03d", i), 20, []int{10, 25, 40}}
		switch {
		case i < 3: // up to the maximum size of a record on kinesis-local
			k.each, k.sizes = 1, []int{100, 1<<20 - 100, 10, 450 << 10, 30 << 10}
		case i < 200:
			k.each, k.sizes = 1, []int{10, 50, 200, 1000}
		}
		e.keys = append(e.keys, k)
	}
	return e
}

func (e *world) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *world) step(what string) {
	e.Helper()
	e.Logf("%5.1f s: %s", time.Since(e.begun).Seconds(), what)
}

// put puts the records, round by round.
func (e *world) put() {
	for round := range *rounds {
		next := time.After(*spread / time.Duration(*rounds))
		var entries []types.PutRecordsRequestEntry
		for _, k := range e.keys {
			entries = append(entries, types.PutRecordsRequestEntry{PartitionKey: &k.name, Data: k.entry(round)})
		}
		// Each key is in a round once, so entries that were refused may be put again without
		// changing the order of a key.
		for len(entries) > 0 && e.Context().Err() == nil {
			batch := entries[:min(100, len(entries))]
			out, err := e.kinesis.PutRecords(e.Context(), &awskinesis.PutRecordsInput{StreamName: &e.name, Records: batch})
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

// active waits until the stream takes commands again.
func (e *world) active() {
	e.Helper()
	process.Until(e, "the stream to be active", func() bool {
		out, err := e.kinesis.DescribeStreamSummary(e.Context(), &awskinesis.DescribeStreamSummaryInput{StreamName: &e.name})
		return err == nil && out.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive
	})
}

func (e *world) split(shard string) {
	e.Helper()
	_, err := e.kinesis.SplitShard(e.Context(), &awskinesis.SplitShardInput{
		StreamName: &e.name, ShardToSplit: &shard,
		NewStartingHashKey: aws.String("21267647932558653966460912964485513216"), // a sixteenth of all hash keys
	})
	e.must(err)
	e.active()
}

func (e *world) merge(a, b string) {
	e.Helper()
	_, err := e.kinesis.MergeShards(e.Context(), &awskinesis.MergeShardsInput{StreamName: &e.name, ShardToMerge: &a, AdjacentShardToMerge: &b})
	e.must(err)
	e.active()
}

// enter starts a consumer.
func (e *world) enter() worker {
	e.Helper()
	name := fmt.Sprintf("consumer-%d", len(e.all))
	w := worker{process.Start(e, "consumer", "-stream", e.name, "-group", e.name, "-name", name, "-leases", e.leases.Table,
		"-effects", e.sink.Table, "-handoff", e.mode.String(), "-ttl", ttl.String(), "-poll", "5s"), name}
	e.all = append(e.all, w)
	return w
}

// leave stops a consumer by a graceful shutdown.
func (e *world) leave(w worker) {
	e.Helper()
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(); code != 0 {
		e.Errorf("%s stops with exit code %d", w.name, code)
	}
}

// whole waits until the consumers in the slots, and no others, hold all shards.
func (e *world) whole(shards int) {
	e.Helper()
	var names []string
	for _, w := range e.slots {
		names = append(names, w.name)
	}
	process.Whole(e, e.sink.Leases, e.name, shards, names...)
}

func (e *world) rows() []lease.Row {
	rows, _ := shardlease.Supervisor{Store: e.sink.Leases, Group: e.name}.List(e.Context())
	return rows
}

// finished returns the number of finished shards.
func (e *world) finished() (n int) {
	for _, row := range e.rows() {
		if row.Finished {
			n++
		}
	}
	return n
}

// deploy replaces the consumers one after the other; each new one starts before the old one stops.
func (e *world) deploy() {
	e.Helper()
	for i, old := range e.slots {
		e.slots[i] = e.enter()
		process.Until(e, e.slots[i].name+" to hold a shard", func() bool {
			for _, row := range e.rows() {
				if row.Owner.Name == e.slots[i].name {
					return true
				}
			}
			return false
		})
		e.leave(old)
	}
	e.whole(8 + 3)
}

// freeze stops a process with SIGSTOP, and continues it when the other workers hold all its shards. The process then has
// to find out that it was replaced. It may find out before it sends a write, so the writes that it could send are sent
// here too: under the holds that it had. The fence must refuse each.
func (e *world) freeze(w worker) {
	e.Helper()
	w.Signal(syscall.SIGSTOP)
	rows := e.rows()
	process.Until(e, w.name+" to be replaced", func() bool {
		now := e.rows()
		for _, row := range now {
			if row.Owner.Name == w.name {
				return false
			}
		}
		return now != nil
	})
	tried := 0
	for _, row := range rows {
		if row.Owner.Name != w.name {
			continue
		}
		tried++
		h := lease.Hold{Key: row.Key(), Incarnation: row.Owner.Incarnation, Generation: row.Generation}
		if _, err := e.sink.Store(e.Context(), h, []effects.Effect{{Key: "late", ID: row.Shard}}); !errors.Is(err, checkpoint.ErrStale) {
			e.Errorf("%s was replaced, and its write to %s: %v", w.name, row.Shard, err)
		}
	}
	if tried == 0 {
		e.Errorf("%s had no shard", w.name)
	}
	w.Signal(syscall.SIGCONT)
	e.whole(8 + 3)
}

// effects returns what the sink has of a key.
func (e *world) effects(ctx context.Context, k key) (stored []outcome.Digest, total int, err error) {
	values, total, err := e.sink.Read(ctx, e.name, e.name+"/"+k.name)
	for _, value := range values {
		var d outcome.Digest
		copy(d[:], value)
		stored = append(stored, d)
	}
	return stored, total, err
}

// stored reports whether the sink has this many rounds of a key.
func (e *world) stored(k key, rounds int) bool {
	all, _, err := e.effects(e.Context(), k)
	return err == nil && len(all) >= rounds*k.each
}

// verdict compares the tables with the records that were put, and with the stream.
func (e *world) verdict() {
	e.Helper()
	var all outcome.Verdict
	totals := 0
	for _, k := range e.keys {
		put := make([]outcome.Digest, *rounds*k.each)
		for n := range put {
			put[n] = sha256.Sum256(k.payload(n))
		}
		stored, total, err := e.effects(e.Context(), k)
		e.must(err)
		all.Add(outcome.Compare(put, stored))
		totals += total
	}
	shards, err := e.leases.Check(e.Context())
	e.Logf("%v; totals of %d; %d keys and %d shards; %.0f s", all, totals, len(e.keys), shards, time.Since(e.begun).Seconds())
	if all.Faults() > 0 || all.Records != *rounds*4000 || totals != all.Records {
		e.Errorf("want %d records, each once, in order and unchanged", *rounds*4000)
	}
	if err != nil || shards != 8+3 {
		e.Errorf("%d leases, want %d: %v", shards, 8+3, err)
	}
	known, restarted := 0, 0
	for _, w := range e.all {
		known += strings.Count(w.Output(), `"msg":"left out"`)
		restarted += strings.Count(w.Output(), `"msg":"the program ends by itself"`)
	}
	e.Logf("%d processes, %d restarts; %d batches had known effects; the proxy repeated %d records and left out %d shards",
		len(e.all), restarted, known, e.proxy.repeated, e.proxy.omitted)
	if known == 0 || e.proxy.repeated == 0 || e.proxy.omitted == 0 {
		e.Error("no effect was known, no record was repeated, or no shard was left out: the test should see each")
	}
}
