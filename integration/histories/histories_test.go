package histories

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var historyOps = flag.Int("history.ops", 0, "the minimum number of operations that TestHistoriesAreLinearizable records and checks")

const (
	historyClients = 8
	historyShards  = 4
	historySize    = 2000 // operations of one history, at most: about 500 of each shard are checked fast
	historyTime    = time.Minute
)

// TestHistoriesAreLinearizable: eight clients send concurrent operations through a network that
// loses requests and replies and throttles. There is one order of the operations that explains
// every answer, and in which each operation is between its call and its return.
//
// The order of operations is random and depends on the scheduler, so no seed can replay it. A
// failure prints the part of the history that cannot be explained.
func TestHistoriesAreLinearizable(t *testing.T) {
	for _, buckets := range []int{1, 4} {
		t.Run(fmt.Sprint(buckets, " buckets"), func(t *testing.T) { local.Beside(t); testHistories(t, buckets) })
	}
}

func testHistories(t *testing.T, buckets int) {
	table := local.Table(t)
	f := network.NewFaulty(badLine)
	client := local.Client(t, f.Over)
	o := dynamostore.Options{Group: "any", Buckets: buckets}
	repeats := local.Open(t, client, table, o)
	o.Attempts = once.Attempts
	stores := [2]*dynamostore.Store{repeats, local.Open(t, client, table, o)}
	var total history
	for ops := fixture.Or(*historyOps, 800, 2000); total.count < ops; {
		h := record(t, stores, min(historySize, ops-total.count))
		if err := errors.Join(h.odd...); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if got := porcupine.CheckOperationsTimeout(leaseModel, h.operations, historyTime); got != porcupine.Ok {
			t.Fatalf("%d operations: %s\n%s", h.count, got, h.unexplained())
		}
		total.checking += time.Since(start)
		total.add(h)
	}
	for what, n := range total.outcomes {
		if n == 0 {
			t.Errorf("no operation was %v: the histories prove little", outcome(what))
		}
	}
	t.Logf("%d operations (%v; %d requests of the clients, %d replies of accepted writes and reads lost), checked in %v: linearizable",
		total.count, total.tally(), f.Calls["PutItem"]+f.Calls["UpdateItem"]+f.Calls["GetItem"], f.Silent, total.checking)
}

// TestHistoriesWithoutTheFenceAreNot: the check detects updates whose only condition is that the
// row exists.
func TestHistoriesWithoutTheFenceAreNot(t *testing.T) {
	local.Beside(t)
	table := local.Table(t)
	f := network.NewFaulty(func(action string, body []byte) network.Fault {
		what := badLine(action, body)
		if action == "UpdateItem" {
			what.Edit = network.RemoveFence
		}
		return what
	})
	// Without the fence rows soon become unreadable. A store with retries would then repeat
	// each request until its time is over.
	s := local.Open(t, local.Client(t, f.Over), table, once)
	h := record(t, [2]*dynamostore.Store{s, s}, 400)
	if got := porcupine.CheckOperationsTimeout(leaseModel, h.operations, historyTime); got != porcupine.Illegal {
		t.Errorf("%d operations (%v): %s, want %s", h.count, h.tally(), got, porcupine.Illegal)
	}
}

// badLine loses and throttles requests about lease rows, but not those of Open and Verify.
func badLine(action string, body []byte) network.Fault {
	if action == "Query" || !bytes.Contains(body, []byte(`/lease`)) {
		return network.Fault{}
	}
	switch x := rand.Float64(); {
	case x < 0.05:
		return network.Fault{DropRequest: true}
	case x < 0.12:
		return network.Fault{DropReply: true}
	case x < 0.16:
		return network.Fault{Code: "ThrottlingException", Reason: "TableWriteKeyRangeThroughputExceeded"}
	}
	return network.Fault{}
}

// once are the options of a store that makes one attempt per call; its caller repeats calls.
var once = dynamostore.Options{Attempts: 1}

// A state contains the attributes that conditions check and answers show. The zero state means
// that there is no row.
type state struct {
	generation, counter int64
	id                  lease.WriteID
	owner, offer        lease.Incarnation
	position            string
}

func stateOf(r lease.Record) state {
	row, _ := r.(lease.Row)
	return state{row.Generation, row.Counter, row.WriteID, row.Owner.Incarnation, row.OfferedTo, row.Checkpoint.Position}
}

func (s state) String() string {
	if s == (state{}) {
		return "no row"
	}
	return fmt.Sprintf("%d/%d by %.5s held by %q offered to %q at %q", s.generation, s.counter, s.id, s.owner, s.offer, s.position)
}

// A request is a read, or a write of next over old.
type request struct {
	shard     string
	op        lease.Op // 0: a read
	old, next state
}

type outcome uint8

const (
	read outcome = iota
	stored
	refused
	unknown
)

func (o outcome) String() string { return [...]string{"read", "stored", "refused", "unknown"}[o] }

// An answer is the outcome of an operation, and the row in it.
type answer struct {
	what outcome
	row  state
}

// leaseModel defines independently of Write.Apply what a row becomes. If it used Write.Apply, both
// could have the same error.
var leaseModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		shards := map[string][]porcupine.Operation{}
		for _, op := range all {
			shard := op.Input.(request).shard
			shards[shard] = append(shards[shard], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range shards {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(at, in, out any) (bool, any) { return explains(at.(state), in.(request), out.(answer)) },
}

// explains reports whether a row at that state gives that answer, and returns the state
// afterwards.
//
// An unknown write returns at the end of the history, so it may be anywhere after its call. If
// its condition holds there, it is stored; if not, it is not. A write that never arrived is
// placed last, after all reads.
func explains(at state, in request, out answer) (bool, state) {
	holds, after := in.on(at)
	switch out.what {
	case stored:
		return holds && out.row == after, after
	case unknown:
		if holds {
			return true, after
		}
		return true, at
	case refused:
		return !holds && out.row == at, at
	}
	return out.row == at, at
}

// on returns whether the condition of a write holds, and the state after it.
func (in request) on(at state) (holds bool, after state) {
	after = in.next
	switch in.op {
	case lease.OpCreate:
		return at == state{}, after
	case lease.OpSwap:
		return at.id == in.old.id, after
	case lease.OpTransfer:
		after.counter, after.position = at.counter+1, at.position
		taken := in.old.offer != "" && in.old.offer == in.next.owner
		return at.generation == in.old.generation && at.owner == in.old.owner && (!taken || at.offer == in.old.offer), after
	}
	return false, after
}

// history records the calls of clients and their answers.
type history struct {
	operations []porcupine.Operation
	outcomes   [unknown + 1]int
	count      int
	odd        []error // rows that are impossible or cannot be read
	checking   time.Duration
}

func (h *history) add(other history) {
	h.operations = append(h.operations, other.operations...)
	h.odd = append(h.odd, other.odd...)
	h.count += other.count
	for what, n := range other.outcomes {
		h.outcomes[what] += n
	}
}

func (h *history) tally() string {
	var parts []string
	for what, n := range h.outcomes {
		parts = append(parts, fmt.Sprintf("%d %v", n, outcome(what)))
	}
	return strings.Join(parts, ", ")
}

// record lets the clients make that many operations at once, on new shards.
func record(t *testing.T, stores [2]*dynamostore.Store, operations int) history {
	t.Helper()
	group := "g-" + strconv.FormatUint(rand.Uint64(), 36)
	if err := stores[0].Verify(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	clients := make([]*historian, historyClients)
	var all sync.WaitGroup
	for i := range clients {
		c := &historian{t: t, n: i, me: fixture.Worker(fmt.Sprintf("w%d", i)), store: stores[i%2], start: start}
		for shard := range historyShards {
			c.shards = append(c.shards, view{key: lease.Key{Group: group, Kind: lease.KindLease, Name: fmt.Sprintf("shard-%d", shard)}})
		}
		clients[i] = c
		all.Go(func() {
			for c.count*historyClients < operations && t.Context().Err() == nil {
				c.step(&c.shards[rand.IntN(len(c.shards))])
			}
		})
	}
	all.Wait()
	var h history
	for _, c := range clients {
		h.add(c.history)
	}
	return h
}

// A historian is one client. It acts on its own view of the rows, which is often out of date, and
// follows no rule of the protocol except those in the transitions: it treats an owner as dead at
// random, and repeats an unanswered write only sometimes.
type historian struct {
	t     *testing.T
	n     int
	me    lease.Owner
	store *dynamostore.Store
	start time.Time
	history
	shards []view
}

// A view is what a client knows of a shard.
type view struct {
	key  lease.Key
	row  lease.Row
	torn *lease.Write // the last write, if it was not answered
}

func (c *historian) step(v *view) {
	if w := v.torn; w != nil && rand.IntN(2) == 0 {
		c.write(v, *w)
		return
	}
	v.torn = nil
	w, err := c.move(v)
	switch {
	case err != nil:
		c.odd = append(c.odd, err)
		c.read(v)
	case w.Op == 0:
		c.read(v)
	default:
		c.write(v, w)
	}
}

// move returns the next write of the client to a shard; the zero write means a read.
func (c *historian) move(v *view) (lease.Write, error) {
	r, chance := v.row, rand.IntN(12)
	switch {
	case r.Generation == 0:
		return protocol.Begin(v.key.Group, v.key.Name, nil, c.me.Name, fixture.Stamp())
	case chance < 2:
		return lease.Write{}, nil
	case r.Owner.IsZero():
		return protocol.Claim(r, c.me, fixture.Stamp())
	case r.OfferedTo == c.me.Incarnation:
		return protocol.Take(r, c.me, fixture.Stamp())
	case r.Owner.Incarnation != c.me.Incarnation && chance < 8:
		return lease.Write{}, nil
	case r.Owner.Incarnation != c.me.Incarnation:
		return protocol.Recover(r, c.me, fixture.Stamp())
	case chance == 2:
		return protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp())
	case r.OfferedTo != "" && chance <= 7:
		return protocol.Withdraw(r, fixture.Hold(r), fixture.Stamp())
	case chance <= 5:
		other := fixture.Worker(fmt.Sprintf("w%d", (c.n+1+rand.IntN(historyClients-1))%historyClients))
		return protocol.Offer(r, fixture.Hold(r), other.Incarnation, checkpoint.Mark{}, fixture.Stamp())
	}
	last, _ := strconv.Atoi(r.Checkpoint.Position) // 0 if there is no position
	return protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: strconv.Itoa(last + 1)}, fixture.Stamp())
}

func (c *historian) now() int64 { return time.Since(c.start).Nanoseconds() }

// read reads the row. A read without an answer proves nothing and is not part of the history.
func (c *historian) read(v *view) {
	call := c.now()
	r, err := c.store.Get(c.t.Context(), v.key)
	returned := c.now()
	switch {
	case errors.Is(err, lease.ErrMalformed):
		c.odd = append(c.odd, err)
		return
	case err != nil && !errors.Is(err, lease.ErrNotFound):
		return
	}
	v.row, _ = r.(lease.Row)
	c.operation(request{shard: v.key.Name}, answer{read, stateOf(r)}, call, returned)
}

const never = math.MaxInt64

func (c *historian) write(v *view, w lease.Write) {
	in := request{v.key.Name, w.Op, stateOf(w.Old), stateOf(w.Next)}
	call := c.now()
	r, err := c.store.Write(c.t.Context(), w)
	returned := c.now()
	v.torn = nil
	no, isRefused := errors.AsType[*lease.RefusedError](err)
	switch {
	case err == nil:
		v.row = r.(lease.Row)
		c.operation(in, answer{stored, stateOf(r)}, call, returned)
	case isRefused:
		v.row, _ = no.Now.(lease.Row)
		c.operation(in, answer{refused, stateOf(no.Now)}, call, returned)
		// The store has sent the write more than once. The last attempt was refused, and the
		// outcome of the others is unknown.
		if no.Retried {
			c.operations = append(c.operations, porcupine.Operation{ClientId: c.n, Input: in, Call: call, Output: answer{what: unknown}, Return: never})
		}
	default:
		if errors.Is(err, lease.ErrMalformed) {
			c.odd = append(c.odd, err)
		}
		v.torn = &w
		c.operation(in, answer{what: unknown}, call, never)
	}
}

func (c *historian) operation(in request, out answer, call, returned int64) {
	c.count++
	c.outcomes[out.what]++
	c.operations = append(c.operations, porcupine.Operation{ClientId: c.n, Input: in, Call: call, Output: out, Return: returned})
}

// unexplained returns, for each shard without an order, the end of the longest partial order, and
// the next answer, which does not fit.
func (h *history) unexplained() string {
	var b strings.Builder
	for _, part := range leaseModel.Partition(h.operations) {
		result, info := porcupine.CheckOperationsVerbose(leaseModel, part, 10*time.Second)
		if result == porcupine.Ok {
			continue
		}
		var longest []porcupine.Operation
		for _, order := range slices.Concat(info.PartialLinearizationsOperations()...) {
			if len(order) > len(longest) {
				longest = order
			}
		}
		fmt.Fprintf(&b, "%s, %s: %d of %d operations have an order, which ends\n", part[0].Input.(request).shard, result, len(longest), len(part))
		for _, op := range longest[max(0, len(longest)-10):] {
			fmt.Fprintln(&b, "  ", describe(op))
		}
		rest := slices.DeleteFunc(slices.Clone(part), func(op porcupine.Operation) bool {
			return slices.ContainsFunc(longest, func(o porcupine.Operation) bool { return describe(o) == describe(op) })
		})
		slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		fmt.Fprintln(&b, " and of the rest these were answered first")
		for _, op := range rest[:min(len(rest), 10)] {
			fmt.Fprintln(&b, "  ", describe(op))
		}
	}
	return b.String()
}

func describe(op porcupine.Operation) string {
	in, out := op.Input.(request), op.Output.(answer)
	until, shown := time.Duration(op.Return).String(), out.row.String()
	if out.what == unknown {
		until, shown = "never", "?"
	}
	text := fmt.Sprintf("[%v, %s] w%d ", time.Duration(op.Call), until, op.ClientId)
	if in.op != 0 {
		text += fmt.Sprintf("%v of (%v) to (%v) ", in.op, in.old, in.next)
	}
	return text + fmt.Sprintf("%v: %s", out.what, shown)
}
