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
	"path/filepath"
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
	_ "modernc.org/sqlite"
)

// Package internal/proof/zombie plays the same story in fake time. Here the owner of an idle shard is a process that SIGSTOP
// freezes before its effect, and its successor another process. The lease rows are in DynamoDB Local.

// TestLateEffectOfAFrozenProcess: a process is frozen, another takes its idle shard over and writes nothing, and many lease
// times later the first one continues and writes. A register in DynamoDB, PostgreSQL, SQLite, an object in S3 and services over
// HTTP and gRPC refuse that effect if their fences were raised at the takeover. Otherwise all accept it.
func TestLateEffectOfAFrozenProcess(t *testing.T) {
	beside(t)
	for _, raised := range []bool{true, false} {
		t.Run(fmt.Sprint("raised ", raised), func(t *testing.T) {
			t.Parallel()
			at := zombieOrders{
				Endpoint: local.Endpoint(t), Table: local.Table(t), Raise: raised,
				S3: serve(t, gofakes3.New(s3mem.New()).Server()), HTTP: serve(t, zombie.Service()), GRPC: serveGRPC(t),
				Postgres: database(t), SQLite: file(t),
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
			if len(late) < 5 {
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
	SQLite                string
	S3, HTTP, GRPC        string
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
	var errs [3]error
	all["gRPC"], errs[0] = overGRPC(o.GRPC)
	all["SQLite"], errs[1] = inSQL("sqlite", o.SQLite)
	if o.Postgres != "" {
		all["PostgreSQL"], errs[2] = inSQL("postgres", o.Postgres)
	}
	return all, errors.Join(errs[:]...)
}

// inSQL returns the sink in a database that prepare has made.
func inSQL(driver, address string) (zombie.Sink, error) {
	db, err := sql.Open(driver, address)
	guard := fencesql.Guard{DB: db}
	return zombie.Sink{Raise: fence.Raise(guard), Write: func(ctx context.Context, text string) error {
		return fence.Do(ctx, guard, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO lines VALUES ($1)", text)
			return err
		})
	}}, err
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
	do(t, "postgres", url, "CREATE DATABASE "+name)
	t.Cleanup(func() { do(t, "postgres", url, "DROP DATABASE "+name+" WITH (FORCE)") })
	prepare(t, "postgres", own)
	return own
}

// file makes a database in a file, which the processes open at the same time, and returns its address. A process that finds
// the file locked waits.
func file(t *testing.T) string {
	t.Helper()
	address := "file:" + filepath.Join(t.TempDir(), "lines.db") + "?_pragma=busy_timeout(10000)&_pragma=synchronous(off)"
	prepare(t, "sqlite", address)
	return address
}

// prepare creates the tables of inSQL.
func prepare(t *testing.T, driver, address string) {
	do(t, driver, address, fencesql.Schema, "CREATE TABLE lines (text TEXT NOT NULL)")
}

func do(t *testing.T, driver, address string, statements ...string) {
	t.Helper()
	db, err := sql.Open(driver, address)
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
