package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The exit codes of check are those of a Nagios plugin.
const (
	checkOK = iota
	checkWarning
	checkCritical
	checkUnknown
)

// monitors is the annotation of a command whose exit codes are those of check.
const monitors = "monitors"

// plugin is the default format of check.
const plugin = "nagios"

func checkStatus(code int) string {
	return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[code]
}

// checkCommand returns a command that also stores its exit code in code.
func (o *observer) checkCommand(code *int) *cobra.Command {
	c := &cobra.Command{
		Use: "check", Short: "Checks the group, for a monitoring system", Args: arguments,
		Annotations: map[string]string{monitors: "yes"},
		Long: `Checks the group as a Nagios plugin: one line with performance data, then a line for each warning.

Exit codes: 0 OK; 1 WARNING, a warning of the level warn; 2 CRITICAL, one of the level error; 3 UNKNOWN, the
table cannot be read, the group does not exist, or the command line is wrong. Warnings of the level info do not
change the exit code.

A single look knows ages only from the clocks of the workers, and allows a minute of difference. With
--observe 16s the command watches the group first, and finds dead workers without relying on
clocks. leaving-slowly and uneven need 25 s, stuck-handoff and dangling-offer 60 s.`,
		Example: "  shardlease check\n  shardlease check --observe 60s\n  shardlease check -o prometheus > /var/lib/node_exporter/shardlease.prom",
	}
	f := formatFlag(c, plugin, asJSON, asPrometheus)
	lasts := c.Flags().Duration("observe", 0, "watch the group for so long first")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		ends := time.Duration(-1)
		if f.name == asPrometheus {
			ends = time.Hour
		}
		s, err := o.observe(ctx, *lasts, ends)
		if err != nil {
			return err
		}
		found := verdictOn(s)
		*code = found.code
		return found.print(o.out, f.name)
	})
	return c
}

// A verdict is what check prints.
type verdict struct {
	code     int
	text     string // the sentence for people
	snapshot *inspect.Snapshot
	warnings []inspect.Warning
	failure  error // why there is no verdict
	group    string
}

// verdictOn returns the verdict on a group.
func verdictOn(s *inspect.Snapshot) verdict {
	v := verdict{snapshot: s, warnings: s.Warnings(), group: s.Group}
	slices.SortStableFunc(v.warnings, func(a, b inspect.Warning) int { return int(b.Level) - int(a.Level) })
	var codes []string
	for _, w := range v.warnings {
		switch {
		case w.Level >= slog.LevelError:
			v.code = max(v.code, checkCritical)
		case w.Level >= slog.LevelWarn:
			v.code = max(v.code, checkWarning)
		default:
			continue
		}
		if !slices.Contains(codes, string(w.Code)) {
			codes = append(codes, string(w.Code))
		}
	}
	held := s.Count(inspect.Held) + s.Count(inspect.Moving)
	v.text = fmt.Sprintf("%s: %d of %s held by %s", s.Group, held, counted(allRows(s), wordsOf(s).shard), counted(len(s.Workers), wordsOf(s).worker))
	if len(codes) > 0 {
		v.text += "; " + strings.Join(codes, ", ")
	}
	if v.code == checkOK {
		v.text += lateHeartbeat(s)
	}
	return v
}

// lateHeartbeat returns a hint if the clocks of two machines tell of a heartbeat that is overdue. A single look
// allows a minute of clock difference, so that is no warning.
func lateHeartbeat(s *inspect.Snapshot) string {
	var latest *inspect.Worker
	for i := range s.Workers {
		w := &s.Workers[i]
		late := w.Silent.Known && !w.Silent.Observed && w.Silent.D > w.Seat.TTL+w.Seat.TTL/3+500*time.Millisecond
		if late && (latest == nil || w.Silent.D > latest.Silent.D) {
			latest = w
		}
	}
	if latest == nil {
		return ""
	}
	watch := max(12*time.Second, latest.Seat.TTL*4/3+2500*time.Millisecond).Round(time.Second) // until it is dead, and another look
	return fmt.Sprintf("; a heartbeat is %s old: --observe %s shows whether it moves", old(latest.Silent), watch)
}

// unknown prints that check has failed, and returns its exit code.
func (p *program) unknown(cmd *cobra.Command, err error) int {
	v := verdict{code: checkUnknown, group: p.at.group, failure: err, text: joinedLines(explain(err, checkUnknown))}
	as := plugin
	if f := cmd.Flags().Lookup("output"); f != nil {
		as = f.Value.String()
	}
	_ = v.print(p.out, as) // the exit code says it as well
	return checkUnknown
}

// joinedLines returns the lines of an explanation as one line.
func joinedLines(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ") }

func (v verdict) print(out io.Writer, as string) (err error) {
	switch as {
	case asJSON:
		return v.asResult().print(out, &format{name: asJSON})
	case asPrometheus:
		_, err = io.WriteString(out, metricsText(inspect.Figures(v.group, v.snapshot)))
	default:
		_, err = io.WriteString(out, v.lines())
	}
	return err
}

// oneLine returns a text for the line of a Nagios plugin, in which a bar begins the performance data.
func oneLine(s string) string { return strings.ReplaceAll(clean(s), "|", `\x7c`) }

// lines returns the line for people and its performance data, and a line for each warning.
func (v verdict) lines() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s", checkStatus(v.code), oneLine(v.text))
	if v.snapshot != nil {
		b.WriteString(" | " + strings.Join(v.perfdata(), " "))
	}
	b.WriteByte('\n')
	for _, w := range v.warnings {
		subject := ""
		if w.Subject != "" {
			subject = " " + quoted(w.Subject)
		}
		fmt.Fprintf(&b, "%s %s%s: %s %s\n", w.Level, w.Code, oneLine(subject), oneLine(w.Text), oneLine(w.Do))
	}
	return b.String()
}

func (v verdict) perfdata() []string {
	list := []string{fmt.Sprintf("shards=%d", allRows(v.snapshot))}
	for _, of := range tallies(v.snapshot) {
		list = append(list, fmt.Sprintf("%s=%d", of.state, of.shards))
	}
	return append(list, fmt.Sprintf("workers=%d", len(v.snapshot.Workers)), fmt.Sprintf("warnings=%d", len(v.warnings)))
}

// spoilt is the state of a shard whose row cannot be read: only its name is known.
const spoilt inspect.State = "unreadable"

// unreadableRows returns how many lease rows exist and cannot be read.
func unreadableRows(s *inspect.Snapshot) (n int) {
	for _, u := range s.Unreadable {
		if u.Key.Kind == lease.KindLease && s.Shard(u.Key.Name) == nil {
			n++
		}
	}
	return n
}

// allRows returns how many shards have a row, whether it can be read or not.
func allRows(s *inspect.Snapshot) int { return len(s.Shards) + unreadableRows(s) }

// A tally is how many shards are in a state.
type tally struct {
	state  inspect.State
	shards int
}

// tallies returns a tally for each state but Removed: a listing has no tombstones.
func tallies(s *inspect.Snapshot) (list []tally) {
	for _, state := range inspect.States() {
		if state != inspect.Removed {
			list = append(list, tally{state, s.Count(state)})
		}
	}
	return append(list, tally{spoilt, unreadableRows(s)})
}

type checkView struct {
	Group    string         `json:"group,omitempty"`
	Sessions bool           `json:"sessions,omitempty"`
	Status   string         `json:"status"`
	Text     string         `json:"text"`
	Error    string         `json:"error,omitempty"`
	Shards   map[string]int `json:"shards,omitempty"` // by state
	Workers  *int           `json:"workers,omitempty"`
	Warnings []object       `json:"warnings"`
}

func (v verdict) asResult() *result {
	view := checkView{Group: v.group, Status: checkStatus(v.code), Text: v.text, Warnings: warningsOf(v.warnings)}
	if v.failure != nil {
		view.Error = v.failure.Error()
	}
	if v.snapshot != nil {
		view.Sessions = v.snapshot.Sessions
		view.Shards, view.Workers = map[string]int{}, new(len(v.snapshot.Workers))
		for _, state := range inspect.States() {
			view.Shards[string(state)] = v.snapshot.Count(state)
		}
		view.Shards[string(spoilt)] = unreadableRows(v.snapshot)
	}
	return &result{kind: "check", head: view}
}
