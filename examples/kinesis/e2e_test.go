//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/outcome"
	"github.com/shardlease/shardlease-go/examples/kinesis/journal"
	"github.com/shardlease/shardlease-go/rebalance"
)

var (
	rounds = flag.Int("e2e.rounds", 25, "how many rounds of 4,000 records are put")
	spread = flag.Duration("e2e.for", 75*time.Second, "how long records are put")
	ttl    = flag.Duration("e2e.ttl", 10*time.Second, "lease time of the consumers")
)

// TestEndToEnd runs consumer processes on kinesis-local and DynamoDB Local while records are put,
// and plays the events of a month: one process is killed, one is frozen and wakes up after it was
// replaced, a shard is split and two are merged, and the whole fleet is deployed again, in both
// handoff modes. In the end the sink has exactly the records that were put: none is missing, none
// is there twice, the records of each key are in order and have their bytes, and each lease is at
// the last record of its shard. Meanwhile a proxy repeats records and leaves shards out of
// listings.
//
// Package outcome, which shares no code with the consumer, checks the result. run-local starts the
// servers that the test needs.
func TestEndToEnd(t *testing.T) {
	e := newWorld(t)
	put := make(chan struct{})
	f := e.newFleet(rebalance.Eager)
	go func() { defer close(put); e.put() }()

	f.busy(2)
	e.step("one is killed")
	f.slots[0].signal(syscall.SIGKILL)
	f.slots[0] = f.enter()
	f.whole()

	e.step("a shard is split, and two others are merged")
	e.split("shardId-000000000000")
	e.merge("shardId-000000000002", "shardId-000000000003")
	f.resharded(3)

	e.step("the fleet is deployed, eagerly")
	f.deploy()

	e.step("one is frozen, replaced, and wakes up")
	f.freeze(f.slots[1])

	e.step("the fleet is deployed with the other handoff, which is a matter of configuration")
	f.mode = rebalance.Cooperative
	f.deploy()
	e.step("the fleet is deployed, cooperatively")
	f.deploy()

	e.step("the last records are put")
	<-put
	f.caughtUp()
	f.stop()
	e.verdict()
}

// A world has a stream, a lease table and a sink, on local servers.
type world struct {
	*testing.T
	ctx     context.Context
	begun   time.Time
	kinesis *kinesis.Client
	db      *dynamodb.Client
	name    string // the name of the stream and of the group
	leases  *dynamostore.Store
	outcome *outcome.Reader
	proxy   *proxy
	keys    []key
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

func newWorld(t *testing.T) *world {
	if os.Getenv("AWS_ENDPOINT_URL_KINESIS") == "" || os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		t.Skip("no local servers: start this with ./run-local")
	}
	e := &world{T: t, ctx: t.Context(), begun: time.Now(), name: "orders-" + rand.Text()[:8]}
	c, err := config.LoadDefaultConfig(e.ctx)
	e.must(err)
	e.kinesis, e.db = kinesis.NewFromConfig(c), connect(c)
	_, err = e.kinesis.CreateStream(e.ctx, &kinesis.CreateStreamInput{StreamName: &e.name, ShardCount: aws.Int32(8)})
	e.must(err)
	e.active()
	e.must(dynamostore.CreateTable(e.ctx, e.db, e.table("leases"), dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}))
	e.must(journal.CreateTable(e.ctx, e.db, e.table("journal")))
	e.leases, err = dynamostore.Open(e.ctx, e.db, e.table("leases"), dynamostore.Options{Timeout: 20 * time.Second})
	e.must(err)
	e.outcome = &outcome.Reader{DynamoDB: e.db, Kinesis: e.kinesis, Journal: e.table("journal"), Leases: e.table("leases"), Stream: e.name, Group: e.name}
	e.proxy, err = newProxy()
	e.must(err)
	e.Cleanup(e.proxy.Close)
	// 4,000 records in 390 entries per round. kinesis-local reads a whole shard again for each
	// entry that is put, so 100,000 entries would take most of an hour.
	for i := range 390 {
		k := key{fmt.Sprintf("customer-%03d", i), 20, []int{10, 25, 40}}
		switch {
		case i < 3: // larger than a DynamoDB item, up to the maximum of a record
			k.each, k.sizes = 1, []int{100, 1<<20 - 100, 10, 450 << 10, 30 << 10}
		case i < 200:
			k.each, k.sizes = 1, []int{10, 50, 200, 1000}
		}
		e.keys = append(e.keys, k)
	}
	return e
}

func (e *world) table(kind string) string { return e.name + "-" + kind }

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

// until waits until a condition holds.
func (e *world) until(what string, happened func() bool) {
	e.Helper()
	limit := time.Now().Add(time.Minute + 15**ttl)
	for tick := time.Tick(100 * time.Millisecond); !happened(); <-tick {
		if time.Now().After(limit) || e.Failed() {
			e.Fatalf("after %.1f s still waiting: %s", time.Since(e.begun).Seconds(), what)
		}
	}
}

// active waits until the stream takes commands again.
func (e *world) active() {
	e.Helper()
	e.until("for the stream to be active", func() bool {
		out, err := e.kinesis.DescribeStreamSummary(e.ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &e.name})
		return err == nil && out.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive
	})
}

func (e *world) split(shard string) {
	e.Helper()
	_, err := e.kinesis.SplitShard(e.ctx, &kinesis.SplitShardInput{
		StreamName: &e.name, ShardToSplit: &shard,
		NewStartingHashKey: aws.String("21267647932558653966460912964485513216"), // a sixteenth of all hash keys
	})
	e.must(err)
	e.active()
}

func (e *world) merge(a, b string) {
	e.Helper()
	_, err := e.kinesis.MergeShards(e.ctx, &kinesis.MergeShardsInput{StreamName: &e.name, ShardToMerge: &a, AdjacentShardToMerge: &b})
	e.must(err)
	e.active()
}

// want returns how many records a key has in the end.
func (e *world) want(k key) int { return *rounds * k.each }

// verdict compares the tables with the records that were put, and with the stream.
func (e *world) verdict() {
	e.Helper()
	var all outcome.Verdict
	for _, k := range e.keys {
		put := make([]outcome.Digest, e.want(k))
		for n := range put {
			put[n] = sha256.Sum256(k.payload(n))
		}
		effects, err := e.outcome.Effects(e.ctx, k.name)
		e.must(err)
		all.Add(outcome.Compare(put, effects))
	}
	shards, err := e.outcome.Checkpoints(e.ctx)
	e.Logf("%v; %d keys and %d shards; %.0f s", all, len(e.keys), shards, time.Since(e.begun).Seconds())
	if all.Faults() > 0 || all.Records != *rounds*4000 {
		e.Errorf("want %d records, each once, in order and unchanged", *rounds*4000)
	}
	if err != nil || shards != 8+3 {
		e.Errorf("%d leases, want %d: %v", shards, 8+3, err)
	}
	e.Logf("the proxy repeated %d records and left out %d shards", e.proxy.repeated, e.proxy.omitted)
	if e.proxy.repeated == 0 || e.proxy.omitted == 0 {
		e.Error("the proxy repeated no record or left out no shard")
	}
}
