package shardlease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Config is the configuration of a worker. The zero value of a field means its default. A
// negative number or duration turns a field off; New refuses it where a field cannot be
// off. Group and Handoff have no default.
//
// Workers of one group should agree on every field except Name, Task, Build and MaxShards. Nothing
// breaks if they differ while a change is rolled out.
type Config struct {
	// Group is the name of the fleet. Workers of one group share its shards; groups do not
	// see each other. Required.
	Group string
	// Handoff chooses the cost of a planned move: rebalance.Eager (a gap),
	// rebalance.Cooperative (an overlap), or a strategy that decides for each shard.
	// Required. If a strategy panics or returns terms that are not valid, the worker reports
	// an [event.HookFault] and the move is eager.
	Handoff rebalance.Handoff

	// Name identifies this worker to people. It need not be unique. Default: host, process
	// id and a few random letters.
	Name string
	// Task is what this worker works on: a run or a job. Tasks form a tree: "deploy/eu" is a descendant of
	// "deploy", see [lease.Owner]. By the task, a [Supervisor] finds the shards that a dead run still holds.
	Task string
	// Build is the version of this worker's program, for people and for planners
	// (Labels of a [rebalance.Worker]). At most 64 bytes, because every listing of the seats reads it.
	// Default: the version of the main module. If there is none, or Go has made it from the VCS revision:
	// the first twelve characters of that revision. Empty if the program was built without either.
	Build string

	// TTL is the lease time: how long a worker's heartbeat counter may stand still before
	// other workers evict it and claim its shards. The worker sends a heartbeat three times
	// per TTL. Default 10 s; at least 300 ms.
	TTL time.Duration
	// Drain is the drain time: how long a handler may take to wind down, in a graceful
	// shutdown and in a move whose terms do not set a drain time. Default 20 s, or two
	// thirds of TTL if that is longer. At least two thirds of TTL; negative: no time at all.
	Drain time.Duration
	// MaxShards is the largest number of shards that this worker holds, beside those that it
	// is handing over. Default, or if negative: no limit.
	MaxShards int
	// MaxMoves is the largest number of shards that this worker requests of others at a
	// time. Default 100; at most [lease.MaxWants].
	MaxMoves int

	// StallAfter is how long a handler may be silent: neither mark nor commit nor call
	// Progress or Alive. After that its tenure ends as stalled. Default off: a handler may be
	// silent as long as its process lives. At least a third of TTL.
	StallAfter time.Duration
	// CommitTimeout is how long the table may accept no mark of a tenure although one is
	// due. After that the worker reports [event.CommitsFail], and Healthy returns an error.
	// If the worker can write no row at all and there is another worker, the worker
	// gives up its seat and ends its tenures, so that the others can claim the shards that
	// it cannot release; it rests for up to six lease times before it takes another seat.
	// Otherwise the tenures continue. Default 3 × TTL; negative: off. At least TTL, because the
	// answers to four writes in a row may get lost in that time, although each is stored.
	CommitTimeout time.Duration
	// MaxAttempts is how many tenures of a shard may fail before the shard is quarantined: under
	// at least two workers, or under all workers that are well. A failure under a worker whose
	// handlers fail whatever the shard ([event.Unwell]) does not count.
	// The count starts again when the table accepts a checkpoint and when the handler calls
	// Progress. The death of a worker and the loss of its store count as failures too. A
	// tenure that ends by [Tenure.Release] neither adds to the count nor restarts it.
	// Handlers that may be idle for long should call Progress, but not while a record that
	// failed may come again: see [Tenure.Alive]. Default off: the shard is tried forever.
	// Only MaxAttempts stops a handler that ends its whole process (by its use of memory,
	// say), because the shards of a dead worker are claimed at once, without Backoff.
	MaxAttempts int
	// Backoff is how long a shard rests after a tenure that ended by an error, a panic or a
	// stall. The rest doubles with each such tenure until the shard makes progress. The death
	// of a worker causes no rest. Default 1 s; negative: no rest but a tenth of a second.
	Backoff time.Duration
	// MaxBackoff is the longest rest. Default 5 min, or Backoff if that is longer.
	MaxBackoff time.Duration

	// Commit is the policy that decides when the latest mark is written. Its zero value
	// means its defaults.
	Commit checkpoint.Policy
	// Order compares positions, so that the worker refuses a mark that moves back. Default:
	// positions are opaque, and nothing compares them.
	// If Order panics, the worker reports an [event.HookFault] and refuses the position. The goroutine
	// that sends heartbeats waits for Order and Handoff, so they must be quick.
	Order checkpoint.Order
	// Planner decides which worker should hold which shard. Default rebalance.Even. Any worker may
	// be the next that plans, so give all workers the same planner. It is called on a goroutine of
	// its own, and has a third of TTL to answer. If it panics, is late, or returns no valid plan, the
	// worker reports an [event.HookFault] and uses the plan of rebalance.Even instead. Until a late
	// call returns, the worker makes every plan in that way and does not call Planner again; nor
	// does Run return.
	Planner rebalance.Planner
	// Prepare prepares this worker for a shard that another worker still serves: it opens
	// iterators, say, or warms a cache. from is the checkpoint of the shard at that moment;
	// the tenure will start there or later. The context of Prepare ends when the preparation
	// time of the terms has passed or when the move is called off; then Prepare must return.
	// The move continues whether Prepare returns an error or not.
	//
	// If the terms do not set a preparation time, it is 30 s. If the owner shuts down, it is
	// at most half of Drain, because the owner waits no longer than Drain for a request.
	// Default: nothing is prepared, whatever the terms are.
	Prepare func(ctx context.Context, s Shard, from checkpoint.Checkpoint) error

	// Targets are the systems that handlers change, and how their fences are raised. The worker raises them at each
	// takeover. Default: none, and a sink refuses an earlier owner only from the successor's first effect on.
	Targets []Target
	// MaxRaises is how many raises of one target this worker makes at a time. Default 16.
	MaxRaises int

	// PollEvery is the interval at which a worker that plans lists the source: up to eight
	// workers each do, above that one of them. Default 30 s; at least 100 ms.
	PollEvery time.Duration
	// AuditEvery is the interval at which the worker lists all lease rows although nothing
	// seems to have changed. Default 60 s, or TTL if that is longer. At least TTL. Above eight
	// workers one of them does it for all, 400 rows a second, which may take longer.
	AuditEvery time.Duration

	// Deathwatch lets the other workers notice at once that the process of this one has died, and this
	// worker notice their deaths. Default off: a library opens no port unasked.
	Deathwatch Deathwatch

	// KeepUnlisted keeps shards running that the source lists no more although they are not
	// finished. By default their handlers wind down ([event.CauseUnlisted]) when two complete
	// listings in a row of the owner's source have lacked them, and their children no longer wait.
	// The row and its checkpoint stay, and the shard is claimed again when it is listed again.
	KeepUnlisted bool

	// EmptySource says that a source which lists no shards at all is right. By default New refuses
	// Static without names, and a worker whose source lists nothing reports an
	// [event.SourceFault] and concludes nothing from the listing.
	EmptySource bool

	// ErrorText returns what the table stores of the error with which a handler has failed, at most 256 bytes, for people who
	// look at the shard. Return "" to store nothing. It must return at once, and may be called for several shards at a
	// time. The row keeps the text until the shard makes progress, and everybody who may read the table can read it:
	// shorten or replace texts that contain data of your users. Default: the first 160 bytes of the text. Characters that
	// are not printable are escaped.
	ErrorText func(error) string

	// Observe is called with each event, one at a time, on a goroutine of its own. No
	// heartbeat waits for it: events that do not fit into the queue are dropped and counted
	// ([event.Event.Dropped]). Each call must return, because Run waits until the last event
	// is delivered.
	Observe func(event.Event)
	// EventQueue is how many events may wait for Observe and Logger. Default 1024.
	EventQueue int
	// Logger logs every event as a line, on the goroutine that calls Observe: [event.Event.Message],
	// and the kind and the fields as keys. Default: nothing is logged.
	Logger *slog.Logger
}

const (
	defaultTTL     = 10 * time.Second
	leastTTL       = 300 * time.Millisecond // a heartbeat is due every third of it, and needs a round trip to the store
	defaultDrain   = 20 * time.Second
	defaultPrepare = 30 * time.Second
)

// withDefaults sets the fields that are zero to their defaults, and reports every fault at
// once.
func (c Config) withDefaults() (Config, error) {
	var f faults
	c.names(&f)
	c.times(&f)
	c.counts(&f)
	c.strategies(&f)
	c.targets(&f)
	c.deathwatch(&f)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(f...)
}

func (c *Config) names(f *faults) {
	if c.Name == "" {
		c.Name = defaultName()
	}
	c.build(f)
	f.wrap("Group", lease.Query{Group: c.Group, Kind: lease.KindLease}.Validate())
	f.wrap("Name", lease.Owner{Name: c.Name, Incarnation: "-"}.Validate())
	f.wrap("Task", lease.Owner{Name: "-", Incarnation: "-", Task: c.Task}.Validate())
}

// maxBuild is the longest Build, in bytes.
const maxBuild = 64

func (c *Config) build(f *faults) {
	if c.Build == "" {
		if info, ok := debug.ReadBuildInfo(); ok {
			c.Build = buildOf(info)
		}
	}
	f.wrap("Build", lease.Seat{Group: "-", Incarnation: "-", WriteID: "-", Name: "-", TTL: time.Second, Build: c.Build}.Validate())
	if len(c.Build) > maxBuild {
		f.add("Build", fmt.Sprintf("must be at most %d bytes long, is %d", maxBuild, len(c.Build)))
	}
}

// buildOf returns the version of a program. If Go has made the version from the revision, buildOf returns
// the revision, which is shorter and says as much.
func buildOf(info *debug.BuildInfo) string {
	version, revision, modified := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+dirty"
		}
	}
	if version == "(devel)" || revision != "" && strings.Contains(version, revision) {
		version = ""
	}
	if version == "" && revision != "" {
		version = revision + modified
	}
	return printable(version, maxBuild)
}

// defaultName returns a name that is unique enough for people; nothing relies on its
// uniqueness.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d-%s", printable(host, 64), os.Getpid(), strings.ToLower(rand.Text()[:5]))
}

func (c *Config) times(f *faults) {
	f.duration("TTL", &c.TTL, bounds{otherwise: defaultTTL, least: leastTTL})
	c.TTL = c.TTL.Truncate(time.Millisecond) // rows store milliseconds
	ttl := c.TTL
	if ttl < leastTTL || ttl > rebalance.MaxDuration {
		ttl = defaultTTL // the fault in TTL is reported; it should not cause faults in the fields that depend on TTL
	}
	drain := 2 * ttl / 3
	f.duration("Drain", &c.Drain, bounds{otherwise: max(defaultDrain, drain), least: drain, from: "two thirds of TTL", off: true})
	f.duration("StallAfter", &c.StallAfter, bounds{least: ttl / 3, from: "a third of TTL", off: true})
	f.duration("CommitTimeout", &c.CommitTimeout, bounds{otherwise: min(3*ttl, rebalance.MaxDuration), least: ttl, from: "TTL", off: true})
	f.duration("Backoff", &c.Backoff, bounds{otherwise: lease.DefaultBackoff, off: true})
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

// planner reads the name of a user's planner.
func (c *Config) planner(f *faults) {
	if isNil(c.Planner) {
		f.add("Planner", fmt.Sprintf("is a nil %T", c.Planner))
		return
	}
	p := &planner{Planner: c.Planner}
	if err := apart(func() { p.name = c.Planner.Name() }); err != nil {
		f.wrap("Planner", fmt.Errorf("name: %w", err))
		return
	}
	f.wrap("Planner", lease.Owner{Name: "-", Incarnation: lease.Incarnation(p.name)}.Validate())
	c.Planner = p
}

// engine returns the configuration for the engine. fault is called with each fault of the
// user's strategy and order.
func (c Config) engine(fault func(shard string, err error)) engine.Config {
	of := "" // no planner of the user
	if p, ok := c.Planner.(*planner); ok {
		of = p.name
	}
	return engine.Config{
		Group: c.Group, Name: c.Name, Task: c.Task, Build: c.Build, Strategy: strategyOf(c.Handoff),
		TTL: c.TTL, Drain: c.Drain,
		Handoff: &strategy{handoff: c.Handoff, drain: c.Drain, prepares: c.Prepare != nil, fault: fault},
		Planner: of, MaxShards: c.MaxShards, MaxMoves: c.MaxMoves,
		StallAfter: c.StallAfter, CommitTimeout: c.CommitTimeout, MaxAttempts: int64(c.MaxAttempts), Backoff: c.Backoff, MaxBackoff: c.MaxBackoff,
		Audit: c.AuditEvery, Poll: c.PollEvery, KeepUnlisted: c.KeepUnlisted, Order: setApart(c.Order, fault), Commits: c.Commit,
		Deathwatch: c.Deathwatch.on(),
		Targets:    slices.ContainsFunc(c.Targets, func(t Target) bool { return t.Raise != nil }),
		Before:     slices.ContainsFunc(c.Targets, func(t Target) bool { return t.Before }),
	}
}

// strategyOf returns the text of a handoff strategy that the seat stores.
func strategyOf(h rebalance.Handoff) string {
	switch h := h.(type) {
	case rebalance.Mode:
		return h.String()
	case rebalance.Terms:
		return h.String()
	}
	return "custom"
}

// A strategy wraps the user's handoff strategy. It sets the preparation time, because only
// the worker knows whether it has a Prepare, and replaces terms that are not valid: they
// would make the seat that they are written to invalid, and with it every heartbeat.
type strategy struct {
	handoff  rebalance.Handoff
	drain    time.Duration
	prepares bool
	fault    func(shard string, err error)
}

// Terms calls the user's strategy. It leaves a zero and a negative drain time as they are,
// because the caller that fills them in must be able to distinguish them.
func (s *strategy) Terms(shard string, why rebalance.Why) rebalance.Terms {
	var t rebalance.Terms
	if err := apart(func() { t = s.handoff.Terms(shard, why) }); err != nil {
		return s.eager(shard, err)
	}
	switch {
	case !s.prepares:
		t.Prepare = 0
	case t.Prepare == 0 && why == rebalance.Leaving: // the owner waits at most its Drain for the request
		t.Prepare = min(defaultPrepare, s.drain/2)
	case t.Prepare == 0:
		t.Prepare = defaultPrepare
	}
	if err := t.Fill(s.drain).Validate(); err != nil {
		return s.eager(shard, err)
	}
	return t
}

// eager reports that the user's strategy returned no valid terms, and returns eager terms
// instead.
func (s *strategy) eager(shard string, err error) rebalance.Terms {
	s.fault(shard, &HookError{Hook: "Handoff", Err: fmt.Errorf("%w; the move will be eager", err)})
	return rebalance.Terms{Mode: rebalance.Eager}
}

// faults collects the faults of a configuration.
type faults []error

func (f *faults) add(field, rule string) { *f = append(*f, &ConfigError{Field: field, Rule: rule}) }

// wrap adds a fault of field, unless err is nil.
func (f *faults) wrap(field string, err error) {
	if err == nil {
		return
	}
	rule := strings.TrimPrefix(err.Error(), field+": ") // a SourceError names the source itself
	if invalid, ok := errors.AsType[*checkpoint.InvalidError](err); ok && invalid != nil {
		rule = invalid.Rule
	}
	*f = append(*f, &ConfigError{Field: field, Rule: rule, Err: err})
}

// bounds are the limits of a duration. None may exceed rebalance.MaxDuration: a longer
// duration is a mistake in units.
type bounds struct {
	otherwise, least time.Duration
	from             string // how least is derived from another field, in words; "": it is not
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

// people formats d for people: rounded to about three digits, and without zero minutes and
// seconds. It rounds up, because d is a lower bound that somebody will copy.
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
