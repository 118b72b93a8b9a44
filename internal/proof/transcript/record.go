package transcript

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A recorder writes the lines of a transcript.
type recorder struct {
	names
	out   strings.Builder
	time  *virtual.Time
	goal  string                 // a line with this text is waited for; empty as soon as it is recorded
	quiet bool                   // only count calls
	calls counts                 // the calls of this quiet time
	idle  counts                 // the reads since the last line that showed nothing new
	idled time.Duration          // when the last of these was answered
	lists map[string]lease.Query // the listings under way, by worker and read
	views map[view]string        // what each worker has seen of each record
}

// A view is one worker's view of one record.
type view struct {
	worker string
	key    lease.Key
}

func newRecorder(t *virtual.Time) *recorder {
	return &recorder{names: newNames(), time: t, calls: counts{}, idle: counts{}, lists: map[string]lease.Query{}, views: map[view]string{}}
}

func (r *recorder) input(worker string, in engine.Input) {
	const table, handler = "← table", "← handler"
	switch in := in.(type) {
	case engine.Listed:
		of := r.lists[read(worker, in.Read)]
		what := map[lease.Kind]string{lease.KindSeat: "polls the seats", lease.KindLease: "lists the rows", lease.KindTarget: "lists the targets"}[of.Kind]
		if of.Kind == lease.KindSeat && of.Limit > 0 && of.Limit <= 2 {
			what = "reads the plan"
		}
		r.saw(worker, what, in.Err, func() []string { return r.listing(worker, of, in.Records) })
	case engine.Got:
		what := map[lease.Kind]string{lease.KindSeat: "reads the seat", lease.KindTarget: "reads its target"}[in.Key.Kind]
		r.saw(worker, cmp.Or(what, "reads the row"), in.Err, func() []string { return r.news(worker, in.Key, in.Record) })
	case engine.Settled:
		if in.Err == nil {
			r.news(worker, in.Write.Key(), in.Record)
		}
		r.note(worker, table, r.answer(in.Write, in.Record, in.Err))
	case engine.Verified:
		r.note(worker, table, "verifies the table: "+when(in.Err == nil, "it is the one that the group has always used")+reason(in.Err))
	case engine.Source:
		words := []string{"lists"}
		for _, s := range in.Shards {
			words = append(words, s.Name)
		}
		r.note(worker, "← source", strings.Join(words, " "))
	case engine.Marks:
		r.note(worker, handler, in.Tenure.Shard+when(in.Mark.Position != "", " marks "+in.Mark.Position)+
			when(in.Flush > 0, " and waits until it is stored")+when(in.Finish, " is processed to its end"))
	case engine.Returned:
		r.note(worker, handler, in.Tenure.Shard+" returns"+when(in.Failed, " with an error"))
	}
}

func (r *recorder) output(worker string, o engine.Output) {
	const handler = "→ handler"
	switch o := o.(type) {
	case engine.List:
		r.lists[read(worker, o.Read)] = o.Query
	case engine.Send:
		r.note(worker, "→ table", r.send(worker, o.Write))
	case engine.Start:
		r.note(worker, handler, fmt.Sprintf("%s starts under generation %s%s", o.Tenure.Shard, r.generation(o.Tenure.Generation), at(o.Checkpoint)))
		r.note(worker, "→ observer", r.event(o.Event))
	case engine.Drain:
		r.note(worker, handler, fmt.Sprintf("%s should wind down (%s): its soft context ends", o.Tenure.Shard, o.Cause.String()))
	case engine.Over:
		r.note(worker, handler, fmt.Sprintf("%s is over (%s): its hard context ends", o.Tenure.Shard, o.Cause.String()))
	case engine.Committed:
		r.note(worker, handler, fmt.Sprintf("%s: marks stored: %d%s", o.Tenure.Shard, o.Seq, reason(o.Err)))
	case engine.Tell:
		r.note(worker, "→ observer", r.event(o.Event))
	}
}

// note records a line: the time, the two that talk, and what they say. In a quiet time it only counts
// the calls of the table.
func (r *recorder) note(worker, lane, text string) {
	if strings.Contains(worker+" "+lane+" "+text, r.goal) {
		r.goal = ""
	}
	switch {
	case !r.quiet:
		r.flush()
		r.line(r.time.Now(), worker+" "+lane, text)
	case lane == "→ table":
		r.calls.add(worker, firstWord(text))
	}
}

func (r *recorder) line(at time.Duration, lane, text string) {
	fmt.Fprintf(&r.out, "  %7.3f  %-12s %s\n", at.Seconds(), lane, text)
}

// saw records a read that shows the worker something new, and counts any other read.
func (r *recorder) saw(worker, what string, err error, read func() []string) {
	news := []string{"no answer"}
	if err == nil {
		news = read()
	}
	switch {
	case r.quiet:
		r.calls.add(worker, firstWord(what))
	case len(news) == 0:
		r.idled = r.time.Now()
		r.idle.add(worker, what)
	default:
		r.note(worker, "← table", what+": "+strings.Join(news, ";\n"+strings.Repeat(" ", 24)))
	}
}

// flush records how many reads have shown nothing new since the last line.
func (r *recorder) flush() {
	for _, worker := range slices.Sorted(maps.Keys(r.idle)) {
		r.line(r.idled, worker+" ← table", r.idle.of(worker)+": nothing new")
	}
	clear(r.idle)
}

// loud ends a quiet time, and records how many calls of each kind every worker made.
func (r *recorder) loud() {
	r.flush()
	for _, worker := range slices.Sorted(maps.Keys(r.calls)) {
		fmt.Fprintf(&r.out, "           %s %s\n", worker, r.calls.of(worker))
	}
	r.quiet = false
	clear(r.calls)
}

// counts are how many calls of each kind every worker made.
type counts map[string]map[string]int

func (c counts) add(worker, what string) {
	if c[worker] == nil {
		c[worker] = map[string]int{}
	}
	c[worker][what]++
}

func (c counts) of(worker string) string {
	var list []string
	for _, what := range slices.Sorted(maps.Keys(c[worker])) {
		list = append(list, what+when(c[worker][what] > 1, fmt.Sprintf(" %d×", c[worker][what])))
	}
	return strings.Join(list, ", ")
}

// listing returns what a listing shows that is new to the worker. In a large fleet, it only counts the
// seats of which no more than the heartbeat has changed, and seats that the worker sees for the first
// time. A full page of a listing does not show that a record is gone.
func (r *recorder) listing(worker string, of lease.Query, records []lease.Record) (news []string) {
	gone, whole := map[lease.Key]bool{}, of.After == "" && (of.Limit == 0 || len(records) < of.Limit)
	for v := range r.views {
		gone[v.key] = gone[v.key] || whole && v.worker == worker && v.key.Kind.Listed() == of.Kind && v.key.Name != ""
	}
	beats, newcomers := 0, 0
	for _, record := range records {
		gone[record.Key()] = false
		before := r.views[view{worker, record.Key()}]
		now := r.news(worker, record.Key(), record)
		switch large := len(records) > largest && record.Key().Kind == lease.KindSeat && len(now) > 0; {
		case large && before == "" && quietSeat(now[0]):
			newcomers++
		case large && before != "" && afterBeat(before) == afterBeat(now[0]):
			beats++
		default:
			news = append(news, now...)
		}
	}
	for key := range gone {
		if gone[key] {
			news = append(news, r.news(worker, key, nil)...)
		}
	}
	slices.Sort(news)
	news = slices.Concat(some(newcomers, "%d seats of others"), news, some(beats, "%d × only the heartbeat"))
	if none := (view{worker, lease.Key{Kind: of.Kind}}); whole && len(records) == 0 && r.views[none] == "" {
		r.views[none], news = "seen", []string{"there are none"}
	}
	return news
}

// largest is the number of records up to which a listing shows each seat.
const largest = 8

func some(n int, format string) []string {
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf(format, n)}
}

// afterBeat returns the description of a seat without its name and its heartbeat.
func afterBeat(seat string) string {
	_, says, _ := strings.Cut(seat, ", ")
	return says
}

// quietSeat reports whether a seat publishes nothing.
func quietSeat(seat string) bool { return afterBeat(seat) == "" }

// news describes a record that differs from what the worker has seen of it; nil: it is gone.
func (r *recorder) news(worker string, key lease.Key, of lease.Record) []string {
	v := view{worker, key}
	if of == nil && r.views[v] == "" {
		return []string{"there is no " + strings.TrimPrefix(r.name(key), "the ")}
	}
	if of == nil {
		delete(r.views, v)
		return []string{r.name(key) + " is gone"}
	}
	text := r.record(of)
	if r.views[v] == text {
		return nil
	}
	r.views[v] = text
	return []string{text}
}

// forget forgets what a worker has seen. A worker that starts has seen nothing.
func (r *recorder) forget(worker string) {
	maps.DeleteFunc(r.views, func(v view, _ string) bool { return v.worker == worker })
}

func read(worker string, n uint64) string { return worker + strconv.FormatUint(n, 10) }

func firstWord(text string) string { return strings.Fields(text)[0] }

// names gives short names to ids, in the order in which they appear.
type names struct {
	writes map[lease.WriteID]string
	owners map[lease.Incarnation]string
	seats  map[string]int // how many seats a worker has taken
	firsts []int64        // the first generations of rows, which are shown as 0
	plans  []int64        // the revisions of plans; the first one is shown as 1
}

func newNames() names {
	return names{writes: map[lease.WriteID]string{}, owners: map[lease.Incarnation]string{"": "nobody"}, seats: map[string]int{}}
}

func (n *names) write(id lease.WriteID) string {
	if n.writes[id] == "" {
		n.writes[id] = fmt.Sprintf("w%d", len(n.writes)+1)
	}
	return n.writes[id]
}

// name returns the name of a record: of a shard, or of an incarnation, such as a#2 for the
// second seat that worker a has taken.
func (n *names) name(key lease.Key) string {
	switch key.Kind {
	case lease.KindSeat:
		return "seat " + n.owners[lease.Incarnation(key.Name)]
	case lease.KindTarget:
		inc, page, _ := strings.Cut(key.Name, "/")
		return "target " + n.owners[lease.Incarnation(inc)] + when(page != "0000", ", page "+page)
	case lease.KindPlan:
		return "the plan"
	case lease.KindWishes:
		return "the wishes"
	}
	return key.Name
}

// generation returns a generation as a number that counts from the first generation of its row.
func (n *names) generation(g int64) string {
	first := int64(0)
	for _, f := range n.firsts {
		if f <= g {
			first = max(first, f)
		}
	}
	return strconv.FormatInt(g-first, 10)
}

// revision returns a revision as its number in the order in which revisions appear.
func (n *names) revision(r int64) string {
	if r == 0 {
		return "none"
	}
	if !slices.Contains(n.plans, r) {
		n.plans = append(n.plans, r)
	}
	return number(int64(slices.Index(n.plans, r) + 1))
}

var generations = regexp.MustCompile(`\d{15,}`)

// shorten replaces the generations in a text by those that are shown, and cuts rows off.
func (n *names) shorten(text string) string {
	text, _, _ = strings.Cut(text, ": the row is now")
	for inc, name := range n.owners {
		if inc != "" {
			text = strings.ReplaceAll(text, "/"+string(inc)+" ", "/"+name+" ")
		}
	}
	return generations.ReplaceAllStringFunc(text, func(digits string) string {
		g, _ := strconv.ParseInt(digits, 10, 64)
		return n.generation(g)
	})
}
