package transcript

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// group is the group of all transcripts.
const group = "g"

// A session plays one script.
type session struct {
	*recorder
	virtual.Time
	make     virtual.Maker
	store    *virtual.Deletable
	backup   *virtual.Deletable
	table    virtual.Table // of the store
	source   engine.Source
	workers  map[string]*worker
	commands []command
}

// A command is one sentence of the script language. Its function do gets the words that the pattern
// captures.
type command struct {
	pattern *regexp.Regexp
	do      func(arg []string) error
}

func newSession(make virtual.Maker) *session {
	s := &session{make: make, store: virtual.NewDeletable(), workers: map[string]*worker{}}
	s.recorder, s.table.Store = newRecorder(&s.Time), s.store
	s.add(`source lists (.+)`, s.list)
	s.add(`start ([\w ]+) (eager|cooperative)(?: with (\d+) attempts)?`, s.start)
	s.add(`run (\w+)( quietly)?`, s.run)
	s.add(`run until: (.+)`, s.until)
	s.about(`(stop|crash|pause|wake|cut off|reconnect) (?P<worker>\w+)`, life)
	s.about(`handler of (\w+) on (?P<worker>\w+) (marks|commits|finishes|returns|fails) ?(\w*)`, handle)
	s.about(`handlers of (?P<worker>\w+) take (\w+) to wind down`, windDown)
	s.about(`handlers of (?P<worker>\w+) fail at once`, sicken)
	s.about(`when (?P<worker>\w+) next (\w+): (lose the request|lose the reply|delay it)`, misroute)
	s.add(`(back up|restore|adopt|show) the table`, s.operate)
	s.add(`delete the plan`, s.deletePlan)
	return s
}

// add adds a command.
func (s *session) add(pattern string, do func(arg []string) error) {
	s.commands = append(s.commands, command{regexp.MustCompile("^" + pattern + "$"), do})
}

// about adds a command that concerns a running worker.
func (s *session) about(pattern string, do func(w *worker, arg []string) error) {
	at := regexp.MustCompile(pattern).SubexpIndex("worker")
	s.add(pattern, func(arg []string) error {
		if w := s.workers[arg[at]]; w != nil && w.Up() {
			return do(w, arg)
		}
		return errors.New("no such worker runs")
	})
}

// do runs one command.
func (s *session) do(line string) error {
	for _, c := range s.commands {
		if arg := c.pattern.FindStringSubmatch(line); arg != nil {
			return c.do(arg)
		}
	}
	return errors.New("no such command")
}

// list sets what the source lists: shards, each with its parents, as in "s2<s1".
func (s *session) list(arg []string) error {
	s.source = engine.Source{Complete: true, Answered: true}
	for word := range strings.FieldsSeq(arg[1]) {
		name, parents, _ := strings.Cut(word, "<")
		shard := engine.Shard{Name: name}
		if parents != "" {
			shard.Parents = strings.Split(parents, ",")
		}
		s.source.Shards = append(s.source.Shards, shard)
	}
	return nil
}

func (s *session) start(arg []string) error {
	c := engine.Config{
		Group: group, TTL: 10 * time.Second, Drain: 5 * time.Second, Handoff: rebalance.Eager,
		MaxMoves: 100, Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Minute, Poll: 30 * time.Second,
		Commits: checkpoint.Policy{Every: time.Second},
	}
	if arg[2] == rebalance.Cooperative.String() {
		c.Handoff = rebalance.Cooperative
	}
	c.MaxAttempts, _ = strconv.ParseInt(arg[3], 10, 64) // none: 0, any number
	for name := range strings.FieldsSeq(arg[1]) {
		c.Name = name
		s.boot(c)
	}
	return nil
}

func (s *session) boot(c engine.Config) {
	w := s.workers[c.Name]
	if w == nil {
		w = &worker{s: s, fates: map[string]func(engine.Send){}}
		w.Process = virtual.Process{Time: &s.Time, Name: c.Name}
		w.Shell = w
		s.workers[c.Name] = w
	}
	s.forget(c.Name)
	w.Boot(s.Now(), func() virtual.Engine { return s.make(c, w.Moment()) })
}

// run lets time pass. Quietly, only the number of calls is recorded.
func (s *session) run(arg []string) error {
	d, err := time.ParseDuration(arg[1])
	if err != nil {
		return err
	}
	s.quiet = arg[2] != ""
	s.Run(d)
	s.loud()
	return nil
}

// until lets time pass until a line with that text is recorded.
func (s *session) until(arg []string) error {
	s.goal = arg[1]
	if _, ok := s.Until(time.Minute, time.Millisecond, func() bool { return s.goal == "" }); !ok {
		return errors.New("not within a minute")
	}
	s.flush()
	return nil
}

func life(w *worker, arg []string) error {
	switch arg[1] {
	case "stop":
		w.Step(engine.Stop{})
	case "crash":
		w.Kill()
	case "pause":
		w.Pause()
	case "wake":
		w.Resume(nil)
	default:
		w.off = arg[1] == "cut off"
	}
	return nil
}

// handle makes a handler do something. A handler that commits waits until its mark is stored.
func handle(w *worker, arg []string) error {
	h, verb := w.handler(arg[1]), arg[3]
	if h == nil {
		return errors.New("no such handler runs")
	}
	if verb == "returns" || verb == "fails" {
		w.Return(h.Tenure, verb == "fails")
		return nil
	}
	in := engine.Marks{Tenure: h.Tenure, Finish: verb == "finishes"}
	if arg[4] != "" {
		h.Marks++
		in.Mark, in.Seq = checkpoint.Mark{Position: arg[4]}, h.Marks
	}
	if verb == "commits" {
		in.Flush = in.Seq
	}
	w.Step(in)
	return nil
}

func windDown(w *worker, arg []string) (err error) {
	w.Winds, err = time.ParseDuration(arg[2])
	return err
}

func sicken(w *worker, _ []string) error {
	w.sick = true
	return nil
}

func misroute(w *worker, arg []string) error {
	w.fates[arg[2]] = map[string]func(engine.Send){
		"lose the request": w.loseRequest, "lose the reply": w.loseReply, "delay it": w.delay,
	}[arg[3]]
	return nil
}

// operate does what an operator does with the table: back it up, restore it, and adopt what
// was restored; or show it.
func (s *session) operate(arg []string) error {
	switch arg[1] {
	case "back up":
		s.backup = s.store.Clone()
	case "restore":
		if s.backup == nil {
			return errors.New("there is no backup")
		}
		s.store = s.backup.Clone()
		s.table.Restore(s.store)
		s.table.Verified = fmt.Errorf("not the table of the group: %w", lease.ErrWentBack)
	case "adopt":
		return s.adopt()
	case "show":
		for _, kind := range []lease.Kind{lease.KindLease, lease.KindTarget, lease.KindSeat} {
			for _, r := range s.table.Records(group, kind) {
				fmt.Fprintf(&s.out, "           %s\n", s.record(r))
			}
		}
	}
	return nil
}

func (s *session) deletePlan([]string) error {
	s.store.Delete(lease.Plan{Group: group}.Key())
	return nil
}

func (s *session) adopt() error {
	for i, r := range s.table.Records(group, lease.KindLease) {
		stamp := protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("operator-%d", i)), At: virtual.Epoch().Add(s.Now())}
		w, err := protocol.Adopt(r.(lease.Row), "operator", stamp)
		if err != nil {
			return err
		}
		if _, err := s.table.Write(virtual.Sender{}, w); err != nil {
			return err
		}
		s.note("operator", "→ table", s.sentence("operator", w))
	}
	s.table.Verified = nil
	return nil
}
