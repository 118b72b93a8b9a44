package store

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/storm"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	stormSeed  = flag.Uint64("storm.seed", 1, "first seed of TestStorm; a failure prints its own")
	stormLost  = flag.Int("storm.lost", 0, "the minimum number of writes that TestStorm leaves without a reply and delivers late")
	stormSteps = 400 // for each seed
)

// weather configures the network of a storm.
type weather struct {
	*network.Faulty
	chance                *rand.Rand
	lost, late, throttled int
}

// TestStorm runs the storm of package storetest on DynamoDB Local, through a network that loses
// requests and replies, delivers them late and twice, throttles, and answers with server faults. The
// judge sees the writes that the service has accepted.
func TestStorm(t *testing.T) {
	local.Beside(t)
	var lost, silent, late, throttled, tenures, stored int
	least := fixture.Or(*stormLost, 20, 150)
	for seed := *stormSeed; lost < least || late < least; seed++ {
		w, check, s := stormOnce(t, seed)
		lost, silent, late, throttled = lost+w.lost, silent+w.Silent, late+w.late, throttled+w.throttled
		tenures, stored = tenures+s.Tenures(), stored+check.Count()
	}
	if t.Failed() {
		return
	}
	t.Logf("%d writes stored, %d tenures; %d replies lost (%d of them of writes that were stored), %d delivered late, %d throttled or failed by the service; none reported lost that was stored and not overtaken, none applied twice, no position moved back, no generation reused",
		stored, tenures, lost, silent, late, throttled)
}

func stormOnce(t *testing.T, seed uint64) (*weather, *judge.Store, *storm.Storm) {
	t.Helper()
	table := local.Table(t)
	calm := local.Open(t, local.Client(t, nil), table)
	check := judge.NewStore(calm, checkpoint.Decimal)
	w := &weather{chance: rand.New(rand.NewPCG(seed, 2))}
	w.Faulty = network.NewFaulty(w.decide)
	// Half of the storms make one attempt per call; in the other half the store repeats
	// requests. Half of either have their rows in four buckets.
	rough := local.Open(t, local.Client(t, w.Over), table, dynamostore.Options{Attempts: int(seed%2) * 3, Group: "group", Buckets: 1 + int(seed/2%2)*3})
	w.Done = func(action string, body []byte) {
		id, k, ok := written(action, body)
		if !ok {
			return
		}
		r, err := calm.Get(t.Context(), k)
		if err != nil {
			t.Fatalf("seed %d: the row that %s left cannot be read: %v", seed, id, err)
		}
		check.Saw(id, r.(lease.Row))
	}
	s := storm.New(rough, check, seed)
	for n := range stormSteps {
		if err := errors.Join(w.arrive(), s.Step(t.Context()), check.Err()); err != nil {
			t.Fatalf("seed %d, step %d: %v\nreplay: go test ./integration/store -run TestStorm -storm.lost 1 -storm.seed %d", seed, n, err, seed)
		}
	}
	if err := errors.Join(s.Settle(t.Context()), check.Err()); err != nil {
		t.Fatalf("seed %d, settling: %v", seed, err)
	}
	return w, check, s
}

// decide draws the fault of a request. It changes nothing for the requests of Open, which come
// first and have a key of their own.
func (w *weather) decide(action string, body []byte) network.Fault {
	if _, _, write := written(action, body); !write {
		return network.Fault{DropRequest: action == "GetItem" && w.chance.IntN(10) == 0}
	}
	switch x := w.chance.Float64(); {
	case x < 0.30:
		w.lost++
		return network.Fault{DropReply: true}
	case x < 0.60:
		w.late++
		return network.Fault{Hold: true}
	case x < 0.63:
		return network.Fault{DropRequest: true}
	case x < 0.66:
		return network.Fault{Twin: true}
	case x < 0.69:
		w.throttled++
		return network.Fault{Code: "ThrottlingException", Reason: "TableWriteKeyRangeThroughputExceeded"}
	case x < 0.71:
		w.throttled++
		return network.Fault{Code: "InternalServerError", Status: 500}
	}
	return network.Fault{}
}

// arrive lets some of the held requests reach the service.
func (w *weather) arrive() error {
	for w.Pending() > 0 && w.chance.IntN(3) == 0 {
		if _, err := w.Release(w.chance.IntN(w.Pending())); err != nil {
			return err
		}
	}
	return nil
}

var setsWriteID = regexp.MustCompile(`#writeId = (:\w+)`)

// written returns the write of a lease row that a request makes.
func written(action string, body []byte) (lease.WriteID, lease.Key, bool) {
	type text struct{ S string }
	var request struct {
		Item, Key                 map[string]text
		UpdateExpression          string
		ExpressionAttributeValues map[string]text
	}
	if action != "PutItem" && action != "UpdateItem" || json.Unmarshal(body, &request) != nil {
		return "", lease.Key{}, false
	}
	id, at := request.Item[attr.WriteID].S, request.Item
	if m := setsWriteID.FindStringSubmatch(request.UpdateExpression); m != nil {
		id, at = request.ExpressionAttributeValues[m[1]].S, request.Key
	}
	group, kind := network.Partition(at[attr.Group].S)
	return lease.WriteID(id), lease.Key{Group: group, Kind: lease.KindLease, Name: at[attr.Key].S}, id != "" && kind == "lease"
}

// TestThrottledForHalfALease: while all requests about lease rows are throttled, heartbeats are
// stored, and a waiting commit is stored afterwards.
func TestThrottledForHalfALease(t *testing.T) {
	local.Endpoint(t)
	table := local.Table(t)
	const leaseTime = 2 * time.Second
	var until time.Time
	throttled := 0
	f := network.NewFaulty(func(action string, body []byte) network.Fault {
		if _, _, row := written(action, body); row && time.Now().Before(until) {
			throttled++
			return network.Fault{Code: "ProvisionedThroughputExceededException", Reason: "TableWriteKeyRangeThroughputExceeded"}
		}
		return network.Fault{}
	})
	s := local.Open(t, local.Client(t, f.Over), table)
	row := fixture.Must[lease.Row](t, s)
	seat := fixture.Must[lease.Seat](t, s)
	r := row(protocol.Claim(row(protocol.Begin("orders", "shard-1", nil, "a", fixture.Stamp())), fixture.Worker("a"), fixture.Stamp()))
	chair := seat(protocol.Sit(lease.Seat{Group: "orders", Incarnation: fixture.Worker("a").Incarnation, Name: "a", TTL: leaseTime}, fixture.Stamp()))

	until = time.Now().Add(leaseTime / 2)
	committed := make(chan lease.Row)
	go func() {
		committed <- row(protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: "1"}, fixture.Stamp()))
	}()
	for time.Now().Before(until) {
		sent := time.Now()
		chair = seat(protocol.NextBeat(chair, lease.Says{}, fixture.Stamp()))
		if took := time.Since(sent); took > leaseTime/4 && fixture.Long() {
			t.Errorf("a heartbeat took %v while commits were throttled", took)
		}
	}
	if chair.Beat < 3 { // a heartbeat behind the commit waits for the end of the throttling
		t.Errorf("%d heartbeats while commits were throttled", chair.Beat)
	}
	if got := <-committed; got.Checkpoint.Position != "1" {
		t.Errorf("after the throttling: %v", got)
	}
	fmt.Fprintf(t.Output(), "%d requests throttled, %d beats meanwhile\n", throttled, chair.Beat)
}

// TestBeatsHaveALaneOfTheirOwn: while hanging requests occupy every slot for lease rows, a heartbeat
// is stored at once, and a commit without a slot returns an error when its time is over.
func TestBeatsHaveALaneOfTheirOwn(t *testing.T) {
	local.Beside(t)
	const timeout = 2 * time.Second // it may be long, because only the commits wait for it
	var mu sync.Mutex
	hanging := false
	release := make(chan struct{})
	f := network.NewFaulty(func(action string, body []byte) network.Fault {
		mu.Lock()
		hang := hanging
		mu.Unlock()
		if _, _, row := written(action, body); row && hang {
			<-release
		}
		return network.Fault{}
	})
	s := local.Open(t, local.Client(t, f.Over), local.Table(t), dynamostore.Options{InFlight: 1, Timeout: timeout})
	row, seat := fixture.Must[lease.Row](t, s), fixture.Must[lease.Seat](t, s)
	r := row(protocol.Claim(row(protocol.Begin("orders", "shard-1", nil, "a", fixture.Stamp())), fixture.Worker("a"), fixture.Stamp()))
	chair := seat(protocol.Sit(lease.Seat{Group: "orders", Incarnation: fixture.Worker("a").Incarnation, Name: "a", TTL: time.Second}, fixture.Stamp()))

	mu.Lock()
	hanging = true
	mu.Unlock()
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		w, err := protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: fmt.Sprint(i)}, fixture.Stamp())
		if err != nil {
			t.Fatal(err)
		}
		both.Go(func() { _, errs[i] = s.Write(t.Context(), w) })
	}
	for range 10 {
		chair = seat(protocol.NextBeat(chair, lease.Says{}, fixture.Stamp()))
	}
	time.AfterFunc(timeout*3/2, func() { close(release) })
	both.Wait()
	for _, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a commit without an answer: got %v", err)
		}
	}
}
