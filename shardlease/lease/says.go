package lease

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/rebalance"
)

// Says is what a worker publishes with its heartbeats. Every heartbeat writes all of it again.
type Says struct {
	Leaving bool   // the worker is shutting down and takes no more shards
	Wants   []Want // the shards that the worker requests
	// Freed counts the changes of News, also of those that News no longer has. A plan is due when
	// Freed has grown since the last one.
	Freed int64

	Revision int64 // the revision of the plan that the worker follows; 0: none
	Settled  bool  // the worker holds what its target of this revision says; for people, and only with a revision
	// Missing is the complete revision of which the worker found no target of its own. It counts
	// while it is the revision of the plan: then the planner makes the targets again from the
	// lease rows. 0: none is missing.
	Missing int64
	// News is what happened to shards, by which a planner learns of it without listing the lease
	// rows. A worker says a name until a plan knows it.
	News     []News
	NewsLeft int64 // how many finished, removed and unlisted shards News has no room for; if any, the planner lists the rows first
	Health   Health
	// Address is where the worker answers connections with its incarnation, such as "10.0.0.7:7946". When
	// nobody answers there any more, other workers may take it for dead. Empty: only the heartbeat counter
	// shows whether it lives.
	Address string
	// Waits are the leases by name for which a session waits: those with the oldest waits for which a seat has room.
	Waits     []Wait
	WaitsLeft int64 // how many other leases the session waits for
	// Raised is the Number of the wish that stands that all fences be raised again, as soon as this worker has done so
	// for all that it held; 0: it has not, or no such wish stands.
	Raised int64
}

// A News is something that happened to one shard under one worker.
type News struct {
	Kind  NewsKind
	Shard string
}

// A NewsKind is what happened to a shard. A kind that this version does not know was written by
// a newer one.
type NewsKind string

const (
	NewsFinished NewsKind = "finished" // the shard is processed to its end, and its children may start
	NewsDeclined NewsKind = "declined" // the worker failed the shard; until it removes the name, others should have it
	// NewsHangs and NewsSilent are for people: no plan depends on them, and Freed does not count them.
	NewsHangs  NewsKind = "hangs"  // a handler of the shard has not returned although its tenure has ended
	NewsSilent NewsKind = "silent" // the handler of the shard was not idle, and now neither marks nor calls Progress
)

// MaxNews is how many news one seat may have.
const MaxNews = 100

// Health is what a worker says about itself beyond being alive.
type Health struct {
	Unwell      string    // why the worker should get nothing new; empty: it is well
	UnwellSince time.Time // by the worker's wall clock, for people
	Trial       bool      // although it is unwell, it may be given one shard, to show that it can work again
	Silent      int64     // how many tenures neither mark nor call Progress
	SilentSince time.Time // since when the longest of them is silent, for people; zero: none is known that was not idle
	NoSource    bool      // its source does not answer: another worker should look for new shards
}

// A Want is the request for one shard under one generation: the owner ignores a request for
// any other generation. A request vanishes with the seat that contains it.
type Want struct {
	Shard      string
	Generation int64
	// Owner is the incarnation that held the shard when the requester read its row; empty:
	// unknown. An owner that finds itself named, and has no tenure of the shard, reads the row.
	Owner Incarnation
	Terms rebalance.Terms
}

// Stands reports whether the request is for r and for its present generation.
func (w Want) Stands(r Row) bool { return w.Shard == r.Shard && w.Generation == r.Generation }

func (w Want) validate() error {
	errs := []error{validName("wanted shard", w.Shard), positive("wanted generation", w.Generation), w.Terms.Validate()}
	if w.Owner != "" {
		errs = append(errs, validIncarnation(w.Owner))
	}
	return errors.Join(errs...)
}

// String returns the text in which a seat stores the request, such as "7 eager 20s force 0s shard-1",
// and after a tab the owner.
func (w Want) String() string {
	t := w.Terms
	text := fmt.Sprintf("%d %v %v %v %v %s", w.Generation, t.Mode, t.Drain, t.AfterDrain, t.Prepare, w.Shard)
	if w.Owner != "" {
		text += "\t" + string(w.Owner)
	}
	return text
}

// Compare orders news by kind and shard.
func (n News) Compare(other News) int { return strings.Compare(n.String(), other.String()) }

// String returns the text in which a seat stores the news, such as "finished shard-1".
func (n News) String() string { return string(n.Kind) + " " + n.Shard }

func (n News) validate() error {
	if strings.Contains(string(n.Kind), " ") {
		return invalid("kind of news", "must be one word")
	}
	return errors.Join(validID("kind of news", string(n.Kind)), validName("shard in the news", n.Shard))
}

func (s Says) validate() error {
	errs := []error{s.validateWants(), s.validateNews(), s.validateWaits(), validText("unwell", s.Health.Unwell, MaxName), validText("address", s.Address, MaxName)}
	if min(s.Freed, s.Revision, s.Missing, s.NewsLeft, s.Health.Silent, s.WaitsLeft, s.Raised) < 0 {
		errs = append(errs, invalid("freed, revision, missing, news left, silent, waits left and raised", "must not be negative"))
	}
	return errors.Join(errs...)
}

func (s Says) validateWants() error {
	if len(s.Wants) > MaxWants {
		return tooMany("wants", len(s.Wants), MaxWants)
	}
	for i, want := range s.Wants {
		if err := want.validate(); err != nil {
			return err
		}
		if i > 0 && s.Wants[i-1].Shard >= want.Shard {
			return invalid("wants", "must be sorted, one for each shard")
		}
	}
	return nil
}

func (s Says) validateNews() error {
	if len(s.News) > MaxNews {
		return tooMany("news", len(s.News), MaxNews)
	}
	for i, n := range s.News {
		if err := n.validate(); err != nil {
			return err
		}
		if i > 0 && s.News[i-1].Compare(n) >= 0 {
			return invalid("news", "must be sorted and different")
		}
	}
	return nil
}

func (s Says) clone() Says {
	s.Wants, s.News, s.Waits = slices.Clone(s.Wants), slices.Clone(s.News), slices.Clone(s.Waits)
	return s
}

func (s Says) encode(put func(string, any)) {
	put(attr.Leaving, s.Leaving)
	put(attr.Freed, s.Freed)
	put(attr.Wants, texts(s.Wants))
	put(attr.Revision, s.Revision)
	// Most seats are settled all the time, and an attribute of all seats makes every listing more expensive.
	put(attr.Unsettled, !s.Settled && s.Revision != 0)
	put(attr.Missing, s.Missing)
	put(attr.News, texts(s.News))
	put(attr.NewsLeft, s.NewsLeft)
	put(attr.Unwell, s.Health.Unwell)
	put(attr.UnwellSince, millis(s.Health.UnwellSince))
	put(attr.Trial, s.Health.Trial)
	put(attr.Silent, s.Health.Silent)
	put(attr.SilentSince, millis(s.Health.SilentSince))
	put(attr.NoSource, s.Health.NoSource)
	put(attr.Address, s.Address)
	put(attr.Waits, texts(s.Waits))
	put(attr.WaitsLeft, s.WaitsLeft)
	put(attr.Raised, s.Raised)
}

func texts[T fmt.Stringer](list []T) []string {
	texts := make([]string, len(list))
	for i, of := range list {
		texts[i] = of.String()
	}
	return texts
}

func (in *reader) says() Says {
	revision := in.number(attr.Revision)
	return Says{
		Leaving: in.flag(attr.Leaving), Freed: in.number(attr.Freed), Wants: in.wants(),
		Revision: revision, Settled: !in.flag(attr.Unsettled) && revision != 0, Missing: in.number(attr.Missing),
		News: in.news(), NewsLeft: in.number(attr.NewsLeft),
		Health: Health{
			Unwell: in.text(attr.Unwell), UnwellSince: in.time(attr.UnwellSince), Trial: in.flag(attr.Trial),
			Silent: in.number(attr.Silent), SilentSince: in.time(attr.SilentSince), NoSource: in.flag(attr.NoSource),
		},
		Address: in.text(attr.Address), Waits: in.waits(), WaitsLeft: in.number(attr.WaitsLeft),
		Raised: in.number(attr.Raised),
	}
}

// wants reads the requests. One that cannot be read is ignored, as a worker may ignore any
// request; its seat stays readable, because its worker is alive.
func (in *reader) wants() (wants []Want) {
	for _, text := range in.set(attr.Wants) {
		if want, ok := parseWant(text); ok {
			wants = append(wants, want)
		}
	}
	slices.SortFunc(wants, func(a, b Want) int { return strings.Compare(a.Shard, b.Shard) })
	return slices.CompactFunc(wants, func(a, b Want) bool { return a.Shard == b.Shard })
}

// news reads the news, and ignores those that cannot be read. A planner that misses one learns
// of it when it lists the lease rows.
func (in *reader) news() (news []News) {
	for _, text := range in.set(attr.News) {
		kind, shard, _ := strings.Cut(text, " ")
		if n := (News{Kind: NewsKind(kind), Shard: shard}); n.validate() == nil {
			news = append(news, n)
		}
	}
	return news
}
