//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/shardlease"
)

var (
	rounds = flag.Int("e2e.rounds", 25, "how often each of the 200 items is changed")
	ttl    = flag.Duration("e2e.ttl", 5*time.Second, "lease time of the consumers")
)

// workerEnv is set in the processes that TestEndToEnd starts as consumers.
const workerEnv = "DYNAMODBSTREAMS_EXAMPLE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	for ctx.Err() == nil { // a platform restarts a process that ends by itself
		if err := run(ctx, os.Args[1:], log, process); err != nil {
			log.Error("consumer ends", "err", err)
			<-time.After(time.Second)
		}
	}
}

// TestEndToEnd runs three consumer processes on DynamoDB Local while items of four tables
// are changed. One process is killed, one is frozen and wakes up after it was replaced, one is
// replaced by a graceful shutdown. In the end the sink has every change once, and those of each
// item in order.
//
// run-local starts the servers that the test needs.
func TestEndToEnd(t *testing.T) {
	e := newWorld(t)
	fleet := []*exec.Cmd{e.enter("a"), e.enter("b"), e.enter("c")}
	e.whole("a", "b", "c")
	changed := make(chan struct{})
	go func() { defer close(changed); e.change() }()

	e.until("for the first changes to be in the sink", func() bool { return e.kept(1) })
	e.signal(fleet[0], syscall.SIGKILL)
	e.enter("d")
	e.whole("b", "c", "d")

	e.signal(fleet[1], syscall.SIGSTOP)
	e.whole("c", "d")
	e.signal(fleet[1], syscall.SIGCONT)
	e.whole("b", "c", "d")

	e.enter("e")
	e.whole("b", "c", "d", "e")
	e.signal(fleet[2], syscall.SIGTERM)
	if err := fleet[2].Wait(); err != nil {
		t.Errorf("the consumer stops with %v", err)
	}
	e.whole("b", "d", "e")

	<-changed
	e.until("for the last changes to be in the sink", func() bool { return e.kept(*rounds) })
	e.compare()
}

const itemsOfATable = 50

// A world has four tables with streams, a lease table and a sink.
type world struct {
	*testing.T
	begun  time.Time
	sink   *sink
	leases string
	group  string
	tables []string
}

func newWorld(t *testing.T) *world {
	s, leases := newSink(t)
	e := &world{T: t, begun: time.Now(), sink: s, leases: leases, group: "orders-" + rand.Text()[:8]}
	s.group = e.group
	for i := range 4 {
		table := fmt.Sprintf("%s-%d", e.group, i)
		e.tables = append(e.tables, table)
		createTable(t, s.client, table, &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewImage}, "id")
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
			_, err := e.sink.client.PutItem(e.Context(), &dynamodb.PutItemInput{TableName: &e.tables[i%len(e.tables)], Item: item})
			if err != nil {
				e.Errorf("put: %v", err)
				return
			}
		}
	}
}

// enter starts a consumer. It is killed at the end of the test if it still runs.
func (e *world) enter(name string) *exec.Cmd {
	e.Helper()
	log, err := os.Create(filepath.Join(e.ArtifactDir(), name+".log"))
	if err != nil {
		e.Fatal(err)
	}
	cmd := exec.CommandContext(e.Context(), os.Args[0], "-tables", strings.Join(e.tables, ","), "-group", e.group, "-name", name,
		"-leases", e.leases, "-sink", e.sink.table, "-start", "trim-horizon", "-handoff", "cooperative", "-ttl", ttl.String(), "-poll", "5s")
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(os.Environ(), workerEnv+"=1"), log, leash()
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = cmd.Wait(); _ = log.Close() })
	return cmd
}

func (e *world) signal(cmd *exec.Cmd, s syscall.Signal) {
	e.Helper()
	e.Logf("%5.1f s: one is sent %q", time.Since(e.begun).Seconds(), s)
	if err := cmd.Process.Signal(s); err != nil {
		e.Error(err)
	}
}

// whole waits until these workers, and no others, hold all shards.
func (e *world) whole(names ...string) {
	e.Helper()
	s := shardlease.Supervisor{Store: e.sink.leases, Group: e.group}
	e.until(fmt.Sprintf("for %v to hold all shards", names), func() bool {
		seats, err := s.Workers(e.Context())
		rows, listErr := s.List(e.Context())
		if err != nil || listErr != nil || len(seats) != len(names) || len(rows) < len(e.tables) {
			return false
		}
		holds := map[string]bool{}
		for _, row := range rows {
			holds[row.Owner.Name] = true
		}
		for _, name := range names {
			if !holds[name] {
				return false
			}
			delete(holds, name)
		}
		return len(holds) == 0
	})
}

// until waits until a condition holds.
func (e *world) until(what string, happened func() bool) {
	e.Helper()
	limit := time.Now().Add(2*time.Minute + 15**ttl)
	for tick := time.Tick(200 * time.Millisecond); !happened(); <-tick {
		if time.Now().After(limit) || e.Failed() {
			e.Fatalf("after %.1f s still waiting: %s", time.Since(e.begun).Seconds(), what)
		}
	}
}

// kept reports whether the sink has this many rounds of changes of each table. Each table has
// one shard, so its last item is the last to have them.
func (e *world) kept(rounds int) bool {
	e.Helper()
	for _, table := range e.tables {
		if len(e.sink.effects(e.T, fmt.Sprintf(`%s/id="%d"`, table, itemsOfATable-1))) < rounds {
			return false
		}
	}
	return true
}

// all returns the effects of each item.
func (e *world) all() map[string][]string {
	e.Helper()
	all := map[string][]string{}
	for pages := dynamodb.NewScanPaginator(e.sink.client, &dynamodb.ScanInput{TableName: &e.sink.table, ConsistentRead: aws.Bool(true)}); pages.HasMorePages(); {
		page, err := pages.NextPage(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		for _, item := range page.Items {
			if value, ok := item["value"].(*types.AttributeValueMemberB); ok { // the head has no value
				id := item["id"].(*types.AttributeValueMemberS).Value
				all[id] = append(all[id], string(value.Value))
			}
		}
	}
	return all
}

// compare compares the sink with the changes of the items.
func (e *world) compare() {
	e.Helper()
	all := e.all()
	if len(all) != e.items() {
		e.Errorf("%d items, want %d", len(all), e.items())
	}
	kept, wrong := 0, 0
	for _, effects := range all {
		kept += len(effects)
		for n, effect := range effects {
			if want := []string{"MODIFY ", "INSERT "}[max(0, 1-n)] + strconv.Itoa(n); effect != want {
				wrong++
			}
		}
		wrong += max(len(effects)-*rounds, *rounds-len(effects))
	}
	e.Logf("%5.1f s: %d changes of %d items; %d lost, twice or out of order", time.Since(e.begun).Seconds(), kept, len(all), wrong)
	if wrong > 0 {
		e.Errorf("some changes are missing, repeated or out of order")
	}
}
