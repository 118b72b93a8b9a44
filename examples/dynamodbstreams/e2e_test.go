//go:build darwin || linux

package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
	"github.com/shardlease/shardlease-go/examples/internal/process"
)

var (
	rounds = flag.Int("e2e.rounds", 25, "how often each of the 200 items is changed")
	ttl    = flag.Duration("e2e.ttl", 5*time.Second, "lease time of the consumers")
)

func TestMain(m *testing.M) {
	process.Main(m, map[string]func(){"consumer": process.Service(func(ctx context.Context, args []string, log *slog.Logger) error {
		return run(ctx, args, log, effectOf)
	})})
}

// TestEndToEnd runs three consumer processes on DynamoDB Local while items of four tables
// are changed. One process is killed, one is frozen and wakes up after it was replaced, one is
// replaced by a graceful shutdown. In the end the sink has every change once, and those of each
// item in order.
//
// run-local starts the servers that the test needs.
func TestEndToEnd(t *testing.T) {
	e := newWorld(t)
	a, b, c := e.enter("a"), e.enter("b"), e.enter("c")
	e.whole("a", "b", "c")
	changed := make(chan struct{})
	go func() { defer close(changed); e.change() }()

	process.Until(t, "the first changes to be in the sink", func() bool { return e.kept(1) })
	a.Signal(syscall.SIGKILL)
	e.enter("d")
	e.whole("b", "c", "d")

	b.Signal(syscall.SIGSTOP)
	e.whole("c", "d")
	b.Signal(syscall.SIGCONT)
	e.whole("b", "c", "d")

	e.enter("e")
	e.whole("b", "c", "d", "e")
	c.Signal(syscall.SIGTERM)
	if code := c.Wait(); code != 0 {
		t.Errorf("the consumer stops with exit code %d", code)
	}
	e.whole("b", "d", "e")

	<-changed
	process.Until(t, "the last changes to be in the sink", func() bool { return e.kept(*rounds) })
	e.compare()
}

const itemsOfATable = 50

// A world has four tables with streams, a lease table and a sink.
type world struct {
	*testing.T
	begun  time.Time
	sink   *effects.Sink
	leases string
	group  string
	tables []string
}

func newWorld(t *testing.T) *world {
	s, leases := newSink(t)
	e := &world{T: t, begun: time.Now(), sink: s, leases: leases, group: "orders-" + rand.Text()[:8]}
	for i := range 4 {
		table := fmt.Sprintf("%s-%d", e.group, i)
		e.tables = append(e.tables, table)
		_, err := s.Client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: &table, BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
			StreamSpecification:  &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewImage},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *world) items() int { return len(e.tables) * itemsOfATable }

// change changes each item once in each round.
func (e *world) change() {
	for round := range *rounds {
		for i := range e.items() {
			item := map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: strconv.Itoa(i / len(e.tables))}}
			item["status"] = &types.AttributeValueMemberS{Value: strconv.Itoa(round)}
			_, err := e.sink.Client.PutItem(e.Context(), &dynamodb.PutItemInput{TableName: &e.tables[i%len(e.tables)], Item: item})
			if err != nil {
				e.Errorf("put: %v", err)
				return
			}
		}
	}
}

// enter starts a consumer.
func (e *world) enter(name string) *process.Process {
	e.Helper()
	return process.Start(e, "consumer", "-tables", strings.Join(e.tables, ","), "-group", e.group, "-name", name,
		"-leases", e.leases, "-sink", e.sink.Table, "-start", "trim-horizon", "-handoff", "cooperative", "-ttl", ttl.String(), "-poll", "5s")
}

// whole waits until these workers, and no others, hold all shards.
func (e *world) whole(names ...string) {
	e.Helper()
	e.Logf("%5.1f s: %v", time.Since(e.begun).Seconds(), names)
	process.Whole(e, e.sink.Leases, e.group, len(e.tables), names...)
}

// kept reports whether the sink has this many rounds of changes of each table. Each table has
// one shard, so its last item is the last to have them.
func (e *world) kept(rounds int) bool {
	e.Helper()
	for i := range e.tables {
		if len(e.effects(i+(itemsOfATable-1)*len(e.tables))) < rounds {
			return false
		}
	}
	return true
}

// effects returns the effects of an item.
func (e *world) effects(i int) []string {
	e.Helper()
	return stored(e.T, e.sink, e.group, fmt.Sprintf(`%s/id="%d"`, e.tables[i%len(e.tables)], i/len(e.tables)))
}

// compare compares the sink with the changes of the items.
func (e *world) compare() {
	e.Helper()
	kept, wrong := 0, 0
	for i := range e.items() {
		effects := e.effects(i)
		kept += len(effects)
		for n, effect := range effects {
			if want := []string{"MODIFY ", "INSERT "}[max(0, 1-n)] + strconv.Itoa(n); effect != want {
				wrong++
			}
		}
		wrong += max(len(effects)-*rounds, *rounds-len(effects))
	}
	e.Logf("%5.1f s: %d changes of %d items; %d lost, twice or out of order", time.Since(e.begun).Seconds(), kept, e.items(), wrong)
	if wrong > 0 {
		e.Errorf("some changes are missing, repeated or out of order")
	}
}
