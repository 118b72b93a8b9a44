package integration

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/internal/storm"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	stormSeed  = flag.Uint64("storm.seed", 1, "first seed of TestStorm; a failure prints its own")
	stormLost  = flag.Int("storm.lost", 150, "how many writes TestStorm leaves without a reply, and delivers late, at least")
	stormSteps = 400 // for each seed
)

// weather is what a storm's network does.
type weather struct {
	*faulty
	chance                *rand.Rand
	lost, late, throttled int
}

// TestStorm lets the storm loose on DynamoDB Local through a network that drops
// requests and replies, delivers late and twice, throttles, and answers with
// server faults. The judge sees what the service itself has accepted.
func TestStorm(t *testing.T) {
	endpoint(t)
	var lost, silent, late, throttled, tenures, stored int
	for seed := *stormSeed; lost < *stormLost || late < *stormLost; seed++ {
		w, judge, s := stormOnce(t, seed)
		lost, silent, late, throttled = lost+w.lost, silent+w.silent, late+w.late, throttled+w.throttled
		tenures, stored = tenures+s.Tenures(), stored+judge.Count()
	}
	if t.Failed() {
		return
	}
	t.Logf("%d writes stored, %d tenures; %d replies lost (%d of them of writes that were stored), %d delivered late, %d throttled or failed by the service; none reported lost that was stored and not overtaken, none applied twice, no position moved back, no generation reused",
		stored, tenures, lost, silent, late, throttled)
}

func stormOnce(t *testing.T, seed uint64) (*weather, *storm.Judge, *storm.Storm) {
	t.Helper()
	table := newTable(t)
	calm := open(t, newClient(t, nil), table)
	judge := storm.NewJudge(calm, checkpoint.Decimal)
	w := &weather{chance: rand.New(rand.NewPCG(seed, 2))}
	w.faulty = newFaulty(w.decide)
	// Half of the storms send each call once, half leave it to the store to
	// send again.
	rough, err := dynamostore.Open(t.Context(), newClient(t, w.over), table, dynamostore.Options{Attempts: int(seed%2) * 3})
	if err != nil {
		t.Fatal(err)
	}
	w.done = func(action string, body []byte) {
		id, k, ok := written(action, body)
		if !ok {
			return
		}
		r, err := calm.Get(t.Context(), k)
		if err != nil {
			t.Fatalf("seed %d: the row that %s left cannot be read: %v", seed, id, err)
		}
		judge.Saw(id, r.(lease.Row))
	}
	s := storm.New(rough, judge, seed)
	for n := range stormSteps {
		if err := errors.Join(w.arrive(), s.Step(t.Context()), judge.Err()); err != nil {
			t.Fatalf("seed %d, step %d: %v\nreplay: go test ./integration -run TestStorm -storm.lost 1 -storm.seed %d", seed, n, err, seed)
		}
	}
	if err := errors.Join(s.Settle(t.Context()), judge.Err()); err != nil {
		t.Fatalf("seed %d, settling: %v", seed, err)
	}
	return w, judge, s
}

// decide draws what happens to one request. Open's requests come first and are
// left alone: its key names itself.
func (w *weather) decide(action string, body []byte) fault {
	if _, _, write := written(action, body); !write {
		return fault{dropRequest: action == "GetItem" && w.chance.IntN(10) == 0}
	}
	switch x := w.chance.Float64(); {
	case x < 0.30:
		w.lost++
		return fault{dropReply: true}
	case x < 0.60:
		w.late++
		return fault{hold: true}
	case x < 0.63:
		return fault{dropRequest: true}
	case x < 0.66:
		return fault{twin: true}
	case x < 0.69:
		w.throttled++
		return fault{code: "ThrottlingException", reason: "TableWriteKeyRangeThroughputExceeded"}
	case x < 0.71:
		w.throttled++
		return fault{code: "InternalServerError", status: 500}
	}
	return fault{}
}

// arrive lets some of what is held reach the service.
func (w *weather) arrive() error {
	for len(w.held) > 0 && w.chance.IntN(3) == 0 {
		if err := w.release(w.chance.IntN(len(w.held))); err != nil {
			return err
		}
	}
	return nil
}

var setsWriteID = regexp.MustCompile(`#writeId = (:\d+)`)

// written reads from a request which write of a lease row it is.
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
	id, at := request.Item[lease.AttrWriteID].S, request.Item
	if m := setsWriteID.FindStringSubmatch(request.UpdateExpression); m != nil {
		id, at = request.ExpressionAttributeValues[m[1]].S, request.Key
	}
	group, found := strings.CutSuffix(at[lease.AttrGroup].S, "/lease")
	return lease.WriteID(id), lease.Key{Group: group, Kind: lease.KindLease, Name: at[lease.AttrKey].S}, id != "" && found
}

// TestThrottledForHalfALease: while everything about lease rows is throttled,
// beats go through, and a commit that waits goes through afterwards.
func TestThrottledForHalfALease(t *testing.T) {
	endpoint(t)
	table := newTable(t)
	const leaseTime = 2 * time.Second
	var until time.Time
	throttled := 0
	f := newFaulty(func(action string, body []byte) fault {
		if _, _, row := written(action, body); row && time.Now().Before(until) {
			throttled++
			return fault{code: "ProvisionedThroughputExceededException", reason: "TableWriteKeyRangeThroughputExceeded"}
		}
		return fault{}
	})
	s := open(t, newClient(t, f.over), table)
	row := must[lease.Row](t, s)
	seat := must[lease.Seat](t, s)
	r := row(row(lease.Begin("orders", "shard-1", nil, "a", stamp())).Claim(worker("a"), stamp()))
	chair := seat(lease.Seat{Group: "orders", Incarnation: worker("a").Incarnation, Name: "a", TTL: leaseTime}.Sit(stamp()))

	until = time.Now().Add(leaseTime / 2)
	committed := make(chan lease.Row)
	go func() { committed <- row(r.Commit(hold(r), checkpoint.Mark{Position: "1"}, stamp())) }()
	for time.Now().Before(until) {
		sent := time.Now()
		chair = seat(chair.NextBeat(lease.Says{}, stamp()))
		if took := time.Since(sent); took > leaseTime/4 {
			t.Errorf("a beat took %v while commits were throttled", took)
		}
	}
	if got := <-committed; got.Checkpoint.Position != "1" {
		t.Errorf("after the throttling: %v", got)
	}
	fmt.Fprintf(t.Output(), "%d requests throttled, %d beats meanwhile\n", throttled, chair.Beat)
}

// must makes writes that have to be accepted.
func must[R lease.Record](t *testing.T, s lease.Store) func(lease.Write, error) R {
	return func(w lease.Write, err error) R {
		t.Helper()
		var none R
		if err != nil {
			t.Error(err)
			return none
		}
		got, err := s.Write(t.Context(), w)
		if err != nil {
			t.Error(err)
			return none
		}
		r, _ := got.(R)
		return r
	}
}

// TestBeatsHaveALaneOfTheirOwn: with every slot for lease rows taken by requests
// that hang, a beat goes through at once; and a commit without a slot gives up
// when its time is over, saying so.
func TestBeatsHaveALaneOfTheirOwn(t *testing.T) {
	endpoint(t)
	var mu sync.Mutex
	hanging := false
	release := make(chan struct{})
	f := newFaulty(func(action string, body []byte) fault {
		mu.Lock()
		hang := hanging
		mu.Unlock()
		if _, _, row := written(action, body); row && hang {
			<-release
		}
		return fault{}
	})
	s, err := dynamostore.Open(t.Context(), newClient(t, f.over), newTable(t), dynamostore.Options{InFlight: 1, Timeout: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	row, seat := must[lease.Row](t, s), must[lease.Seat](t, s)
	r := row(row(lease.Begin("orders", "shard-1", nil, "a", stamp())).Claim(worker("a"), stamp()))
	chair := seat(lease.Seat{Group: "orders", Incarnation: worker("a").Incarnation, Name: "a", TTL: time.Second}.Sit(stamp()))

	mu.Lock()
	hanging = true
	mu.Unlock()
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		w, err := r.Commit(hold(r), checkpoint.Mark{Position: fmt.Sprint(i)}, stamp())
		if err != nil {
			t.Fatal(err)
		}
		both.Go(func() { _, errs[i] = s.Write(t.Context(), w) })
	}
	for range 10 {
		chair = seat(chair.NextBeat(lease.Says{}, stamp()))
	}
	time.AfterFunc(600*time.Millisecond, func() { close(release) })
	both.Wait()
	for _, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a commit that nobody answers: got %v", err)
		}
	}
}
