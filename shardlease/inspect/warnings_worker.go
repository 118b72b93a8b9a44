package inspect

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
)

// defaultPrepare is the default of a move's preparation. No record shows that a worker prepares.
const defaultPrepare = 30 * time.Second

// worker finds what is wrong with one worker.
func (f *findings) worker(w *record) {
	seat := &w.Seat
	if w.Dead {
		f.warn(CodeSilent, slog.LevelWarn, seat.Name, fmt.Sprintf("the worker has stored no heartbeat for %s, its lease time is %v, and no other worker has evicted it.", about(w.Silent.D), seat.TTL),
			fmt.Sprintf("Find out whether it still runs; if not, `shardlease evict %s --why \"…\"` frees its %s.", quoted(string(seat.Incarnation)), many(w.Held, "shard")))
		return
	}
	f.clock(w)
	f.unwell(w)
	f.hanging(w)
	f.leaving(w)
	limit := 2 * seat.TTL
	if w.Lacking > 0 {
		limit += defaultPrepare
	}
	if !w.Unsettled.over(limit) || f.Plan == nil || f.Plan.Open || f.Partial || !w.alive() || w.waits {
		return
	}
	text := fmt.Sprintf("the worker has lacked %s of revision %d of the plan for %s.", many(w.Lacking, "shard"), f.Plan.Revision, about(w.Unsettled.D))
	if seat.Revision < f.Plan.Revision {
		text = fmt.Sprintf("the worker has not seen revision %d of the plan for %s.", f.Plan.Revision, about(w.Unsettled.D))
	}
	f.warn(CodePlanStale, slog.LevelWarn, seat.Name, text,
		fmt.Sprintf("Look for store errors in the logs of the worker; if it hangs, `shardlease evict %s --why \"…\"`.", quoted(string(seat.Incarnation))))
}

// clock reports a worker whose clock differs from the reader's.
func (f *findings) clock(w *record) {
	behind := f.At.Sub(w.Seat.At) - w.Silent.D
	text := ""
	switch {
	case w.Seat.At.IsZero():
	case w.ahead > skew:
		text = fmt.Sprintf("the %s has stored a time that is %s in the future.", f.noun(), about(w.ahead))
	case w.Silent.Observed && behind > skew+w.Seat.TTL:
		text = fmt.Sprintf("the %s has stored a heartbeat with a time %s in the past.", f.noun(), about(behind))
	}
	if text != "" {
		f.warn(CodeClockSkew, slog.LevelWarn, w.Seat.Name, text,
			"Synchronize the clocks of its host and of this one: no guarantee depends on them, but `shardlease workers` and the ends of wishes do.")
	}
}

func (f *findings) unwell(w *record) {
	h := &w.Seat.Health
	if h.Unwell == "" && !h.NoSource {
		return
	}
	all := h.Unwell != ""
	for _, other := range f.alive {
		all = all && other.Seat.Health.Unwell != ""
	}
	text := fmt.Sprintf("the worker reports that it is unwell: %s.", w.Health)
	if !h.UnwellSince.IsZero() {
		text = fmt.Sprintf("the worker has reported for %s that it is unwell: %s.", about(since(f.At, h.UnwellSince).D), w.Health)
	}
	advice := fmt.Sprintf("Read its logs, then restart it; `shardlease drain %s --why \"…\"` moves its shards away first.", quoted(w.Seat.Name))
	if protocol.CannotRead(*h) {
		advice = "Repair its permissions or its network. Do not restart it: it works on what it holds, and could not claim that again."
	}
	if protocol.CannotRaise(*h) {
		advice = "Repair that target, or the worker's way to it. Do not restart it: each tenure that begins needs the raise. `shardlease workers` shows when it is well."
	}
	f.warn(CodeUnwellWorker, level(all), w.Seat.Name, text, advice)
}

// leaving reports a worker that shuts down and gives up no shards.
func (f *findings) leaving(w *record) {
	if !w.Leaves || w.Held == 0 || f.Partial {
		return
	}
	if w.Emptying.Watched >= max(20*time.Second, w.may) {
		f.warn(CodeLeavingSlowly, slog.LevelWarn, w.Seat.Name, fmt.Sprintf("the worker shuts down, and has given up none of its %s for %s.", many(w.Held, "shard"), about(w.Emptying.Watched)),
			fmt.Sprintf("Look for handlers that do not return; `shardlease evict %s --why \"…\"` takes the shards from it.", quoted(string(w.Seat.Incarnation))))
	}
}

// hanging reports a worker whose handlers do not return, although their tenures have ended.
func (f *findings) hanging(w *record) {
	n := len(w.Hangs)
	if n == 0 {
		return
	}
	text := fmt.Sprintf("%s of the %s have ended, and the functions that process them have not returned: %s.", many(n, "tenure"), f.noun(), named(w.Hangs))
	if n == 1 {
		text = fmt.Sprintf("a tenure of the %s has ended, and the function that processes it has not returned: %s.", f.noun(), named(w.Hangs))
	}
	f.warn(CodeHangs, slog.LevelWarn, w.Seat.Name, text,
		"Take a stack dump of its process, then restart it, because nothing else ends the function; `shardlease workers` shows which processes hang.")
}

// named returns the first ten of some names.
func named(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// hangsEverywhere reports a shard without an owner that no worker may claim, because in the process of each a handler
// of the shard still runs.
func (f *findings) hangsEverywhere(s *Shard) {
	var names []string
	for _, w := range f.claims {
		if !slices.Contains(w.Hangs, s.Name) {
			return
		}
		names = append(names, w.Seat.Name)
	}
	if len(names) > 0 {
		f.warn(CodeHangs, slog.LevelError, s.Name, fmt.Sprintf("no worker claims the shard: a handler of it hangs in every process (%s).", named(names)),
			"Take a stack dump of one of the processes, then restart them, or start another worker; `shardlease workers` shows which processes hang.")
	}
}
