package report

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

var (
	commitPairs  = flag.Int("commits", 0, "how many commits TestCommitBesideBare compares in each round; 0: it is skipped")
	commitRounds = flag.Int("commits.rounds", 5, "how many rounds it measures")
)

// TestCommitBesideBare compares commits with the bare conditional UpdateItem, in pairs: the time of one, the 99th
// percentile of 64 at the same time, and the processor time, on DynamoDB Local and with a transport that answers each
// write after 5 ms. There the 64 are compared twice: with the 16 requests that a store has under way at most, and with 64.
//
//	go test ./integration/report -run TestCommitBesideBare -commits 3000 -v
func TestCommitBesideBare(t *testing.T) {
	if *commitPairs == 0 {
		t.Skip("needs a quiet machine: run with -commits 3000")
	}
	for round := range *commitRounds {
		for _, answers := range []time.Duration{0, 5 * time.Millisecond} {
			p := newPair(t, answers, 64, 0)
			one := p.oneByOne(*commitPairs)
			used := p.processor(*commitPairs)
			many := p.atOnce(*commitPairs / 64)
			where := "DynamoDB Local"
			if answers > 0 {
				where = fmt.Sprintf("a transport that answers after %v", answers)
			}
			t.Logf("round %d, %s: median %v; processor time %v; 99th percentile of 64 at the same time %v", round+1, where, one, used, many)
			p.end()
			if answers > 0 {
				wide := newPair(t, answers, 64, 64)
				t.Logf("round %d, %s, 64 requests under way: 99th percentile of 64 at the same time %v", round+1, where, wide.atOnce(*commitPairs/64))
				wide.end()
				if one.over() > 5 {
					t.Errorf("a commit takes %.1f %% longer than the bare request", one.over())
				}
			}
		}
	}
}

// A pair has the tenures of one worker, and rows that are written without the library.
type pair struct {
	testing.TB
	tenures []*shardlease.Tenure
	bare    []*bareRow
	end     func()
}

// A compared is a figure of commits and of bare requests.
type compared struct{ commit, bare time.Duration }

func (c compared) over() float64 { return 100 * (float64(c.commit)/float64(c.bare) - 1) }

func (c compared) String() string {
	return fmt.Sprintf("%v and %v (%+.1f %%)", c.commit.Round(time.Microsecond/10), c.bare.Round(time.Microsecond/10), c.over())
}

// newPair starts a worker that holds n shards, with so many requests under way at most; 0: the default. If answers is given, the transport itself answers all writes after that
// time from then on: also the releases of the end, because the rows in the table lack all these commits.
func newPair(t *testing.T, answers time.Duration, n, inFlight int) *pair {
	var on atomic.Bool
	client := local.Client(t, func(next http.RoundTripper) http.RoundTripper {
		return &answering{next: next, on: &on, after: answers}
	})
	p, table, names := &pair{TB: t}, local.Table(t), []string(nil)
	for i := range n {
		names = append(names, fmt.Sprintf("shard-%02d", i))
		p.bare = append(p.bare, &bareRow{client: client, table: table, name: fmt.Sprintf("bare-%02d", i)})
	}
	w, err := shardlease.New(local.Open(t, client, table, dynamostore.Options{InFlight: inFlight}), shardlease.Static(names...),
		shardlease.Config{Group: "orders", TTL: time.Hour, Handoff: rebalance.Eager})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	held, ended := make(chan *shardlease.Tenure), make(chan error)
	go func() {
		ended <- w.Run(ctx, func(ctx context.Context, tn *shardlease.Tenure) error {
			held <- tn
			<-ctx.Done()
			return nil
		})
	}()
	for range n {
		p.tenures = append(p.tenures, <-held)
	}
	for _, b := range p.bare {
		if err := b.create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	on.Store(answers > 0)
	p.end = func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	p.oneByOne(300) // connections, stacks and the lane are warm then
	p.atOnce(30)
	return p
}

// commit and write store one position each, and return how long it took.
func (p *pair) commit(i, n int) time.Duration {
	began := time.Now()
	if err := p.tenures[i].Commit(p.Context(), strconv.Itoa(n)); err != nil {
		p.Error(err)
	}
	return time.Since(began)
}

func (p *pair) write(i, _ int) time.Duration {
	began := time.Now()
	if err := p.bare[i].write(p.Context()); err != nil {
		p.Error(err)
	}
	return time.Since(began)
}

// oneByOne makes n commits and n bare requests by turns, and returns the medians.
func (p *pair) oneByOne(n int) compared {
	var commits, bare lot
	for i := range n {
		commits = append(commits, p.commit(0, p.next()))
		bare = append(bare, p.write(0, i))
	}
	return compared{commits.quantile(0.5), bare.quantile(0.5)}
}

// processor returns the processor time of one commit and of one bare request. They take turns in blocks.
func (p *pair) processor(n int) (each compared) {
	const block = 100
	for range n / block {
		from := spent(p)
		for range block {
			p.commit(0, p.next())
		}
		between := spent(p)
		for i := range block {
			p.write(0, i)
		}
		each.commit += between - from
		each.bare += spent(p) - between
	}
	done := time.Duration(n / block * block)
	return compared{each.commit / done, each.bare / done}
}

// atOnce makes n commits of each shard, and then n bare requests of each row, all shards and rows at the same time. It
// returns the 99th percentiles.
func (p *pair) atOnce(n int) compared {
	percentile := func(one func(i, n int) time.Duration) time.Duration {
		var mu sync.Mutex
		var all lot
		var wg sync.WaitGroup
		from := p.next()
		for i := range p.tenures {
			wg.Go(func() {
				var took lot
				for k := range n {
					took = append(took, one(i, from+k))
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, took...)
			})
		}
		wg.Wait()
		return all.quantile(0.99)
	}
	return compared{percentile(p.commit), percentile(p.write)}
}

// positions is the last position that was used.
var positions atomic.Int64

// next returns a position above all earlier ones, with room for the commits of atOnce.
func (p *pair) next() int { return int(positions.Add(10_000)) }

// spent returns the processor time that this process has used.
func spent(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// An answering transport answers writes itself, after a time.
type answering struct {
	next  http.RoundTripper
	on    *atomic.Bool
	after time.Duration
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if !a.on.Load() || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateItem") {
		return a.next.RoundTrip(r)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	time.Sleep(a.after)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Crc32": {"2745614147"}},
		Request: r, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2,
	}, nil
}

// A bareRow is an item that looks like a lease row to DynamoDB, and is written as a program would that has no library: on
// the condition that nobody else has written, without a lane, limits or other attempts.
type bareRow struct {
	client      *dynamodb.Client
	table, name string
	counter     int
}

func (b *bareRow) key() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attr.Group: text("bare"), attr.Key: text(b.name)}
}

func (b *bareRow) create(ctx context.Context) error {
	item := b.key()
	item[attr.WriteID], item[attr.Counter] = text(b.writeID(0)), number(0)
	_, err := b.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &b.table, Item: item})
	return err
}

func (b *bareRow) writeID(n int) string { return fmt.Sprintf("4VQ6RSJN2SVLEFVR7V3CB%06d", n%1_000_000) }

func (b *bareRow) write(ctx context.Context) error {
	n := b.counter
	_, err := b.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &b.table, Key: b.key(),
		ConditionExpression: aws.String("#writeId = :was AND #leaseCounter = :read"),
		UpdateExpression:    aws.String("SET #checkpoint = :position, #checkpointAt = :at, #leaseCounter = :counter, #writeId = :id"),
		ExpressionAttributeNames: map[string]string{
			"#writeId": attr.WriteID, "#leaseCounter": attr.Counter, "#checkpoint": attr.Position, "#checkpointAt": attr.CheckpointAt,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":was": text(b.writeID(n)), ":read": number(n), ":id": text(b.writeID(n + 1)), ":counter": number(n + 1),
			":position": text(strconv.Itoa(n)), ":at": number(1764331200000 + n),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	b.counter++
	return err
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}
