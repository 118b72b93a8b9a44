package processes

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A proxy is the only connection from worker processes to the service. It runs in the test's process
// and reports to the journal what the service has accepted, in order: it never has two writes of one row
// under way at once, and each answer has the row after the write.
//
// The proxy is faulty: requests and answers are lost, are slow, or arrive when their sender no longer
// waits for them.
type proxy struct {
	*httptest.Server
	service string
	client  *http.Client
	saw     func(entry)
	// unfenced removes the conditions of all updates of lease rows.
	unfenced bool
	// faults is the share of requests that have a fault.
	faults float64

	closing context.Context
	cancel  context.CancelFunc
	late    sync.WaitGroup
	ambush  atomic.Pointer[ambush]

	mu    sync.Mutex
	lanes map[string]*lane
	rows  map[string]*sync.Mutex
}

// keepFor is how long a commit is held back: until another worker has the shard.
func keepFor() time.Duration { return 2 * leaseTime() }

// A lane is the part of the proxy that one process uses.
type lane struct {
	process string
	cut     atomic.Bool
	keep    atomic.Bool // hold commits back so that they arrive late
}

// An ambush waits for a phase of a handoff, and attacks the process that is in it.
type ambush struct {
	phase  phase
	after  bool // whether to strike after the service has accepted the write
	spares func(process string) bool
	strike func(process string)
	struck chan string
	taken  atomic.Bool
}

// A fleetConfig configures a fleet and the faults of its environment.
type fleetConfig struct {
	workers, shards int
	pause, commit   time.Duration // the time between two records of a shard, and between its checkpoints
	seed            uint64
	faults          float64 // the share of requests that have a fault
	register        bool    // whether the register has its fence
	fences          bool    // whether the table has its fence
	buckets         int     // dynamostore.Options.Buckets
	deathwatch      bool    // whether workers have a deathwatch
}

func newProxy(t *testing.T, c fleetConfig, saw func(entry)) *proxy {
	t.Helper()
	plain := &http.Transport{MaxIdleConnsPerHost: 256}
	r := &proxy{
		service: local.Endpoint(t), client: &http.Client{Transport: plain, Timeout: time.Minute}, saw: saw,
		unfenced: !c.fences, faults: c.faults, lanes: map[string]*lane{}, rows: map[string]*sync.Mutex{},
	}
	r.closing, r.cancel = context.WithCancel(context.Background())
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.arrive()
		plain.CloseIdleConnections()
	})
	return r
}

// arrive lets all late requests arrive now, and closes the proxy.
func (r *proxy) arrive() {
	r.cancel()
	r.Close()
	r.late.Wait()
}

// lane opens the lane of a process.
func (r *proxy) lane(process string) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lanes[process] == nil {
		r.lanes[process] = &lane{process: process}
	}
	return r.lanes[process]
}

// A phase is the purpose of a write.
type phase string

const (
	other   phase = ""
	beating phase = "beat"
	wanting phase = "want"
	commits phase = "commit"
	offers  phase = "offer"
	yields  phase = "yield" // a handover or a release
	takes   phase = "take"  // a takeover or a claim
	plans   phase = "plan"  // a revision of the plan is opened or finished
	targets phase = "target"
)

var phases = []phase{wanting, commits, offers, yields, takes, plans, targets}

// A call is one request through the proxy.
type call struct {
	action string
	header http.Header
	body   []byte
	kind   string // the kind of the record: "lease", "seat", "plan", "target", or empty
	key    string
	phase  phase
	by     string
	late   bool
}

// unpack reads the parts of a request that the proxy needs.
func unpack(h http.Header, body []byte, by string) *call {
	type text struct{ S string }
	var in struct {
		Item, Key                             map[string]text
		UpdateExpression, ConditionExpression string
	}
	_, action, _ := strings.Cut(h.Get("X-Amz-Target"), ".")
	p := &call{action: action, header: h, body: body, by: by}
	if action != "PutItem" && action != "UpdateItem" && action != "DeleteItem" || json.Unmarshal(body, &in) != nil {
		return p
	}
	at := in.Key
	if action == "PutItem" {
		at = in.Item
	}
	_, p.kind = network.Partition(at[attr.Group].S)
	p.key = at[attr.Key].S
	if reserved, ok := strings.CutPrefix(p.key, "!"); ok { // the plan and the wishes are stored beside the seats
		p.kind = reserved
	}
	switch {
	case p.kind == lease.KindPlan.String():
		p.phase = plans
	case p.kind == lease.KindTarget.String():
		p.phase = targets
	case action == "UpdateItem":
		p.phase = phaseOf(p.kind, in.UpdateExpression, in.ConditionExpression)
	}
	return p
}

// phaseOf returns the purpose of an update.
func phaseOf(kind, update, condition string) phase {
	set, _, _ := strings.Cut(update, " REMOVE ")
	sets := func(attr string) bool { return strings.Contains(set, "#"+attr+" = ") }
	switch {
	case kind == lease.KindSeat.String() && sets(attr.Wants):
		return wanting
	case kind == lease.KindSeat.String():
		return beating
	case sets(attr.Generation) && strings.Contains(condition, "#"+attr.WriteID):
		return yields
	case sets(attr.Generation):
		return takes
	case sets(attr.Offer):
		return offers
	case sets(attr.Position):
		return commits
	}
	return other
}

// ServeHTTP passes a request on. Aborting the handler breaks the connection.
func (r *proxy) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	l := r.lane(strings.Trim(request.URL.Path, "/"))
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p := unpack(request.Header.Clone(), body, l.process)
	if l.cut.Load() {
		r.lose(request, p)
	}
	r.spring(p, false)
	lost, late := r.accident(request, l, p)
	if late > 0 {
		r.later(p, late)
		r.lose(request, p)
	}
	response, answer, err := r.deliver(context.WithoutCancel(request.Context()), p)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if response.StatusCode == http.StatusOK {
		r.spring(p, true)
	}
	if lost {
		r.lose(request, p)
	}
	for _, name := range []string{"Content-Type", "X-Amz-Crc32", "X-Amzn-Requestid"} {
		w.Header().Set(name, response.Header.Get(name))
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(answer)
}

// accident draws the fault of a request: its answer is lost, it is slow, it never arrives, or it
// arrives after its sender has received an error.
func (r *proxy) accident(request *http.Request, l *lane, p *call) (lost bool, late time.Duration) {
	if l.keep.Load() && p.phase == commits {
		return false, keepFor()
	}
	if rand.Float64() >= r.faults {
		return false, 0
	}
	switch x := rand.Float64(); {
	case x < 0.35:
		return true, 0
	case x < 0.55:
		<-time.After(rand.N(leaseTime() / 4))
	case x < 0.8:
		r.lose(request, p)
	default:
		return false, leaseTime()/4 + rand.N(3*leaseTime())
	}
	return false, 0
}

// lose breaks the connection: at once, or when the sender has given up.
func (r *proxy) lose(request *http.Request, p *call) {
	if p.kind == lease.KindSeat.String() {
		r.saw(entry{Kind: seatFault, By: p.by})
	}
	if rand.IntN(2) == 0 {
		select {
		case <-request.Context().Done():
		case <-time.After(leaseTime() / 2):
		case <-r.closing.Done():
		}
	}
	panic(http.ErrAbortHandler)
}

// later delivers a request after its sender has given up.
func (r *proxy) later(p *call, after time.Duration) {
	p.late = true
	r.late.Go(func() {
		select {
		case <-time.After(after):
		case <-r.closing.Done():
		}
		_, _, _ = r.deliver(context.Background(), p)
	})
}

// spring attacks a process that has reached the phase of the ambush.
func (r *proxy) spring(p *call, after bool) {
	a := r.ambush.Load()
	if a == nil || a.phase != p.phase || a.after != after || a.spares(p.by) || !a.taken.CompareAndSwap(false, true) {
		return
	}
	a.strike(p.by)
	a.struck <- p.by
}

// row is locked while a write of that row is under way.
func (r *proxy) row(p *call) *sync.Mutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := p.kind + "/" + p.key
	if r.rows[key] == nil {
		r.rows[key] = &sync.Mutex{}
	}
	return r.rows[key]
}

// deliver sends a request to the service, and reports the result to the journal.
func (r *proxy) deliver(ctx context.Context, p *call) (*http.Response, []byte, error) {
	if p.kind == "" {
		return r.send(ctx, p, p.body)
	}
	came := time.Now() // a wait from here on is for the service's answer to the write before
	row := r.row(p)
	row.Lock()
	defer row.Unlock()
	body := p.body
	if p.action == "UpdateItem" {
		if r.unfenced && p.phase == commits {
			body = network.Edited(body, network.RemoveFence)
		}
		body = bytes.Replace(body, []byte(`"ReturnValues":"NONE"`), []byte(`"ReturnValues":"ALL_NEW"`), 1)
	}
	before := time.Now()
	response, answer, err := r.send(ctx, p, body)
	if err == nil {
		r.report(p, before, response.StatusCode, answer)
	}
	if took := time.Since(came); took > stallFrom && p.kind == lease.KindSeat.String() {
		r.saw(entry{Kind: slow, By: p.by, For: took})
	}
	return response, answer, err
}

func (r *proxy) send(ctx context.Context, p *call, body []byte) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.service, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header = p.header.Clone()
	request.Header.Del("Accept-Encoding") // the transport adds its own, and decodes the answer
	response, err := r.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	answer, err := io.ReadAll(response.Body)
	return response, answer, errors.Join(err, response.Body.Close())
}

// report reports the result of a write to the journal.
func (r *proxy) report(p *call, before time.Time, status int, answer []byte) {
	e := entry{Wall: before.UnixNano(), By: p.by, Late: p.late}
	switch {
	case status == http.StatusBadRequest && p.kind == lease.KindLease.String() && bytes.Contains(answer, []byte("ConditionalCheckFailed")):
		e.Kind, e.Shard = rowRefused, p.key
		r.saw(e)
	case status != http.StatusOK:
	case p.action == "DeleteItem":
		if p.kind == lease.KindSeat.String() { // a target is deleted too, when its worker has gone
			e.Kind, e.Incarnation = seatDeleted, p.key
			r.saw(e)
		}
	default:
		switch record := recordOf(p, answer).(type) {
		case lease.Row:
			e.Kind, e.Shard, e.Generation, e.Counter = rowWritten, record.Shard, record.Generation, record.Counter
			e.Incarnation, e.Reason, e.Made = string(record.Owner.Incarnation), string(record.Last.Reason), record.Checkpoint.Generation
			e.Offered, e.Write = string(record.OfferedTo), string(record.WriteID)
			e.Position, _ = strconv.ParseInt(record.Checkpoint.Position, 10, 64) // 0 if there is no position
			r.saw(e)
		case lease.Seat:
			e.Kind, e.Incarnation, e.Counter = seatWritten, string(record.Incarnation), record.Beat
			r.saw(e)
		}
	}
}

// recordOf returns the record that an accepted write has left, or nil if the journal does not need it.
func recordOf(p *call, answer []byte) lease.Record {
	var content struct{ Item, Attributes map[string]map[string]any }
	source, attributes := answer, &content.Attributes
	if p.action == "PutItem" {
		source, attributes = p.body, &content.Item
	}
	if json.Unmarshal(source, &content) != nil {
		return nil
	}
	item := lease.Item{}
	for name, typed := range *attributes {
		for tag, v := range typed {
			item[name] = plainValue(tag, v)
		}
	}
	if key, ok := item[attr.Group].(string); ok {
		group, kind := network.Partition(key)
		item[attr.Group] = group + "/" + kind
	}
	record, err := lease.Decode(item)
	if err != nil {
		return nil
	}
	return record
}

// plainValue returns a value of an item in DynamoDB's JSON.
func plainValue(tag string, v any) any {
	text, _ := v.(string)
	switch tag {
	case "N":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case "B":
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			return b
		}
	case "SS":
		var set []string
		list, _ := v.([]any)
		for _, member := range list {
			text, _ := member.(string)
			set = append(set, text)
		}
		return set
	}
	return v
}
