package story

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// run goes through the steps of the story. An error ends ctx; nothing is printed after that.
func (f *fleet) run(ctx context.Context, workers int) error {
	ctx, f.fail = context.WithCancelCause(ctx)
	f.ctx = ctx
	defer func() { f.fail(nil); f.close() }()
	f.print("", fmt.Sprintf("%s: a stream of %d shards, each with a record every %v, and workers that share them.",
		f.paint("1", "shardlease"), len(f.shards), perRecord),
		fmt.Sprintf("The lease table is in memory, and the lease time is %v. The owner of a shard processes it. With", ttl),
		"each change of owner the shard gets a new generation; what still comes from an older one is refused.",
		"(Generations begin at the clock, so they are large.) If a worker joins or leaves, shards move when nothing has changed for 500ms.")
	f.heading("%d workers start", workers)
	for range workers {
		f.join(ctx, f.mode)
	}
	f.good("even after %v; there is no leader: any worker may write the plan", f.wait(ctx, f.even))
	for _, step := range []func(context.Context){
		f.grow(rebalance.Eager), f.grow(rebalance.Cooperative), f.kill, f.pause, f.leave, f.finish,
	} {
		if !f.live {
			f.print(f.table()...)
		}
		f.sleep(ctx, 600*time.Millisecond) // for people to read
		if step(ctx); ctx.Err() != nil {
			break
		}
	}
	return context.Cause(ctx)
}

// grow lets one more worker get its share by planned moves, in one of the modes.
func (f *fleet) grow(mode rebalance.Mode) func(context.Context) {
	return func(ctx context.Context) {
		f.heading("worker-%d joins, and its moves are %v", len(f.workers)+1, mode)
		f.costs()
		f.join(ctx, mode)
		took := f.wait(ctx, f.even)
		gaps, overlaps := f.costs()
		moves := len(gaps) + len(overlaps)
		f.good("even again after %v with %d moves; the fewest possible are %d", took, moves, len(f.shards)/len(f.workers))
		gap, meanGap := worst(gaps)
		overlap, meanOverlap := worst(overlaps)
		f.good("the longest gap, in which nobody processed a shard: %v; the longest overlap, in which two did: %v", gap, overlap)
		f.modes = append(f.modes, fmt.Sprintf("  %-14v %6d %10v %6v %14v %6v", mode, moves, gap, meanGap, overlap, meanOverlap))
	}
}

// worst returns the longest and the mean of some durations.
func worst(ds []time.Duration) (longest, mean time.Duration) {
	for _, d := range ds {
		longest, mean = max(longest, d), mean+d/time.Duration(len(ds))
	}
	return longest.Round(time.Millisecond), mean.Round(time.Millisecond)
}

// kill: a worker dies, and its lease expires.
func (f *fleet) kill(ctx context.Context) {
	w := f.workers[1]
	f.heading("%s is killed", w.name)
	f.say("%s dies while it owns %d shards, and reports that to nobody", f.hue(w.name), len(f.owners()[w.name]))
	w.state.Store(killed)
	w.stop()
	f.good("others own its shards after %v: its lease expired %v after its last heartbeat", f.wait(ctx, f.served), ttl)
}

// pause: a worker is paused in the middle of a checkpoint, replaced, and continues.
func (f *fleet) pause(ctx context.Context) {
	w := f.workers[2]
	f.heading("%s is paused in the middle of a checkpoint", w.name)
	w.pauses.Store(true)
	var late lease.Write
	select {
	case late = <-w.late:
	case <-ctx.Done():
	}
	old, ok := late.Old.(lease.Row)
	if !ok {
		return // interrupted
	}
	f.say("%s stops, as by SIGSTOP or when a VM is moved; its checkpoint of %s is on its way", f.hue(w.name), old.Shard)
	f.good("others own its shards after %v: its lease expired %v after its last heartbeat", f.wait(ctx, f.served), ttl)
	f.sleep(ctx, 3*ttl/2) // its successors write to the sink
	f.say("%s continues, and cannot know that; its checkpoint arrives now", f.hue(w.name))
	_, err := f.store.Write(ctx, late)
	refused, ok := errors.AsType[*lease.RefusedError](err)
	if !ok {
		f.fail(fmt.Errorf("the table has not refused a stale checkpoint of %s: %v", old.Shard, err))
		return
	}
	now := refused.Now.(lease.Row)
	f.good("the table refuses the checkpoint: generation %d of %s is over, %s owns %d", old.Generation, old.Shard, now.Owner.Name, now.Generation)
	f.count(f.counts, "refused", 1)
	w.state.Store(serving)
	w.resume()
	f.good("%s has its share again after %v", w.name, f.wait(ctx, f.even))
}

// leave: a clean stop waits for no lease to expire.
func (f *fleet) leave(ctx context.Context) {
	w := f.workers[0]
	f.heading("%s leaves", w.name)
	f.say("%s is stopped, as in a deploy, while it owns %d shards; each moves in the mode of its next owner", f.hue(w.name), len(f.owners()[w.name]))
	w.stop()
	took := f.wait(ctx, func() bool { return w.state.Load() == left && f.even() })
	f.good("it handed them over, and is gone after %v: no lease had to expire", took)
}

// finish: the stream ends, and everything is counted.
func (f *fleet) finish(ctx context.Context) {
	f.heading("the stream ends")
	f.stream.end()
	f.wait(ctx, func() bool { return f.count(f.changes, "finished", 0) == len(f.shards) })
	f.good("all %d shards are processed to their end, and nobody claims them again", len(f.shards))
	f.close() // now all events are delivered
	records := len(f.shards) * int(f.stream.last.Load())
	lost := records - f.sink.processed
	f.put(f.table(), []string{})
	f.heading("what happened")
	f.print("  The moves when workers joined, in each mode:", "  mode            moves   gap: longest   mean   overlap: longest   mean")
	f.print(f.modes...)
	f.print("",
		"  changes of owner: "+strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(f.changes), "map["), "]"),
		fmt.Sprintf("  stale checkpoints that the table refused: %d", f.counts["refused"]),
		fmt.Sprintf("  stale writes that the sink refused: %d", f.sink.refused),
		fmt.Sprintf("  records processed: %d of %d; %d of them again, because after a crash or in an overlap", records-lost, records, f.sink.again),
		"                     the successor starts at the last accepted checkpoint",
		f.paint("1", fmt.Sprintf("  records lost: %d", lost)))
	if lost > 0 {
		f.fail(fmt.Errorf("%d records were lost", lost))
	}
}

// observe prints what the workers report.
func (f *fleet) observe(w *worker, e event.Event) {
	switch {
	case w.state.Load() == killed || w.state.Load() == paused: // nobody hears of it
	case e.Kind == event.Started:
		f.count(f.changes, string(e.Reason), 1)
		f.say("%s  %s → %s  %v", e.Shard, f.hue(cmp.Or(e.Transfer.From, "nobody  ")), f.hue(e.Worker), e.Reason)
	case e.Kind == event.Ended && e.Cause == event.CauseFinished:
		f.count(f.changes, string(lease.ReasonFinished), 1)
	case e.Kind == event.Refused:
		f.count(f.counts, "refused", 1)
		f.good("the table refuses a late checkpoint of %s, by %s", e.Shard, w.name)
	case e.Kind == event.PeerEvicted && f.count(f.counts, "evicted "+e.Peer, 1) == 1:
		f.say("%s has seen no heartbeat of %s for %v, and evicts it", f.hue(e.Worker), f.hue(e.Peer), ttl)
	case e.Kind == event.Joined && f.count(f.counts, "joined "+e.Worker, 1) > 1:
		f.say("%s has noticed that its lease expired, and joins again", f.hue(e.Worker))
	}
}

// table is the table of owners: a line for each worker, a column for each shard.
func (f *fleet) table() []string {
	lines, owners := []string{""}, f.owners()
	for _, w := range f.workers {
		var cells strings.Builder
		for _, shard := range f.shards {
			if slices.Contains(owners[w.name], shard) {
				cells.WriteString(strings.TrimPrefix(shard, "shard-") + " ")
			} else {
				cells.WriteString(" · ")
			}
		}
		lines = append(lines, fmt.Sprintf("  %s  %s %d shards  %v", f.hue(w.name), cells.String(), len(owners[w.name]), w.state.Load()))
	}
	return lines
}

// A screen prints lines with the time. On a terminal it keeps the board below them.
type screen struct {
	out      io.Writer
	live     bool // a terminal: colours, and the board is drawn again and again
	start    time.Time
	ctx      context.Context         // of the story; nothing is printed after it
	fail     context.CancelCauseFunc // ends it
	printing sync.Mutex
	board    []string // what is drawn
}

func newScreen(out io.Writer) *screen {
	file, _ := out.(*os.File)
	info, err := file.Stat() // an error if out is no file
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out: out, live: terminal, start: time.Now()}
}

// put prints lines and the next board (nil: the same) over the board that is drawn. The
// terminal cuts off what is too wide, so that the number of lines to go up is known.
func (s *screen) put(lines, board []string) {
	s.printing.Lock()
	defer s.printing.Unlock()
	if board == nil {
		board = s.board
	}
	if s.ctx.Err() != nil || len(lines) == 0 && slices.Equal(board, s.board) {
		return
	}
	text := strings.Join(append(lines, ""), "\n")
	if len(s.board) > 0 {
		text = fmt.Sprintf("\x1b[%dA\x1b[J", len(s.board)) + text
	}
	if len(board) > 0 {
		text += "\x1b[?7l" + strings.Join(board, "\n") + "\n\x1b[?7h"
	}
	s.board = board
	if _, err := io.WriteString(s.out, text); err != nil {
		s.fail(err)
	}
}

// print prints lines, and say a line with the time; good is for what the library promises.
func (s *screen) print(lines ...string) { s.put(lines, nil) }
func (s *screen) say(format string, args ...any) {
	s.print(fmt.Sprintf("%6.2fs  ", time.Since(s.start).Seconds()) + fmt.Sprintf(format, args...))
}
func (s *screen) good(format string, args ...any) {
	s.say("%s", s.paint("32", fmt.Sprintf("✓ "+format, args...)))
}
func (s *screen) heading(format string, args ...any) {
	s.print("", s.paint("1", fmt.Sprintf("── "+format+" ──────────", args...)))
}

// paint colours text on a terminal (see https://no-color.org), and hue a worker's name.
func (s *screen) paint(colour, text string) string {
	if !s.live || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
func (s *screen) hue(name string) string {
	return s.paint("3"+string("6543216"[name[len(name)-1]%7]), name)
}
