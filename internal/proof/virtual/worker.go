package virtual

import (
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// A Worker is a process with a plain shell: its handlers do nothing, and return when they should. The shell that embeds
// it adds Call and Poll, and what it does in another way.
type Worker struct {
	Process
	Quiet
	Winds time.Duration // how long a handler runs on after its soft context has ended
	Stuck bool          // its handlers ignore their contexts

	steps int
}

// Moment returns the moment of the next step.
func (w *Worker) Moment() engine.Moment {
	w.steps++
	return w.MomentOf(w.Name + "-" + strconv.Itoa(w.steps))
}

// Start calls a handler, which does nothing.
func (w *Worker) Start(*Handler, engine.Start) {}

// Drain lets the handler return after a while.
func (w *Worker) Drain(_ *Handler, o engine.Drain) { w.end(o.Tenure, w.Winds) }

// Over lets the handler return.
func (w *Worker) Over(_ *Handler, o engine.Over) { w.end(o.Tenure, time.Millisecond) }

func (w *Worker) end(id engine.Tenure, d time.Duration) {
	w.Later(d, func() {
		if !w.Stuck {
			w.Return(id, false)
		}
	})
}
