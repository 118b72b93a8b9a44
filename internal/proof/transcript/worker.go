package transcript

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
)

const (
	way      = 2 * time.Millisecond // of a call to the table, and of its answer back
	patience = time.Second          // how long a worker waits for an answer
	detour   = 30 * time.Second     // of a write that is delayed
)

// A worker is the machine of one worker. All its calls take the same time, so a transcript
// changes only with the engines.
type worker struct {
	virtual.Worker
	s     *session
	off   bool                         // the table is out of reach
	sick  bool                         // its handlers return at once with an error
	fates map[string]func(engine.Send) // for a verb, the fault of the next write with that verb
}

// Stepped records the input of a step and its outputs.
func (w *worker) Stepped(in engine.Input, out []engine.Output) {
	w.s.input(w.Name, in)
	for _, o := range out {
		w.s.output(w.Name, o)
	}
}

// Call calls the table, unless a fault of this write comes first.
func (w *worker) Call(o engine.Output) {
	if send, ok := o.(engine.Send); ok {
		verb := firstWord(verb(send.Write, w.Name))
		if fate := w.fates[verb]; fate != nil {
			delete(w.fates, verb)
			fate(send)
			w.unanswered(o)
			return
		}
	}
	from := w.Sender()
	w.Time.After(way, func() {
		if w.off {
			w.unanswered(o)
			return
		}
		w.Answer(way, w.s.table.Serve(from, o))
	})
}

func (w *worker) unanswered(o engine.Output) {
	w.Answer(patience, virtual.Unanswered(o, context.DeadlineExceeded))
}

// loseRequest is the fault of a write that never reaches the table.
func (w *worker) loseRequest(o engine.Send) {
	w.s.note(w.Name, "✗ table", w.s.write(o.Write.ID())+" is lost on its way to the table")
}

// loseReply is the fault of a write that reaches the table, and whose answer is lost.
func (w *worker) loseReply(o engine.Send) { w.stray(o, way, "; the reply is lost") }

// delay is the fault of a write that reaches the table late, when the worker no longer waits.
func (w *worker) delay(o engine.Send) {
	w.stray(o, detour, "; it came late, and nobody gets the reply")
}

// stray delivers a write to the table after d; nobody gets the answer.
func (w *worker) stray(o engine.Send, d time.Duration, note string) {
	from := w.Sender()
	w.Time.After(d, func() {
		in := w.s.table.Serve(from, o).(engine.Settled)
		w.s.note(w.Name, "✗ table", w.s.answer(o.Write, in.Record, in.Err)+note)
	})
}

// Poll asks the source.
func (w *worker) Poll() { w.Answer(2*way, w.s.source) }

// Start lets a handler of a sick worker fail. Otherwise handlers do what the script says.
func (w *worker) Start(_ *virtual.Handler, o engine.Start) {
	if w.sick {
		w.Later(time.Millisecond, func() { w.Return(o.Tenure, true) })
	}
}

// handler returns the latest call of the handler of a shard, or nil if none runs.
func (w *worker) handler(shard string) (latest *virtual.Handler) {
	for _, h := range w.Handlers {
		if h.Shard == shard {
			latest = h
		}
	}
	return latest
}
