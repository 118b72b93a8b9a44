package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// onDynamoDB returns an empty outbox on a DynamoDB Local, or skips the test. TestExamplesOnDynamoDB in integration starts
// one.
func onDynamoDB(t *testing.T) dynamoBox {
	t.Helper()
	endpoint := os.Getenv("DYNAMODB_ENDPOINT")
	if endpoint == "" {
		t.Skip("DYNAMODB_ENDPOINT is not set: set it to the URL of a DynamoDB Local")
	}
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	b := dynamoBox{group: "sinks", table: "outbox-" + rand.Text()[:6], client: dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1", HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("example", "example", ""), DisableValidateResponseChecksum: true,
	})}
	leases := "leases-" + b.table
	unprotected := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	err := errors.Join(dynamostore.CreateTable(t.Context(), b.client, leases, unprotected), createTable(t.Context(), b.client, b.table))
	if err == nil {
		b.leases, err = dynamostore.Open(t.Context(), b.client, leases, dynamostore.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, table := range []string{leases, b.table} {
			_, _ = b.client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
		}
	})
	return b
}

// owner returns a function that takes shard-0 of a group over, under the next generation.
func (b dynamoBox) owner(t *testing.T, group string) func() *shardlease.Tenure {
	s, err := shardlease.NewSession(b.leases, shardlease.SessionConfig{Group: group})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var last *shardlease.Tenure
	t.Cleanup(func() {
		if last != nil {
			last.Release("") // otherwise Run waits for it
		}
		stop()
		<-ended
	})
	return func() *shardlease.Tenure {
		if last != nil {
			last.Release("")
		}
		if last, err = s.Acquire(ctx, "shard-0", shardlease.AcquireOptions{}); err != nil {
			t.Fatal(err)
		}
		return last
	}
}

// TestOutboxInDynamoDB: from the takeover on, the earlier owner stages nothing, and the earlier relay removes nothing. The
// staged effects are read in order, and a missing one is an error.
func TestOutboxInDynamoDB(t *testing.T) {
	b, ctx := onDynamoDB(t), t.Context()
	next, relays := b.owner(t, "sinks"), b.owner(t, "relays")
	old := next()
	from, err := b.begin(ctx, old.Hold())
	if err != nil || from != (head{}) {
		t.Fatal(from, err)
	}
	own := b.key("orders", 1)
	at, err := b.stage(ctx, old.Hold(), from, "17", effectsOf(17), types.TransactWriteItem{Put: &types.Put{TableName: &b.table, Item: own}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.stage(ctx, old.Hold(), from, "17", effectsOf(17)); !errors.Is(err, errMoved) {
		t.Errorf("the second attempt: %v", err)
	}
	b.holds(t, 10, 1, 2, 3)
	b.holds(t, 2, 1, 2)
	effects, _ := b.unsent(ctx, "shard-0", 2)
	if e := effects[0]; e.id != "sinks/shard-0/17/confirm%20by%20queue" || e.generation != old.Generation() || e.target != "queue" || e.body == "" {
		t.Errorf("staged: %+v", e)
	}
	present, before := next(), at
	if at, err = b.stage(ctx, present.Hold(), before, "18", effectsOf(18)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stage(ctx, present.Hold(), before, "18", effectsOf(18)); !errors.Is(err, errMoved) {
		t.Errorf("the second attempt of the successor: %v", err)
	}
	if _, err := b.stage(ctx, old.Hold(), at, "19", effectsOf(19)); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("the late effects: %v", err)
	}
	if begins, err := b.begin(ctx, next().Hold()); err != nil || begins != at {
		t.Errorf("the successor begins at %+v, %v, after %+v", begins, err, at)
	}
	stale := relays()
	if err := b.sent(ctx, stale.Hold(), effects); err != nil {
		t.Fatal(err)
	}
	b.holds(t, 10, 3, 4, 5, 6)
	relays()
	if err := b.sent(ctx, stale.Hold(), effects); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("the late mark: %v", err)
	}
	b.holds(t, 1, 3)
	if _, err := b.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &b.table, Key: b.key("shard-0", 4)}); err != nil {
		t.Fatal(err)
	}
	if effects, err := b.unsent(ctx, "shard-0", 10); !errors.Is(err, errHole) {
		t.Errorf("without the fourth: %+v, %v", effects, err)
	}
}

// holds checks the sequences of the first unsent effects.
func (b dynamoBox) holds(t *testing.T, most int, want ...int64) {
	t.Helper()
	effects, err := b.unsent(t.Context(), "shard-0", most)
	if err != nil || len(effects) != len(want) {
		t.Errorf("unsent: %+v, %v, want %v", effects, err, want)
		return
	}
	for i, e := range effects {
		if e.sequence != want[i] {
			t.Errorf("unsent: %+v, want %v", effects, want)
		}
	}
}

// TestRelayOnDynamoDB: a relay is killed between a send and its mark, and another one sends the rest.
func TestRelayOnDynamoDB(t *testing.T) {
	b := onDynamoDB(t)
	tn := b.owner(t, "sinks")()
	at, err := b.begin(t.Context(), tn.Hold())
	for record := 1; record <= 4 && err == nil; record++ {
		at, err = b.stage(t.Context(), tn.Hold(), at, strconv.Itoa(record), effectsOf(record))
	}
	if err != nil {
		t.Fatal(err)
	}
	checkKilled(t, b.leases, b)
}

// checkKilled kills a relay of the 12 effects of shard-0 in real time, when it has sent the fifth, and judges what the targets
// have got.
func checkKilled(t *testing.T, store lease.Store, b box) {
	t.Helper()
	staged, err := b.unsent(t.Context(), "shard-0", mostEffects)
	if err != nil || len(staged) != 12 {
		t.Fatal(len(staged), err)
	}
	k := newTargets(time.Hour)
	p := play{
		store: store, shards: []string{"shard-0"}, ttl: time.Second, mishap: mishap{step: "sent", nth: 5},
		relay: relay{box: b, targets: k.all(), batch: 3, idle: 50 * time.Millisecond, patience: time.Minute, log: slog.New(slog.DiscardHandler)},
	}
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	mail, queue, stream := judge(only(staged, "mail"), k.mail.all()), judge(only(staged, "queue"), k.queue.all()), judge(only(staged, "stream"), k.stream.all())
	if mail != (verdict{twice: 1}) || queue != (verdict{}) || stream != (verdict{}) {
		t.Errorf("mail: %+v, queue: %+v, stream: %+v", mail, queue, stream)
	}
}
