package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

const exported = `
at -1h
worker host-1 a-1
create shard-0
create shard-1
claim shard-0 a-1 host-1
claim shard-1 a-1 host-1
commit shard-0 canary-1
commit shard-1 canary-2
at -2s
beat a-1
`

// TestExporter: the command serves the figures of the group until it is interrupted, and nothing else.
func TestExporter(t *testing.T) {
	w := newWorld()
	w.clock = time.Now()
	w.seeds(t, exported)
	ctx, interrupt := context.WithCancel(t.Context())
	problems, says := io.Pipe()
	ended := make(chan int)
	go func() {
		p := operatedBy(strings.NewReader(""), io.Discard, says, w.tables, w.env)
		code := p.run(ctx, []string{"exporter", "--listen", "127.0.0.1:0"})
		_ = says.Close()
		ended <- code
	}()
	first := make([]byte, 200)
	n, err := problems.Read(first)
	address := regexp.MustCompile(`http://[0-9.:]+`).FindString(string(first[:n]))
	if err != nil || address == "" {
		t.Fatal(err, string(first[:n]))
	}
	go func() { _, _ = io.Copy(io.Discard, problems) }()
	code, text := fetch(t, address+"/metrics")
	for code == http.StatusServiceUnavailable { // until the first look has ended
		code, text = fetch(t, address+"/metrics")
	}
	for _, line := range []string{`shardlease_shards{group="orders",state="held"} 2`, `shardlease_group_ends_total{group="orders",reason="expired"} 0`} {
		if code != http.StatusOK || !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%d, without %s:\n%s", code, line, text)
		}
	}
	code, document := fetch(t, address+"/figures.json")
	var all map[string]any
	if err := json.Unmarshal([]byte(document), &all); code != http.StatusOK || err != nil || all["group"] != "orders" || all["kind"] != "figures" {
		t.Errorf("%d, %v: %s", code, err, document)
	}
	for path, want := range map[string]any{
		"shardlease_workers": 1.0, "shardlease_shards.held": 2.0, "shardlease_shards.free": 0.0, "shardlease_group_ends_total.expired": 0.0, "shardlease_warnings.orphaned.error": nil,
	} {
		if got := valueAt(all, path); got != want {
			t.Errorf("%s is %v, want %v: %s", path, got, want, document)
		}
	}
	for _, private := range []string{"shard-0", "host-1", "canary"} {
		if strings.Contains(text+document, private) {
			t.Errorf("a page has a name or a position: %s\n%s", private, text+document)
		}
	}
	if code, _ := fetch(t, address+"/"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// valueAt returns the value of a JSON object at a path of names with dots between them, as KEDA reads it; nil: there is none.
func valueAt(of map[string]any, path string) any {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return of[name]
	}
	below, _ := of[name].(map[string]any)
	return valueAt(below, rest)
}

// TestScalingReadsWhatThereIs: what the triggers of KEDA in docs/metrics.md read, the exporter serves.
func TestScalingReadsWhatThereIs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	w.seeds(t, exported)
	at := &place{"leases", "orders"}
	o := &observer{&reader{at: at, tables: w.tables, now: func() time.Time { return w.clock }}, io.Discard, io.Discard}
	s, err := o.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	figures := inspect.Figures("orders", s)
	var all map[string]any
	if err := json.Unmarshal([]byte(figuresJSON("orders", figures)), &all); err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile(`valueLocation: (\S+)`).FindAllStringSubmatch(string(page), -1)
	for _, path := range paths {
		if _, is := valueAt(all, path[1]).(float64); !is {
			t.Errorf("there is no number at %s: %v", path[1], all)
		}
	}
	queries := regexp.MustCompile(`(?m)^ +query: .*?(shardlease_[a-z_]+)\{`).FindAllStringSubmatch(string(page), -1)
	for _, query := range queries {
		metric := "| `" + strings.ReplaceAll(strings.TrimSuffix(query[1], "_seconds"), "_", ".") + "` |"
		if !strings.Contains(string(page), metric) {
			t.Errorf("no table of the page lists %s", metric)
		}
	}
	if len(paths) == 0 || len(queries) == 0 {
		t.Errorf("found %d paths and %d queries: the test may have stopped finding them", len(paths), len(queries))
	}
}

func fetch(t *testing.T, url string) (code int, text string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(all)
}

// TestExporterTellsOfAFailure: while looks fail, and while there is no group of this name, the page says so and shows no other
// figures.
func TestExporterTellsOfAFailure(t *testing.T) {
	w := newWorld()
	w.clock = time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC) // two hours into a bubble
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(w.clock))
		ctx, stop := context.WithCancel(t.Context())
		var problems bytes.Buffer
		at := &place{"leases", "orders"}
		o := &observer{&reader{at: at, tables: w.tables, now: time.Now}, io.Discard, &problems}
		from, err := o.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		pages := newPages()
		expect := func(code int, with, without string) {
			t.Helper()
			r := httptest.NewRecorder()
			pages.text.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
			if text := r.Body.String(); r.Code != code || !strings.Contains(text, with) || without != "" && strings.Contains(text, without) {
				t.Errorf("%d, with %q and without %q:\n%s", r.Code, with, without, text)
			}
		}
		expect(http.StatusServiceUnavailable, "", "shardlease_")
		ended := make(chan struct{})
		go func() { defer close(ended); o.renew(ctx, from, pages) }()
		synctest.Wait()
		expect(http.StatusOK, `shardlease_check_status{group="orders"} 3`, "workers")
		for _, fault := range []string{"reads", ""} {
			w.tables.change(func() { w.tables.fault = fault })
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		w.seeds(t, exported)
		time.Sleep(time.Minute)
		synctest.Wait() // no look is under way
		expect(http.StatusOK, `shardlease_workers{group="orders"} 1`, "status{group=\"orders\"} 3")
		w.tables.change(func() { w.tables.fault = "reads" })
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(http.StatusOK, `shardlease_check_status{group="orders"} 3`, "workers")
		w.tables.change(func() { w.tables.fault = "" })
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(http.StatusOK, `shardlease_workers{group="orders"} 1`, "status{group=\"orders\"} 3")
		stop()
		<-ended
		got := strings.ReplaceAll(problems.String(), "list the leases", "list the seats") // the first look that fails may read either
		none := "shardlease: no such group \"orders\": it has no record in table \"leases\"; 'shardlease groups' lists the groups\n"
		mute := "shardlease: the table does not answer: list the seats of group \"orders\": no answer from the table\n"
		want := none + mute + none + "shardlease: the group exists now\n" + mute + "shardlease: the table answers again\n"
		if got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	})
}
