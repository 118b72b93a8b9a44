package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
	for _, private := range []string{"shard-0", "host-1", "canary"} {
		if strings.Contains(text, private) {
			t.Errorf("the page has a name or a position: %s\n%s", private, text)
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

// TestExporterTellsOfAFailure: while looks fail, the page says so and shows no old figures.
func TestExporterTellsOfAFailure(t *testing.T) {
	w := newWorld()
	w.clock = time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC) // two hours into a bubble
	w.seeds(t, exported)
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
		page := new(metricsPage)
		expect := func(code int, with, without string) {
			t.Helper()
			r := httptest.NewRecorder()
			page.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
			if text := r.Body.String(); r.Code != code || !strings.Contains(text, with) || without != "" && strings.Contains(text, without) {
				t.Errorf("%d, with %q and without %q:\n%s", r.Code, with, without, text)
			}
		}
		expect(http.StatusServiceUnavailable, "", "shardlease_")
		ended := make(chan struct{})
		go func() { defer close(ended); o.renew(ctx, from, page) }()
		synctest.Wait()
		expect(http.StatusOK, `shardlease_workers{group="orders"} 1`, "status{group=\"orders\"} 3")
		w.tables.change(func() { w.tables.fault = "reads" })
		time.Sleep(time.Minute)
		expect(http.StatusOK, `shardlease_check_status{group="orders"} 3`, "workers")
		w.tables.change(func() { w.tables.fault = "" })
		time.Sleep(time.Minute)
		expect(http.StatusOK, `shardlease_workers{group="orders"} 1`, "status{group=\"orders\"} 3")
		stop()
		<-ended
		if got, want := problems.String(), "shardlease: the table does not answer: list the seats of group \"orders\": no answer from the table\nshardlease: the table answers again\n"; got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	})
}
