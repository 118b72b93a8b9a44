package shardlease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Config says what a worker is. The zero value of a field is its default. A negative
// number or duration turns a field off; where a field cannot be off, New refuses it.
// Group and Handoff have no default.
//
// Workers of one group should agree on everything but Name, Task and MaxShards;
// where they do not, while a change is rolled out, nothing breaks.
type Config struct {
	// Group names the fleet. Workers of one group share its shards; groups do
	// not see each other. Required.
	Group string
	// Handoff chooses what a planned move may cost: rebalance.Eager,
	// rebalance.Cooperative, or a strategy that decides for each shard.
	// Required. What a strategy answers is checked when it is asked; terms that
	// nobody could keep are replaced by eager ones, and told as an [event.HookFault], as
	// is a panic.
	Handoff rebalance.Handoff

	// Name is how people know this worker. It need not be unique. Default: host,
	// process id and a few random letters.
	Name string
	// Task is free text: the run or the job this worker serves, so that a
	// [Supervisor] can find what a dead run still holds.
	Task string

	// TTL is the lease time: how long a worker may be silent before others take
	// its shards. It beats three times as often. Default 10 s; at least 300 ms.
	TTL time.Duration
	// Drain is how long a handler may take to wind down, in a move whose terms
	// leave that open and when the worker stops. Default 20 s, or two thirds of
	// TTL where that is more, which is also the least; negative: no time at all.
	Drain time.Duration
	// MaxShards is how many shards this worker will hold. Default, and when
	// negative: any number.
	MaxShards int
	// MaxMoves is how many shards this worker asks others for at a time.
	// Default 100; at most [lease.MaxWants].
	MaxMoves int
	// MoveCooldown is how long a shard that has just moved stays where it is,
	// counted by each worker from when it saw the move. Default off: a fleet whose
	// workers do not change moves nothing anyway.
	MoveCooldown time.Duration

	// StallAfter takes a shard from a handler that neither marks, commits nor
	// calls Progress or Alive for so long. Default off: then it is enough that the process
	// lives. At least a third of TTL.
	StallAfter time.Duration
	// CommitTimeout is how long the table may accept no mark of a tenure although one
	// is due. After that the worker reports [event.CommitsFail], and Healthy returns an
	// error. A worker that can write no row at all ends its tenures if another live
	// worker has room: it gives up its seat, so that the others can claim the shards
	// that it cannot release, and rests for up to six lease times before it takes
	// another seat. Otherwise the tenures go on. Default 3 × TTL; negative: off. At
	// least a third of TTL.
	CommitTimeout time.Duration
	// MaxAttempts is how many tenures of a shard may fail, since a checkpoint was
	// last accepted or Progress called, before it is quarantined. A worker that
	// dies or loses its store counts as well; a shard given up in good order does
	// not, and resets nothing. Handlers that may be idle for long should call
	// Progress, but not before a record that failed may come again: see
	// [Tenure.Alive]. Default off: the shard is tried forever. Only MaxAttempts stops
	// a handler that takes its whole process down (by its use of memory, say), because
	// the shards of a dead worker are claimed at once, without Backoff.
	MaxAttempts int
	// Backoff is how long a shard rests after a tenure that ended by error, panic or
	// stall. It doubles with each such tenure. The death of a worker causes no rest.
	// Default 1 s; negative: not at all.
	Backoff time.Duration
	// MaxBackoff is the longest rest. Default 5 min, or Backoff where that is more.
	MaxBackoff time.Duration

	// Commit says when marks are written. Its zero value means its defaults.
	Commit checkpoint.Policy
	// Order compares positions, so that a mark that goes back is refused.
	// Default: positions are tokens, and nothing compares them.
	Order checkpoint.Order
	// Planner decides which worker should hold which shard. Default rebalance.Even.
	// The goroutine that sends heartbeats waits for Planner, Handoff and Order: they
	// must be quick. If Planner panics or returns no valid plan, the worker reports an
	// [event.HookFault], and rebalance.Even makes that plan. If Order panics at a position,
	// the worker reports an [event.HookFault] and refuses the position.
	Planner rebalance.Planner
	// Prepare gets this worker ready for a shard that another one still serves:
	// it opens iterators, say, or warms a cache. from is where the shard stands
	// at that moment; the tenure will start there or later. Its context ends when
	// the time is up that the terms give, or when the move is called off; then
	// Prepare must return. Whether it returns an error or not, the move goes on.
	// Where it is set and the terms leave their Prepare at zero, it gets 30 s; or half
	// of Drain, if that is less and the owner leaves: that one does not wait for longer.
	// Default: nothing is prepared, whatever the terms say.
	Prepare func(ctx context.Context, s Shard, from checkpoint.Checkpoint) error

	// PollEvery is how often the source is listed. Default 30 s; at least 100 ms.
	PollEvery time.Duration
	// AuditEvery is how often all lease rows are listed although nothing seems to
	// have happened. Default 60 s, or TTL where that is more, which is also the
	// least. Above 20,000 workers × shards it is more in any case: four times
	// what the fleet needs to list all rows once for each worker.
	AuditEvery time.Duration

	// Observe is told what happens, one event at a time, on a goroutine of its
	// own. However slow it is, no heartbeat waits for it: what does not fit into
	// the queue is dropped and counted ([event.Event.Dropped]). It must return
	// sometime: Run waits for the last event to be delivered.
	Observe func(event.Event)
	// EventQueue is how many events wait for Observe and Logger. Default 1024.
	EventQueue int
	// Logger gets every event as a line, from the goroutine that calls Observe.
	// Default: nothing is logged.
	Logger *slog.Logger
}

const (
	defaultTTL     = 10 * time.Second
	leastTTL       = 300 * time.Millisecond // a third of it is a beat, and a beat is a round trip
	defaultDrain   = 20 * time.Second
	defaultPrepare = 30 * time.Second
)

// withDefaults fills in what is left open, and reports every fault at once.
func (c Config) withDefaults() (Config, error) {
	var f faults
	c.names(&f)
	c.times(&f)
	c.counts(&f)
	c.strategies(&f)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(f...)
}

func (c *Config) names(f *faults) {
	if c.Name == "" {
		c.Name = defaultName()
	}
	f.wrap("Group", lease.Query{Group: c.Group, Kind: lease.KindLease}.Validate())
	f.wrap("Name", lease.Owner{Name: c.Name, Incarnation: "-"}.Validate())
	f.wrap("Task", lease.Owner{Name: "-", Incarnation: "-", Task: c.Task}.Validate())
}

// defaultName is unique enough for people: nothing relies on it.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d-%s", printable(host, 64), os.Getpid(), strings.ToLower(rand.Text()[:5]))
}

func (c *Config) times(f *faults) {
	f.duration("TTL", &c.TTL, bounds{otherwise: defaultTTL, least: leastTTL})
	c.TTL = c.TTL.Truncate(time.Millisecond) // as rows keep it
	ttl := c.TTL
	if ttl < leastTTL || ttl > rebalance.MaxDuration {
		ttl = defaultTTL // reported; the others should not be blamed for it
	}
	drain := 2 * ttl / 3
	f.duration("Drain", &c.Drain, bounds{otherwise: max(defaultDrain, drain), least: drain, from: "two thirds of TTL", off: true})
	f.duration("MoveCooldown", &c.MoveCooldown, bounds{off: true})
	f.duration("StallAfter", &c.StallAfter, bounds{least: ttl / 3, from: "a third of TTL", off: true})
	f.duration("CommitTimeout", &c.CommitTimeout, bounds{otherwise: min(3*ttl, rebalance.MaxDuration), least: ttl / 3, from: "a third of TTL", off: true})
	f.duration("Backoff", &c.Backoff, bounds{otherwise: time.Second, off: true})
	f.duration("MaxBackoff", &c.MaxBackoff, bounds{otherwise: max(5*time.Minute, c.Backoff), least: min(c.Backoff, rebalance.MaxDuration), from: "Backoff"})
	f.duration("PollEvery", &c.PollEvery, bounds{otherwise: 30 * time.Second, least: 100 * time.Millisecond})
	f.duration("AuditEvery", &c.AuditEvery, bounds{otherwise: max(time.Minute, ttl), least: ttl, from: "TTL"})
	f.wrap("Commit", c.Commit.Validate())
}

func (c *Config) counts(f *faults) {
	c.MaxShards, c.MaxAttempts = max(c.MaxShards, 0), max(c.MaxAttempts, 0)
	c.MaxMoves = cmp.Or(c.MaxMoves, 100)
	if c.MaxMoves < 1 || c.MaxMoves > lease.MaxWants {
		f.add("MaxMoves", fmt.Sprintf("must be between 1 and %d, is %d; it cannot be turned off", lease.MaxWants, c.MaxMoves))
	}
	c.EventQueue = cmp.Or(c.EventQueue, 1024)
	if c.EventQueue < 1 {
		f.add("EventQueue", fmt.Sprintf("must be at least 1, is %d; it cannot be turned off", c.EventQueue))
	}
}

func (c *Config) strategies(f *faults) {
	if c.Planner == nil {
		c.Planner = rebalance.Even{}
	}
	if _, even := c.Planner.(rebalance.Even); !even {
		c.planner(f)
	}
	switch h := c.Handoff.(type) {
	case *rebalance.Mode:
		if h != nil {
			c.Handoff = *h
		}
	case *rebalance.Terms:
		if h != nil {
			c.Handoff = *h
		}
	}
	switch h := c.Handoff.(type) {
	case rebalance.Mode:
		f.wrap("Handoff", h.Validate())
	case rebalance.Terms:
		f.wrap("Handoff", h.Fill(c.Drain).Validate())
	default:
		if isNil(h) {
			f.wrap("Handoff", rebalance.ErrNoMode)
		}
	}
}

// planner asks a user's planner for its fingerprint, and wraps it so that there always is
// a plan.
func (c *Config) planner(f *faults) {
	if isNil(c.Planner) {
		f.add("Planner", fmt.Sprintf("is a nil %T", c.Planner))
		return
	}
	p := &planner{Planner: c.Planner}
	if err := apart(func() { p.fingerprint = c.Planner.Fingerprint() }); err != nil {
		f.wrap("Planner", fmt.Errorf("Fingerprint: %w", err))
		return
	}
	f.wrap("Planner", lease.Owner{Name: "-", Incarnation: lease.Incarnation(p.fingerprint)}.Validate())
	c.Planner = p
}

// engine is the configuration as the engine reads it. A strategy's mistakes go to
// fault.
func (c Config) engine(fault func(shard string, err error)) engine.Config {
	if p, ok := c.Planner.(*planner); ok {
		c.Planner = &planner{Planner: p.Planner, fingerprint: p.fingerprint, fault: fault}
	}
	return engine.Config{
		Group: c.Group, Name: c.Name, Task: c.Task,
		TTL: c.TTL, Drain: c.Drain,
		Handoff: &strategy{handoff: c.Handoff, drain: c.Drain, prepares: c.Prepare != nil, fault: fault},
		Planner: c.Planner, MaxShards: c.MaxShards, MaxMoves: c.MaxMoves, Cooldown: c.MoveCooldown,
		StallAfter: c.StallAfter, CommitTimeout: c.CommitTimeout, MaxAttempts: int64(c.MaxAttempts), Backoff: c.Backoff, MaxBackoff: c.MaxBackoff,
		Audit: c.AuditEvery, ListedRows: engine.ListedRows, Few: engine.Few, Poll: c.PollEvery, Order: setApart(c.Order, fault), Commits: c.Commit,
	}
}

// A strategy is the user's, with what the worker knows better: whether there is
// anything to prepare, and which terms can be kept. Terms that cannot be would
// make the seat they are written on invalid, and with it every heartbeat.
type strategy struct {
	handoff  rebalance.Handoff
	drain    time.Duration
	prepares bool
	fault    func(shard string, err error)
}

// Terms asks the user's strategy. It leaves a drain of zero and a negative one as
// they are: whoever fills them in must be able to tell them apart.
func (s *strategy) Terms(shard string, why rebalance.Why) rebalance.Terms {
	var t rebalance.Terms
	if err := apart(func() { t = s.handoff.Terms(shard, why) }); err != nil {
		return s.eager(shard, err)
	}
	switch {
	case !s.prepares:
		t.Prepare = 0
	case t.Prepare == 0 && why == rebalance.Leaving: // the owner waits for its Drain to be asked
		t.Prepare = min(defaultPrepare, s.drain/2)
	case t.Prepare == 0:
		t.Prepare = defaultPrepare
	}
	if err := t.Fill(s.drain).Validate(); err != nil {
		return s.eager(shard, err)
	}
	return t
}

// eager reports that the user's strategy gave no valid terms, and returns the terms that
// stand in for them.
func (s *strategy) eager(shard string, err error) rebalance.Terms {
	s.fault(shard, &HookError{Hook: "Handoff", Err: fmt.Errorf("%w; the move will be eager", err)})
	return rebalance.Terms{Mode: rebalance.Eager}
}

// faults collects what is wrong.
type faults []error

func (f *faults) add(field, rule string) { *f = append(*f, &ConfigError{Field: field, Rule: rule}) }

// wrap adds err, if it is one, as the reason why field is refused.
func (f *faults) wrap(field string, err error) {
	if err == nil {
		return
	}
	rule := err.Error()
	if invalid, ok := errors.AsType[*checkpoint.InvalidError](err); ok {
		rule = invalid.Rule
	}
	*f = append(*f, &ConfigError{Field: field, Rule: rule, Err: err})
}

// bounds are those of a duration; none is longer than rebalance.MaxDuration,
// because a longer one is a slip of units.
type bounds struct {
	otherwise, least time.Duration
	from             string // the field that least comes from, in words; "": none
	off              bool   // a negative value turns the field off
}

func (f *faults) duration(field string, value *time.Duration, b bounds) {
	limit := people(b.least)
	if b.from != "" {
		limit = fmt.Sprintf("%s (%s)", b.from, limit)
	}
	off := "; negative turns it off"
	if !b.off {
		off = ""
	}
	switch {
	case *value == 0:
		*value = b.otherwise
	case *value < 0 && b.off:
		*value = 0
	case *value < 0:
		f.add(field, fmt.Sprintf("must be at least %s, is %v; it cannot be turned off", limit, *value))
	case *value < b.least:
		f.add(field, fmt.Sprintf("must be at least %s, is %v%s", limit, *value, off))
	case *value > rebalance.MaxDuration:
		f.add(field, fmt.Sprintf("must be at most %s, is %v%s", people(rebalance.MaxDuration), *value, off))
	}
}

// people formats d as people write it: rounded to about three digits, and without zero
// minutes and seconds. It rounds up, because d is a lower bound that somebody will copy.
func people(d time.Duration) string {
	for _, grain := range []time.Duration{10 * time.Millisecond, 10 * time.Microsecond} {
		if d >= 100*grain {
			d = (d + grain - 1) / grain * grain
			break
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
