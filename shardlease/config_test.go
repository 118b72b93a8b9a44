package shardlease_test

import (
	"errors"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// blamed returns the fields that err reports, sorted.
func blamed(err error) []string {
	fields := map[string]bool{}
	var walk func(error)
	walk = func(err error) {
		if fault, ok := err.(*shardlease.ConfigError); ok {
			fields[fault.Field] = true
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, err := range joined.Unwrap() {
				walk(err)
			}
		}
	}
	walk(err)
	return slices.Sorted(maps.Keys(fields))
}

func valid() shardlease.Config {
	return shardlease.Config{Group: "orders", Handoff: rebalance.Eager}
}

type odd struct{ rebalance.Even }

func (odd) Name() string { return "" }

func TestEveryWrongFieldIsNamed(t *testing.T) {
	for _, c := range []struct {
		field string
		spoil func(*shardlease.Config)
	}{
		{"Group", func(c *shardlease.Config) { c.Group = "" }},
		{"Group", func(c *shardlease.Config) { c.Group = strings.Repeat("x", lease.MaxName+1) }},
		{"Handoff", func(c *shardlease.Config) { c.Handoff = nil }},
		{"Handoff", func(c *shardlease.Config) { c.Handoff = rebalance.Mode(0) }},
		{"Handoff", func(c *shardlease.Config) { c.Handoff = rebalance.Mode(9) }},
		{"Handoff", func(c *shardlease.Config) { c.Handoff = rebalance.Terms{} }},
		{"Handoff", func(c *shardlease.Config) {
			c.Handoff = rebalance.Terms{Mode: rebalance.Eager, Prepare: 25 * time.Hour}
		}},
		{"Handoff", func(c *shardlease.Config) { c.Handoff = rebalance.HandoffFunc(nil) }},
		{"Name", func(c *shardlease.Config) { c.Name = "a\nb" }},
		{"Task", func(c *shardlease.Config) { c.Task = "\xff" }},
		{"Build", func(c *shardlease.Config) { c.Build = "v1\nv2" }},
		{"Build", func(c *shardlease.Config) { c.Build = strings.Repeat("v", 65) }},
		{"TTL", func(c *shardlease.Config) { c.TTL = 299 * time.Millisecond }},
		{"TTL", func(c *shardlease.Config) { c.TTL = -1 }},
		{"TTL", func(c *shardlease.Config) { c.TTL = 25 * time.Hour }},
		{"Drain", func(c *shardlease.Config) { c.Drain = 6 * time.Second }},
		{"MaxMoves", func(c *shardlease.Config) { c.MaxMoves = lease.MaxWants + 1 }},
		{"MaxMoves", func(c *shardlease.Config) { c.MaxMoves = -1 }},
		{"StallAfter", func(c *shardlease.Config) { c.StallAfter = 25 * time.Hour }},
		{"StallAfter", func(c *shardlease.Config) { c.StallAfter = time.Second }},
		{"Backoff", func(c *shardlease.Config) { c.Backoff = 25 * time.Hour }},
		{"MaxBackoff", func(c *shardlease.Config) { c.MaxBackoff = -1 }},
		{"MaxBackoff", func(c *shardlease.Config) { c.Backoff, c.MaxBackoff = time.Minute, time.Second }},
		{"Commit", func(c *shardlease.Config) { c.Commit.Every = 2 * time.Hour }},
		{"Planner", func(c *shardlease.Config) { c.Planner = odd{} }},
		{"PollEvery", func(c *shardlease.Config) { c.PollEvery = time.Millisecond }},
		{"AuditEvery", func(c *shardlease.Config) { c.AuditEvery = time.Second }},
		{"EventQueue", func(c *shardlease.Config) { c.EventQueue = -1 }},
	} {
		config := valid()
		c.spoil(&config)
		_, err := shardlease.Filled(config)
		if !errors.Is(err, shardlease.ErrConfig) || !slices.Equal(blamed(err), []string{c.field}) {
			t.Errorf("invalid %s: the error is about %v: %v", c.field, blamed(err), err)
		}
	}
}

// TestNegativeMeansOff: a negative number or duration turns its field off, or New refuses
// it with an error that says that the field cannot be turned off. Every field that is added
// later has to do one of these.
func TestNegativeMeansOff(t *testing.T) {
	for i, field := range reflect.VisibleFields(reflect.TypeFor[shardlease.Config]()) {
		config := valid()
		value := reflect.ValueOf(&config).Elem().Field(i)
		if !value.CanInt() {
			continue
		}
		value.SetInt(-1)
		filled, err := shardlease.Filled(config)
		off := err == nil && reflect.ValueOf(filled).Field(i).Int() == 0
		refused := errors.Is(err, shardlease.ErrConfig) && strings.Contains(err.Error(), field.Name+": ") && strings.Contains(err.Error(), "cannot be turned off")
		if off == refused {
			t.Errorf("%s: -1 becomes %v, %v", field.Name, reflect.ValueOf(filled).Field(i), err)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := shardlease.New(nil, shardlease.SourceFunc(nil), shardlease.Config{TTL: 1, Drain: 1, PollEvery: 1, Name: "\x00"})
	if want := []string{"Drain", "Group", "Handoff", "Name", "PollEvery", "TTL", "source", "store"}; !slices.Equal(blamed(err), want) {
		t.Errorf("the error is about %v, not %v", blamed(err), want)
	}
	if !errors.Is(err, rebalance.ErrNoMode) || !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("the errors of the checks are not in %v", err)
	}
	_, err = shardlease.New(new(memstore.Store), shardlease.Static(), valid())
	if !errors.Is(err, shardlease.ErrNoShards) || !slices.Equal(blamed(err), []string{"source"}) || strings.Count(err.Error(), "source") > 1 {
		t.Errorf("a static source without shards: %v", err)
	}
	_, err = shardlease.New(new(memstore.Store), shardlease.Static("a", "a"), valid())
	if fault, ok := errors.AsType[*shardlease.SourceError](err); !ok || !slices.Equal(fault.Shards, []string{"a"}) {
		t.Errorf("a static source with a shard twice: %v", err)
	}
}

// TestBuildIsAnyText: it is no task, whose parts slashes separate.
func TestBuildIsAnyText(t *testing.T) {
	for _, build := range []string{"/srv/orders", "https://ci/orders/7/", "orders//7"} {
		config := valid()
		config.Build = build
		if filled, err := shardlease.Filled(config); err != nil || filled.Build != build {
			t.Errorf("Build %q: %q, %v", build, filled.Build, err)
		}
	}
}

// TestDefaultBuild: a version that somebody has chosen is shown as it is. One that Go has made from the
// revision is longer than the revision and says no more.
func TestDefaultBuild(t *testing.T) {
	const revision = "2b1ba3f20cde9a7d8e6f5a4b3c2d1e0f2b1ba3f2"
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}}
	}
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.4.2", nil, "v1.4.2"},
		{"v1.4.2+dirty", settings("true"), "v1.4.2+dirty"},
		{"v0.0.0-20261125120000-2b1ba3f20cde", nil, "v0.0.0-20261125120000-2b1ba3f20cde"},
		{"v0.0.0-20261125120000-2b1ba3f20cde", settings("false"), "2b1ba3f20cde"},
		{"v0.0.0-20261125120000-2b1ba3f20cde+dirty", settings("true"), "2b1ba3f20cde+dirty"},
		{"(devel)", settings("false"), "2b1ba3f20cde"},
		{"(devel)", nil, ""},
		{"", nil, ""},
		{"v1.0.0-" + strings.Repeat("x", 100), nil, "v1.0.0-" + strings.Repeat("x", 57)},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Path: "example.com/orders", Version: c.version}, Settings: c.settings}
		if got := shardlease.BuildOf(info); got != c.want {
			t.Errorf("%s, %v: %q, want %q", c.version, c.settings, got, c.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	c, err := shardlease.Filled(valid())
	must(t, err)
	if c.TTL != 10*time.Second || c.Drain != 20*time.Second || c.StallAfter != 0 ||
		c.Backoff != time.Second || c.MaxBackoff != 5*time.Minute || c.PollEvery != 30*time.Second || c.AuditEvery != time.Minute {
		t.Errorf("default times: %+v", c)
	}
	if c.Name == "" || c.MaxShards != 0 || c.MaxMoves != 100 || c.MaxAttempts != 0 || c.EventQueue != 1024 || c.Planner == nil || c.Logger == nil {
		t.Errorf("other defaults: %+v", c)
	}

	slow := valid()
	slow.TTL, slow.Backoff = 2*time.Minute, 10*time.Minute
	if c, err = shardlease.Filled(slow); err != nil || c.Drain != 80*time.Second || c.AuditEvery != slow.TTL || c.MaxBackoff != slow.Backoff {
		t.Errorf("a long lease time: %+v, %v", c, err)
	}

	off := valid()
	off.Drain, off.StallAfter, off.Backoff, off.MaxShards, off.MaxAttempts = -1, -1, -1, -1, -1
	c, err = shardlease.Filled(off)
	if err != nil || c.Drain != 0 || c.StallAfter != 0 || c.Backoff != 0 || c.MaxShards != 0 || c.MaxAttempts != 0 {
		t.Errorf("fields that are off: %+v, %v", c, err)
	}
}

func TestTermsThatReachTheEngine(t *testing.T) {
	hook := valid()
	hook.Prepare = prepareNothing
	never := hook
	never.Handoff = rebalance.Terms{Mode: rebalance.Cooperative, Prepare: -1}
	without := valid()
	without.Handoff = rebalance.Terms{Mode: rebalance.Cooperative, Prepare: time.Minute}
	mad := valid()
	mad.Handoff = rebalance.HandoffFunc(func(string, rebalance.Why) rebalance.Terms {
		return rebalance.Terms{Mode: rebalance.Cooperative, Drain: 25 * time.Hour}
	})
	for _, c := range []struct {
		name   string
		config shardlease.Config
		why    rebalance.Why
		want   rebalance.Terms
		faults int
	}{
		{"a hook and terms that leave it open", hook, rebalance.Balance, rebalance.Terms{Mode: rebalance.Eager, Prepare: 30 * time.Second}, 0},
		{"the same, of an owner that leaves and waits for 20 s", hook, rebalance.Leaving, rebalance.Terms{Mode: rebalance.Eager, Prepare: 10 * time.Second}, 0},
		{"a hook and terms without", never, rebalance.Leaving, rebalance.Terms{Mode: rebalance.Cooperative, Prepare: -1}, 0},
		{"terms and no hook", without, rebalance.Balance, rebalance.Terms{Mode: rebalance.Cooperative}, 0},
		{"terms nobody can keep", mad, rebalance.Balance, rebalance.Terms{Mode: rebalance.Eager}, 1},
	} {
		faults := 0
		got, err := shardlease.TermsOf(c.config, c.why, func(string, error) { faults++ })
		if err != nil || got != c.want || faults != c.faults {
			t.Errorf("%s: %v and %d faults, %v", c.name, got, faults, err)
		}
	}
}

// An error about a bound that is derived from another field names that field, and rounds
// the bound so that it can be copied.
func TestBoundsSayWhereTheyComeFrom(t *testing.T) {
	for _, c := range []struct {
		set  func(*shardlease.Config)
		want string
	}{
		{func(c *shardlease.Config) { c.Drain = time.Second },
			"Drain: must be at least two thirds of TTL (6.67s), is 1s; negative turns it off"},
		{func(c *shardlease.Config) { c.TTL, c.Drain = 500*time.Millisecond, 1 },
			"Drain: must be at least two thirds of TTL (333.34ms), is 1ns; negative turns it off"},
		{func(c *shardlease.Config) { c.StallAfter = 3 * time.Second },
			"StallAfter: must be at least a third of TTL (3.34s), is 3s; negative turns it off"},
		{func(c *shardlease.Config) { c.CommitTimeout = 9 * time.Second },
			"CommitTimeout: must be at least TTL (10s), is 9s; negative turns it off"},
		{func(c *shardlease.Config) { c.TTL, c.AuditEvery = 2*time.Hour, time.Minute },
			"AuditEvery: must be at least TTL (2h), is 1m0s"},
		{func(c *shardlease.Config) { c.Backoff, c.MaxBackoff = 90*time.Second, time.Second },
			"MaxBackoff: must be at least Backoff (1m30s), is 1s"},
		{func(c *shardlease.Config) { c.TTL = -time.Second },
			"TTL: must be at least 300ms, is -1s; it cannot be turned off"},
		{func(c *shardlease.Config) { c.AuditEvery = -1 },
			"AuditEvery: must be at least TTL (10s), is -1ns; it cannot be turned off"},
		{func(c *shardlease.Config) { c.MaxBackoff = -1 },
			"MaxBackoff: must be at least Backoff (1s), is -1ns; it cannot be turned off"},
		{func(c *shardlease.Config) { c.StallAfter = 25 * time.Hour },
			"StallAfter: must be at most 24h, is 25h0m0s; negative turns it off"},
	} {
		config := valid()
		c.set(&config)
		if _, err := shardlease.Filled(config); err == nil || err.Error() != "invalid configuration: "+c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

type broken struct{ rebalance.Even }

func (broken) Name() string { panic("no name") }

// TestNilPointersAreRefused: a nil pointer in an interface is not equal to nil. New
// accepted all of these before, or panicked, and Run ended the process.
func TestNilPointersAreRefused(t *testing.T) {
	refused := func(name string, store lease.Store, source shardlease.Source, spoil func(*shardlease.Config), want string) {
		t.Helper()
		config := valid()
		spoil(&config)
		_, err := shardlease.New(store, source, config)
		if !errors.Is(err, shardlease.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good, shards, as := new(memstore.Store), shardlease.Static("1"), func(*shardlease.Config) {}
	refused("store", (*memstore.Store)(nil), shards, as, "store: must be given: a dynamostore.Store, or a memstore.Store to try things out; is a nil *memstore.Store")
	refused("source", good, (*rogue)(nil), as, "source: must be given: it lists the shards; is a nil *shardlease_test.rogue")
	refused("planner", good, shards, func(c *shardlease.Config) { c.Planner = (*rogue)(nil) }, "Planner: is a nil *shardlease_test.rogue")
	refused("planner that panics", good, shards, func(c *shardlease.Config) { c.Planner = broken{} }, "Planner: name: panic: no name")
	refused("handoff", good, shards, func(c *shardlease.Config) { c.Handoff = (*rogue)(nil) }, "Handoff: choose a handoff mode")
	refused("terms", good, shards, func(c *shardlease.Config) { c.Handoff = (*rebalance.Terms)(nil) }, "Handoff: choose a handoff mode")
	refused("zero terms", good, shards, func(c *shardlease.Config) { c.Handoff = &rebalance.Terms{} }, "Handoff: choose a handoff mode")
	s := shardlease.Supervisor{Store: (*memstore.Store)(nil), Group: "orders"}
	if _, err := s.List(t.Context()); !errors.Is(err, shardlease.ErrConfig) || !strings.Contains(err.Error(), "nil *memstore.Store") {
		t.Errorf("supervisor: %v", err)
	}
}
