//go:build unix

package processes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	_ "github.com/lib/pq"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"github.com/shardlease/shardlease-go/shardlease/fences3"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
)

// Package internal/proof/zombie plays the same story in fake time. Here the owner of an idle shard is a process that SIGSTOP
// freezes before its effect, and its successor another process. The lease rows are in DynamoDB Local.

// TestLateEffectOfAFrozenProcess: a process is frozen, another takes its idle shard over and writes nothing, and many lease
// times later the first one continues and writes. A register in DynamoDB, PostgreSQL, an object in S3 and a service over HTTP
// refuse that effect if their fences were raised at the takeover. Otherwise all accept it.
func TestLateEffectOfAFrozenProcess(t *testing.T) {
	beside(t)
	for _, raised := range []bool{true, false} {
		t.Run(fmt.Sprint("raised ", raised), func(t *testing.T) {
			t.Parallel()
			at := zombieOrders{
				Endpoint: local.Endpoint(t), Table: local.Table(t), Raise: raised,
				S3: serve(t, gofakes3.New(s3mem.New()).Server()), HTTP: serve(t, zombie.Service()), Postgres: database(t),
			}
			if _, err := at.client().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("bucket")}); err != nil {
				t.Fatal(err)
			}
			a := at.start(t, "a")
			first := a.hears(t)
			a.writes(t, "first")
			for sink, outcome := range a.hears(t).Effects {
				if outcome != accepted {
					t.Errorf("%s: the first effect of a: %s", sink, outcome)
				}
			}
			a.signal(t, syscall.SIGSTOP)
			b := at.start(t, "b")
			if second := b.hears(t); second.Generation <= first.Generation {
				t.Errorf("generation %d after %d", second.Generation, first.Generation)
			}
			fixture.Sleep(t, 5*leaseTime())
			a.writes(t, "late")
			a.signal(t, syscall.SIGCONT)
			late := a.hears(t).Effects
			want := accepted
			if raised {
				want = refused
			}
			if len(late) < 3 {
				t.Errorf("a has written to %v only", slices.Sorted(maps.Keys(late)))
			}
			for sink, outcome := range late {
				if outcome != want {
					t.Errorf("%s: the late effect of a: %s, want: %s", sink, outcome, want)
				}
			}
		})
	}
}

// The fates of an effect. Another one is the text of an error.
const (
	accepted = "accepted"
	refused  = "refused by the fence"
)

// zombieEnv contains the orders of such a process, as JSON.
const zombieEnv = "SHARDLEASE_PROCESS_ZOMBIE"

// Zombie orders name the sinks of a process, and whether it raises their fences.
type zombieOrders struct {
	Name, Endpoint, Table string
	Postgres              string // empty: there is none
	S3, HTTP              string
	Raise                 bool
}

// A zombieReport says that a handler has started, or what became of the effects that it was told to make.
type zombieReport struct {
	Generation int64
	Effects    map[string]string // by sink
}

// A puppet is a process that writes when it is told to.
type puppet struct {
	life    io.Writer
	kill    func(os.Signal) error
	reports *json.Decoder
}

// start starts a process, and kills it at the end of the test.
func (o zombieOrders) start(t *testing.T, name string) puppet {
	t.Helper()
	var out bytes.Buffer
	o.Name = name
	cmd, life, reports := spawn(t, "TestZombieProcess", zombieEnv, o, &out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = reports.Close()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, out.Bytes())
		}
	})
	return puppet{life, cmd.Process.Signal, json.NewDecoder(reports)}
}

// writes tells the process to make its effects. A frozen process makes them when it continues.
func (p puppet) writes(t *testing.T, text string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.life, text); err != nil {
		t.Fatal(err)
	}
}

func (p puppet) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.kill(s); err != nil {
		t.Fatal(err)
	}
}

// hears waits for the next report.
func (p puppet) hears(t *testing.T) (r zombieReport) {
	t.Helper()
	heard := make(chan error, 1)
	go func() { heard <- p.reports.Decode(&r) }()
	select {
	case err := <-heard:
		if err != nil {
			t.Fatalf("the process has ended: %v", err)
		}
	case <-time.After(patience + 10*leaseTime()):
		t.Fatal("the process reports nothing")
	}
	return r
}

// TestZombieProcess is no test, but the main function of such a process.
func TestZombieProcess(t *testing.T) {
	text := os.Getenv(zombieEnv)
	if text == "" {
		t.Skip("this is the process that TestLateEffectOfAFrozenProcess starts")
	}
	var o zombieOrders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if err := o.run(t); err != nil {
		t.Error(err)
	}
}

func (o zombieOrders) run(t *testing.T) error {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	orders := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
		stop()
	}()
	store, err := dynamostore.Open(ctx, local.NewClient(o.Endpoint, http.DefaultTransport), o.Table, dynamostore.Options{Group: "orders"})
	if err != nil {
		return err
	}
	sinks, err := o.sinks(store)
	if err != nil {
		return err
	}
	config := shardlease.Config{Group: "orders", Name: o.Name, Handoff: rebalance.Eager, TTL: leaseTime()}
	for name, k := range sinks {
		target := shardlease.Target{Name: name}
		if o.Raise {
			target.Raise = k.Raise
		}
		config.Targets = append(config.Targets, target)
	}
	w, err := shardlease.New(store, shardlease.Static("shard-0"), config)
	if err != nil {
		return err
	}
	pipe := os.NewFile(3, "reports")
	defer pipe.Close()
	report := json.NewEncoder(pipe)
	// The handler does not look at its contexts before it writes, like a process that is frozen between the two.
	return w.Run(ctx, func(_ context.Context, tn *shardlease.Tenure) error {
		_ = report.Encode(zombieReport{Generation: tn.Generation()})
		for {
			select {
			case text := <-orders:
				_ = report.Encode(zombieReport{Effects: writeAll(context.WithoutCancel(tn.Context()), sinks, text)})
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// writeAll makes an effect in each sink, and returns what became of it.
func writeAll(ctx context.Context, sinks map[string]zombie.Sink, text string) map[string]string {
	effects := map[string]string{}
	for name, k := range sinks {
		switch err := k.Write(ctx, text); {
		case err == nil:
			effects[name] = accepted
		case errors.Is(err, checkpoint.ErrStale):
			effects[name] = refused
		default:
			effects[name] = err.Error()
		}
	}
	return effects
}

// sinks returns the sinks by their names.
func (o zombieOrders) sinks(store *dynamostore.Store) (map[string]zombie.Sink, error) {
	registered := func(r interface {
		Put(ctx context.Context, name string, generation int64, value string) error
		Raise(ctx context.Context, name string, generation int64) error
	}) zombie.Sink {
		return zombie.Sink{Raise: r.Raise, Write: func(ctx context.Context, text string) error {
			t, _ := fence.FromContext(ctx)
			return r.Put(ctx, t.Shard, t.Generation, text)
		}}
	}
	all := map[string]zombie.Sink{
		"register": registered(store.Register("orders")),
		"S3":       registered(&fences3.Register{Client: o.client(), Bucket: "bucket", Prefix: "fences/"}),
		"HTTP":     zombie.OverHTTP(&http.Client{Transport: &fencehttp.Transport{}}, o.HTTP),
	}
	if o.Postgres == "" {
		return all, nil
	}
	db, err := sql.Open("postgres", o.Postgres)
	guard := fencesql.Guard{DB: db}
	all["PostgreSQL"] = zombie.Sink{Raise: fence.Raise(guard), Write: func(ctx context.Context, text string) error {
		return fence.Do(ctx, guard, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO lines VALUES ($1)", text)
			return err
		})
	}}
	return all, err
}

// client returns a client of S3.
func (o zombieOrders) client() *s3.Client {
	return s3.New(s3.Options{
		Region: "eu-central-1", BaseEndpoint: &o.S3, UsePathStyle: true, HTTPClient: http.DefaultClient,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
}

// serve starts a server for a test, and returns its address.
func serve(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return server.URL
}

// database makes a database in the PostgreSQL at SHARDLEASE_POSTGRES, and returns its address; empty: there is no server.
// Without it, the test has the other sinks, and fails if SHARDLEASE_REQUIRE_POSTGRES is 1.
func database(t *testing.T) string {
	t.Helper()
	url := os.Getenv("SHARDLEASE_POSTGRES")
	if url == "" {
		if os.Getenv("SHARDLEASE_REQUIRE_POSTGRES") == "1" {
			t.Fatal("SHARDLEASE_POSTGRES is not set: run integration/start-postgres")
		}
		return ""
	}
	name := "zombie_" + strings.ToLower(rand.Text())
	own := strings.Replace(url, "/postgres?", "/"+name+"?", 1)
	do := func(url string, statements ...string) {
		db, err := sql.Open("postgres", url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, statement := range statements {
			if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
				t.Error(err)
			}
		}
	}
	do(url, "CREATE DATABASE "+name)
	t.Cleanup(func() { do(url, "DROP DATABASE "+name+" WITH (FORCE)") })
	do(own, fencesql.Schema, "CREATE TABLE lines (text TEXT NOT NULL)")
	return own
}
