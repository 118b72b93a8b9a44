package otelshardlease

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

// everything records every metric once.
func everything(t *testing.T, edits ...func(*Options)) *recorder {
	telemetry, r := recorded(t, edits...)
	transfer := lease.Transfer{From: "b", Reason: lease.ReasonHandoff, Mode: rebalance.Eager}
	for _, kind := range fixture.Kinds[event.Kind](t) {
		telemetry.Observe(event.Event{
			Kind: kind, Group: "orders", Shard: "s", Generation: 1, Transfer: transfer, Cause: event.CauseHandedOff, Dropped: 1, Pending: 1,
			Gap: 1, Delay: 1, Took: 1, Drained: 1, Continued: 1,
		})
	}
	telemetry.Kinesis("orders", func() map[string]map[string]int64 { return nil })
	telemetry.Status(func() shardlease.Status { return shardlease.Status{Group: "orders"} })
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, telemetry)
		f.start("a", rebalance.Eager)
		time.Sleep(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- telemetry.Watch(ctx, f.store, "orders", inspect.WatchOptions{}) }()
		time.Sleep(time.Minute)
		r.collect(t)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		f.end()
	})
	return r
}

// TestPageListsTheMetrics: the tables of docs/metrics.md list what the module registers: each metric with its kind, its unit,
// its labels and its description. With -update the test writes them.
func TestPageListsTheMetrics(t *testing.T) {
	r := everything(t)
	tables := map[string]*strings.Builder{}
	for _, title := range []string{"From workers and sessions", "The state of workers and sessions", "From a consumer of Kinesis", "From a watcher"} {
		tables[title] = new(strings.Builder)
		tables[title].WriteString("| metric | kind | labels | meaning |\n|---|---|---|---|\n")
	}
	for i, name := range *r.meter.order {
		of := r.meter.kinds[name]
		title, kind := "From a watcher", strings.TrimPrefix(of.kind, "observable ")
		switch {
		case kind == of.kind:
			title = "From workers and sessions"
		case strings.HasPrefix(name, "shardlease.kinesis."):
			title = "From a consumer of Kinesis"
		case i < 10+len(statusGauges())+1:
			title = "The state of workers and sessions"
		}
		if of.unit == "s" || of.unit == "By" {
			kind += ", " + of.unit
		}
		labels := slices.Clone(r.meter.labels[name])
		slices.Sort(labels)
		fmt.Fprintf(tables[title], "| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, ", "), of.help)
		if len(labels) == 0 || !slices.Contains(labels, "group") {
			t.Errorf("%s has never been recorded, or without a group: %v", name, labels)
		}
	}
	file := filepath.Join(fixture.Root(t), "docs", "metrics.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(page)
	for title, table := range tables {
		at := regexp.MustCompile(`(?ms)(^### ` + title + `\n.*?)((?:^\|[^\n]*\n)+)`)
		if !at.MatchString(want) {
			t.Fatalf("docs/metrics.md has no table under %q", title)
		}
		want = at.ReplaceAllStringFunc(want, func(found string) string { return at.FindStringSubmatch(found)[1] + table.String() })
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("go test ./shardlease/otelshardlease -run TestPage -update writes the tables of docs/metrics.md again; they should be\n%v", want)
	}
}

// TestEveryFigureOfKinesisIsExported: each figure that the consumer of package kinesis has is exported, except for its rates,
// which a monitoring system computes.
func TestEveryFigureOfKinesisIsExported(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(fixture.Root(t), "shardlease/kinesis/stats.go"))
	if err != nil {
		t.Fatal(err)
	}
	var exported, has []string
	for _, g := range streamGauges() {
		exported = append(exported, g.key)
	}
	for _, key := range regexp.MustCompile(`"([a-z_]+)":|\[""\]\["([a-z_]+)"\]|, all\[""\]\["([a-z_]+)"\]`).FindAllStringSubmatch(string(source), -1) {
		if key := key[1] + key[2] + key[3]; !strings.HasSuffix(key, "_per_second") {
			has = append(has, key)
		}
	}
	slices.Sort(exported)
	slices.Sort(has)
	if !slices.Equal(exported, has) {
		t.Errorf("exported are\n%v, and the consumer has\n%v", exported, has)
	}
}
