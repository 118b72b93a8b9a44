package endtoend

import (
	"crypto/rand"
	"flag"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"go.uber.org/goleak"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

var (
	seed    = flag.Uint64("endtoend.seed", 1, "seed of TestEndToEnd and TestKinesisLocal, which print it")
	records = flag.Int("endtoend.records", 0, "how many records TestEndToEnd puts in each run")
)

func TestMain(m *testing.M) {
	fixture.PileGarbage()
	goleak.VerifyTestMain(m)
}

// reads are the ways to read a stream.
var reads = map[string]func(*kinesis.Config){
	"polling": func(c *kinesis.Config) { c.Read = kinesis.Poll },
	"fan-out": func(c *kinesis.Config) { c.Read = kinesis.FanOut },
}

// TestEndToEnd: on streams in memory, in the bubble of a fake clock, nothing is lost, effects happen exactly once and in
// order, and the last checkpoints are right.
func TestEndToEnd(t *testing.T) {
	for read, set := range reads {
		for _, handoff := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
			t.Run(read+"/"+handoff.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := fixture.Or(*records, 1000, 100_000)
					w := newWorld(t, settings{
						records: n, most: min(largest, 1100*n), lasts: 2 * time.Minute, ttl: 3 * time.Second, idle: time.Second,
						settle: 11 * time.Minute, seed: *seed, read: set,
					}, handoff)
					w.inMemory()
					w.play()
				})
			})
		}
	}
}

// inMemory makes the streams in memory.
func (w *world) inMemory() {
	server := kinesistest.New()
	server.Limits, server.PageSize = true, 3
	w.faults.silent = true
	var honest atomic.Bool
	for name, auto := range map[string]bool{"orders": false, "events": true} {
		t := &topic{TB: w, name: name, auto: auto, client: server.Client(), memory: server.Create(name, 3), honest: &honest}
		t.memory.Redeliver = 2
		t.memory.Empty = func() bool { return w.random(5) == 0 }
		t.memory.Omit = func(string) bool { return !honest.Load() && w.random(30) == 0 }
		w.topics = append(w.topics, t)
		if auto {
			t.memory.SetStrategy(types.RecordDistributionStrategyAuto)
		} else {
			w.topics[0], w.topics[len(w.topics)-1] = t, w.topics[0]
		}
		t.refresh()
	}
	w.dial = func(m *member) *awskinesis.Client {
		return awskinesis.New(server.Client().Options(), func(o *awskinesis.Options) { o.HTTPClient = &wire{m, server} })
	}
}

// TestKinesisLocal: the same by polling, on a real server, which has no AUTO streams.
func TestKinesisLocal(t *testing.T) {
	if os.Getenv("AWS_ENDPOINT_URL_KINESIS") == "" {
		t.Skip("no kinesis-local: start this with examples/kinesis/run-local")
	}
	w := newWorld(t, settings{
		records: 1000, most: large, lasts: 30 * time.Second, ttl: 2 * time.Second, idle: time.Second / 4,
		settle: 30 * time.Second, seed: *seed, read: reads["polling"],
	}, rebalance.Cooperative)
	w.faults.late = 200 * time.Millisecond
	sdk, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	on := func(via awskinesis.HTTPClient) *awskinesis.Client {
		return awskinesis.NewFromConfig(sdk, func(o *awskinesis.Options) { o.HTTPClient, o.RetryMaxAttempts = via, 1 })
	}
	orders := &topic{TB: t, name: "orders-" + rand.Text()[:8], client: on(client)}
	_, err = orders.client.CreateStream(t.Context(), &awskinesis.CreateStreamInput{StreamName: &orders.name, ShardCount: aws.Int32(4)})
	orders.must(err)
	orders.refresh()
	w.topics = []*topic{orders}
	w.dial = func(m *member) *awskinesis.Client { return on(&wire{m, client}) }
	w.play()
}
