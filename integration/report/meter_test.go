package report

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A meter counts requests, and capacity units by DynamoDB's billing rules:
//
//   - a write costs a unit for each started kilobyte of the item before or after the write,
//     whichever is larger, and at least one unit;
//   - a write whose condition fails costs the same;
//   - a consistent read costs a unit for each started four kilobytes, an eventually consistent
//     read half of that; a query counts as one read of all its items together;
//   - deletions by time to live are free, and the tests make none.
//
// The meter leaves out what kindOf leaves out. DynamoDB Local bills nothing, so the meter reads the items itself.
type meter struct {
	next     http.RoundTripper
	endpoint string

	mu    sync.Mutex
	bills map[string]bill // bills by action
}

type bill struct {
	requests int
	writes   int
	reads    float64
}

func (b bill) String() string {
	return fmt.Sprintf("%d requests, %d write units, %g read units", b.requests, b.writes, b.reads)
}

func newMeter(t *testing.T) *meter {
	t.Helper()
	return &meter{endpoint: local.Endpoint(t), bills: map[string]bill{}}
}

func (m *meter) over(next http.RoundTripper) http.RoundTripper {
	m.next = next
	return m
}

// since returns the counts of the meter and resets it.
func (m *meter) since() map[string]bill {
	m.mu.Lock()
	defer m.mu.Unlock()
	bills := m.bills
	m.bills = map[string]bill{}
	return bills
}

// total returns the sum over all actions.
func total(bills map[string]bill) bill {
	var sum bill
	for _, b := range bills {
		sum = bill{sum.requests + b.requests, sum.writes + b.writes, sum.reads + b.reads}
	}
	return sum
}

type item map[string]map[string]any // attributes by name, in the JSON of the wire

type metered struct {
	TableName      string
	Key, Item      item
	ConsistentRead bool
	Values         item `json:"ExpressionAttributeValues"`
}

func (m *meter) RoundTrip(request *http.Request) (*http.Response, error) {
	action, body, err := network.Read(request)
	if err != nil {
		return nil, err
	}
	var asked metered
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	if isOfEnds(partitionOf(asked.Key, asked.Item, asked.Values)) {
		return m.next.RoundTrip(request)
	}
	before := m.size(action, asked)
	response, err := m.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	reply, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(reply))
	m.count(action, asked, before, reply)
	return response, nil
}

func (m *meter) count(action string, asked metered, before int, reply []byte) {
	var answer struct {
		Item  item
		Items []item
	}
	_ = json.Unmarshal(reply, &answer)
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bills[action]
	b.requests++
	share := 0.5
	if asked.ConsistentRead {
		share = 1
	}
	switch action {
	case "PutItem", "UpdateItem", "DeleteItem":
		b.writes += units(max(before, m.size(action, asked)), 1024)
	case "GetItem":
		b.reads += share * float64(units(answer.Item.size(), 4096))
	case "Query":
		read := 0
		for _, i := range answer.Items {
			read += i.size()
		}
		b.reads += share * float64(units(read, 4096))
	}
	m.bills[action] = b
}

func units(size, per int) int { return max((size+per-1)/per, 1) }

// size returns the present size of the item that a write is about.
func (m *meter) size(action string, asked metered) int {
	key := asked.Key
	if action == "PutItem" {
		key = item{attr.Group: asked.Item[attr.Group], attr.Key: asked.Item[attr.Key]}
	}
	if action != "PutItem" && action != "UpdateItem" && action != "DeleteItem" {
		return 0
	}
	return m.peek(asked.TableName, key)
}

// peek reads an item in the JSON of the wire, without the SDK's types.
func (m *meter) peek(table string, key item) int {
	body, err := json.Marshal(map[string]any{"TableName": table, "Key": key, "ConsistentRead": true})
	if err != nil {
		return 0
	}
	request, err := http.NewRequest(http.MethodPost, m.endpoint, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=local/20260101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=none")
	response, err := m.next.RoundTrip(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	var answer struct{ Item item }
	_ = json.NewDecoder(response.Body).Decode(&answer)
	return answer.Item.size()
}

// size returns the size of an item by the rules in docs/table.md.
func (i item) size() int {
	size := 0
	for name, typed := range i {
		size += len(name)
		for kind, value := range typed {
			size += sizeOf(kind, value)
		}
	}
	return size
}

func sizeOf(kind string, value any) int {
	switch v := value.(type) {
	case string:
		switch kind {
		case "B":
			raw, _ := base64.StdEncoding.DecodeString(v)
			return len(raw)
		case "N":
			digits := strings.TrimRight(strings.TrimPrefix(v, "-"), "0")
			return (len(digits)+1)/2 + 1 + strings.Count(v, "-")
		}
		return len(v)
	case []any:
		size := 3
		for _, element := range v {
			size += 1 + len(fmt.Sprint(element))
		}
		return size
	}
	return 1
}

// TestWhatOperationsCost: one write is one request and one unit, for a row with names of 40 bytes and a
// full history, whether it is stored or refused.
func TestWhatOperationsCost(t *testing.T) {
	local.Beside(t)
	m := newMeter(t)
	s := local.Open(t, local.Client(t, m.over), local.Table(t))
	pad := func(s string) string { return (s + strings.Repeat("-", 40))[:40] }
	owner := func(name string) lease.Owner {
		return lease.Owner{Name: pad(name), Incarnation: lease.Incarnation(rand.Text()), Task: pad("task")}
	}
	if err := s.Verify(t.Context(), pad("orders")); err != nil {
		t.Fatal(err)
	}
	costs := map[string]bill{}
	costing := func(what string, units int) func(lease.Write, error) lease.Row {
		return func(w lease.Write, err error) lease.Row {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			m.since()
			reply, err := s.Write(t.Context(), w)
			costs[what] = total(m.since())
			if got := costs[what]; got.requests != 1 || got.writes != units || got.reads != 0 {
				t.Errorf("%s: %v, want one request and %d write units", what, got, units)
			}
			if refused, ok := errors.AsType[*lease.RefusedError](err); ok {
				reply = refused.Now
			}
			r, _ := reply.(lease.Row)
			return r
		}
	}
	one := func(what string) func(lease.Write, error) lease.Row { return costing(what, 1) }
	r := one("create")(protocol.Begin(pad("orders"), pad("shard"), []string{pad("parent-1"), pad("parent-2")}, pad("source"), fixture.Stamp()))
	r = one("transfer")(protocol.Claim(r, owner("worker"), fixture.Stamp()))
	for n := range 9 { // more changes of hands than the history of a row holds
		r = one("transfer")(protocol.Recover(r, owner(fmt.Sprint("worker-", n)), fixture.Stamp()))
	}
	h, position := fixture.Hold(r), fixture.At("49590338271490256608559692538361571095921575989136588898")
	first, err := protocol.Commit(r, h, position, fixture.Stamp())
	r = one("commit")(first, err)
	one("refused commit")(first, nil)
	r = one("offer")(protocol.Offer(r, h, lease.Incarnation(rand.Text()), position, fixture.Stamp()))
	r = one("yield")(protocol.Yield(r, h, owner("next"), protocol.End{Reason: lease.ReasonHandoff, Mark: position}, fixture.Stamp()))
	large := checkpoint.Mark{Position: position.Position, State: strings.Repeat("s", 1500)}
	r = costing("a state of 1,500 bytes", 3)(protocol.Commit(r, fixture.Hold(r), large, fixture.Stamp()))
	r = costing("without it again, billed by the size before", 3)(protocol.Commit(r, fixture.Hold(r), position, fixture.Stamp()))
	one("release")(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonFailed, Note: strings.Repeat("n", lease.MaxNote)}, fixture.Stamp()))

	seat := lease.Seat{Group: pad("orders"), Incarnation: lease.Incarnation(rand.Text()), Name: pad("a"), Task: pad("task"), TTL: 10 * time.Second}
	w, err := protocol.Sit(seat, fixture.Stamp())
	one("seat")(w, err)
	w, err = protocol.NextBeat(w.Next.(lease.Seat), lease.Says{}, fixture.Stamp())
	one("beat")(w, err)
	one("eviction")(protocol.Evict(w.Next.(lease.Seat)))
	m.verifies(t, s, costs)
	for _, what := range slices.Sorted(maps.Keys(costs)) {
		fmt.Fprintf(t.Output(), "%-15s %v\n", what, costs[what])
	}
}

// verifies checks what the first Verify of a group costs, and a later one.
func (m *meter) verifies(t *testing.T, s lease.Store, costs map[string]bill) {
	for _, verify := range []struct {
		name string
		want bill
	}{{"verify, first", bill{5, 1, 3}}, {"verify, later", bill{2, 0, 1}}} {
		m.since()
		if err := s.Verify(t.Context(), "new group"); err != nil {
			t.Fatal(err)
		}
		if costs[verify.name] = total(m.since()); costs[verify.name] != verify.want {
			t.Errorf("%s: %v, want %v", verify.name, costs[verify.name], verify.want)
		}
	}
}
