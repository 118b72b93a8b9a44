package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// outageFile is the variable that makes the test binary the command shardlease, on a fleet in memory. Its value is
// the name of a file. While the file exists, the table does not answer.
const outageFile = "SHARDLEASE_TEST_OUTAGE_FILE"

func TestMain(m *testing.M) {
	if file := os.Getenv(outageFile); file != "" {
		os.Exit(onFleet(file))
	}
	fixture.PileGarbage()
	fixture.SideBySide(16)
	code := m.Run()
	shared.stop()
	os.Exit(code)
}

// onFleet runs the command in the terminal of this process, while a fleet runs in memory: two workers, and a third
// one that joins six seconds later. The handler of poison-record always fails.
func onFleet(file string) int {
	ctx, stop := context.WithCancel(context.Background())
	tables := newMemory("leases")
	store := tables.all["leases"]
	shards := []string{"poison-record"}
	for i := range 12 {
		shards = append(shards, fmt.Sprintf("shardId-%012d", i))
	}
	var fleet sync.WaitGroup
	for i := range 3 {
		w, err := shardlease.New(store, shardlease.Static(shards...), shardlease.Config{
			Group: "orders", Name: fmt.Sprintf("host-%d", i+1), Handoff: rebalance.Cooperative, MaxAttempts: 3, Backoff: time.Second,
		})
		if err != nil {
			panic(err)
		}
		fleet.Go(func() {
			if i == 2 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(6 * time.Second):
				}
			}
			_ = w.Run(ctx, poisoned) // it has no error that matters here
		})
	}
	p := &program{
		in: os.Stdin, out: os.Stdout, problems: os.Stderr, now: time.Now, operator: "ann@host", tables: cuttable{tables, file},
		env: os.LookupEnv,
	}
	code := p.run(ctx, os.Args[1:])
	stop()
	fleet.Wait()
	return code
}

func poisoned(ctx context.Context, t *shardlease.Tenure) error {
	if t.Shard().Name == "poison-record" {
		return errors.New("cannot process the record")
	}
	for n := 1; ; n++ {
		if err := t.Mark(fmt.Sprintf("canary-%06d", n)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// Cuttable is tables that do not answer while a file exists.
type cuttable struct {
	*memory
	file string
}

func (c cuttable) Reader(_ context.Context, at place) (inspect.Lister, error) {
	link := storetest.NewLink(c.all[at.table])
	link.OnList(func(_ context.Context, _ lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		if _, err := os.Stat(c.file); err == nil {
			return func(yield func(lease.Record, error) bool) { yield(nil, errNoAnswer) }
		}
		return send()
	})
	return link, nil
}
