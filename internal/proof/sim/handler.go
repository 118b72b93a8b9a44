package sim

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A temper is how a handler behaves. The tempers have the same order as their faults.
type temper uint8

const (
	good      temper = iota
	failing          // returns an error after a while
	panicking        // the same, as a panic
	stuck            // does nothing any more, but returns when its hard context ends
	deaf             // ignores its contexts for a while, and continues to work
	slow             // takes longer to wind down than the drain time
	returning        // returns for no reason
	releasing        // gives its shard up
	tempers
	silent // processes, and marks nothing; drawn for sick hosts only
)

// A handler is one call of a handler, and what the shell knows of it.
type handler struct {
	*virtual.Handler
	n      *node
	s      *stream
	temper temper
	left   int           // how many batches it processes before its temper shows
	pace   time.Duration // the time between two batches
	batch  int64
	wind   time.Duration // how long it takes to wind down
	lag    time.Duration // how long it takes to notice that it is over

	from, pos int64 // it has processed the records after from, up to pos
	marks     []int64
	told      int
	settled   int
	news      engine.Marks
	dirty     bool
	waits     time.Duration // since when a flush waits; 0: none does

	raising  bool // the fence of the sink is being raised
	shut     bool // it is not called before that
	unraised bool // a raise has failed, and no report of a later success has reached the engine

	began, softAt, overAt, pulse time.Duration
	finishing                    bool
	returned                     bool
	cause                        event.Cause
	taken                        time.Duration // when a successor took it over by its offer
	accepted                     time.Duration // when the engine last reported to it that marks were accepted
}

func (h *handler) String() string {
	return fmt.Sprintf("%s@%d on %s (%d to %d)", h.s.name, h.Generation, h.n.Name, h.from, h.pos)
}

// Start calls a handler.
func (n *node) Start(t *virtual.Handler, o engine.Start) {
	w := n.w
	h := &handler{Handler: t, n: n, s: w.streams.of(o.Tenure.Shard), began: w.Now(), pulse: w.Now(), pace: w.between(w.set.pace/4, w.set.pace)}
	h.from, h.pos = position(o.Checkpoint.Position), position(o.Checkpoint.Position)
	h.batch = cmp.Or(w.set.faster, 4)*int64(h.pace)/int64(h.s.every) + 1
	h.temper, h.left = w.drawTemper(), w.IntN(12)
	if n.host.sick != good && !w.peace {
		h.temper, h.left = n.host.sick, 0
	}
	h.wind, h.lag = w.between(0, w.set.wind), w.between(time.Millisecond, 50*time.Millisecond)
	switch h.temper {
	case deaf:
		h.lag = w.between(0, 3*w.set.ttl)
	case slow:
		h.wind = w.set.drain + w.between(0, w.set.drain)
	}
	w.trace("start", n.Name, func() string { return fmt.Sprintf("%v temper %d, %v", h, h.temper, o.Transfer) })
	w.promises.start(h, o)
	t.Script = h
	h.s.active = append(h.s.active, h)
	h.raises(o.Raise)
	if !h.shut {
		h.call()
	}
}

func position(p string) int64 {
	v, _ := strconv.ParseInt(p, 10, 64)
	return v
}

func text(position int64) string { return strconv.FormatInt(position, 10) }

// drawTemper draws the temper of a handler.
func (w *world) drawTemper() temper {
	if !w.likely(w.set.tempers) {
		return good
	}
	f := HandlerError + Fault(w.IntN(int(tempers-failing)))
	if w.set.temper > 0 {
		f = w.set.temper
	}
	w.stats.Faults[f]++
	return failing + temper(f-HandlerError)
}

// work processes a batch, and then the next one a pace later.
func (h *handler) work() {
	if h.returned || h.shut {
		return
	}
	if h.left--; h.left < 0 {
		switch h.temper {
		case failing, panicking:
			h.ret(true)
			return
		case returning:
			h.ret(false)
			return
		case stuck:
			return
		case releasing:
			if h.open() && !h.news.Release {
				h.news.Release, h.news.Note = true, "enough"
				h.tell(true)
			}
		}
	}
	h.process()
	if h.returned {
		return
	}
	h.n.Later(h.n.w.between(h.pace/2, h.pace), h.work)
}

// open reports whether the shell takes calls of the handler.
func (h *handler) open() bool { return !h.Over && !h.finishing && !h.returned }

// process processes the records that are available, up to a batch of them.
func (h *handler) process() {
	w := h.n.w
	to := min(h.s.available(w.Now()), h.pos+h.batch)
	if to > h.pos {
		if !w.promises.effect(h, to) {
			if h.open() {
				h.ret(true) // the fence has told it that it is stale
			}
			return
		}
		h.pos = to
		h.mark()
	} else if h.open() && h.temper != silent {
		h.news.Progress = true
		h.tell(false)
	}
	if h.s.closed && h.pos == h.s.total && h.open() && h.temper != silent {
		h.finishing = true
		h.news.Finish = true
		h.tell(true)
	}
}

// mark is Tenure.Mark. The engine is told at once of the first mark that waits.
func (h *handler) mark() {
	if !h.open() || h.temper == silent {
		return
	}
	w := h.n.w
	first := h.settled >= len(h.marks)
	h.marks = append(h.marks, h.pos)
	urgent := first || len(h.marks)-h.settled == h.n.config.Commits.Marks
	if w.likely(w.set.flush) {
		h.news.Flush, urgent = uint64(len(h.marks)), true
		if h.waits == 0 {
			h.waits = w.Now()
		}
	}
	h.tell(urgent)
}

// tell notes that the handler has something to report. An urgent report steps the engine at once.
func (h *handler) tell(urgent bool) {
	h.pulse = h.n.w.Now()
	if !h.dirty {
		h.dirty = true
		h.n.dirty = append(h.n.dirty, h)
	}
	if urgent {
		h.n.Later(0, func() {
			if h.dirty && !h.n.done {
				h.n.Input(engine.Tick{})
			}
		})
	}
}

// report returns what the handler has not reported to the engine yet.
func (h *handler) report() (engine.Marks, bool) {
	h.dirty = false
	if h.Over {
		return engine.Marks{}, false
	}
	in := h.news
	in.Tenure, in.Seq = h.Tenure, uint64(len(h.marks))
	if len(h.marks) > h.told {
		in.Mark = checkpoint.Mark{Position: text(h.marks[len(h.marks)-1])}
		h.told = len(h.marks)
	}
	h.news = engine.Marks{Flush: in.Flush}
	return in, true
}

// Committed notes how many marks are accepted.
func (n *node) Committed(t *virtual.Handler, o engine.Committed) {
	if t == nil {
		return
	}
	h, w := t.Script.(*handler), n.w
	w.promises.committed(h, o)
	h.settled = max(h.settled, int(o.Seq))
	if h.settled >= int(h.news.Flush) {
		h.waits = 0
	}
	if len(h.marks) > h.settled && len(h.marks) > h.told {
		h.tell(true)
	}
}

// Confirmed does nothing: a handler of a worker does not ask.
func (n *node) Confirmed(*virtual.Handler, engine.Confirmed) {}

// Drain ends the soft context.
func (n *node) Drain(t *virtual.Handler, o engine.Drain) {
	if t == nil {
		return
	}
	h, w := t.Script.(*handler), n.w
	w.trace("drain", n.Name, func() string { return fmt.Sprint(h, o.Cause) })
	w.check(w.promises.end(h, o.Cause, nil).WindDown())
	h.softAt = w.Now()
	if h.shut {
		h.n.Later(0, func() {
			if !h.returned {
				h.ret(false)
			}
		})
		return
	}
	if h.temper == deaf || h.temper == stuck {
		return
	}
	h.n.Later(h.wind, func() {
		if !h.returned && !h.Over && !h.finishing {
			h.process()
		}
		if !h.returned && !h.Over && !h.finishing {
			h.ret(false)
		}
	})
}

// mend makes a handler behave well from now on.
func (h *handler) mend() {
	switch {
	case h.Over:
		return
	case h.Soft && (h.temper == deaf || h.temper == stuck):
		h.n.Later(h.wind, func() {
			if !h.returned {
				h.ret(false)
			}
		})
		return
	case h.temper == stuck:
		h.n.Later(0, h.work)
	case h.temper == silent && h.pos > h.from:
		h.temper = good
		h.mark()
	}
	h.temper, h.wind, h.lag = good, min(h.wind, h.n.w.set.wind), min(h.lag, 50*time.Millisecond)
}

// Over ends the tenure for its handler.
func (n *node) Over(t *virtual.Handler, o engine.Over) {
	n.w.trace("over", n.Name, func() string { return fmt.Sprint(o.Tenure, " cause ", o.Cause, " ", o.Err) })
	if t == nil {
		return // it has returned
	}
	h := t.Script.(*handler)
	n.w.check(n.w.promises.end(h, o.Cause, o.Err).Check())
	h.end(o.Cause)
}

// end ends the hard context of the handler, unless it has ended already.
func (h *handler) end(cause event.Cause) {
	if h.Over {
		return
	}
	h.Over, h.overAt, h.cause = true, h.n.w.Now(), cause
	h.n.Later(h.lag, func() {
		if !h.returned {
			h.ret(false)
		}
	})
}

// ret is the handler's return.
func (h *handler) ret(failed bool) {
	n := h.n
	h.returned = true
	n.Handlers.Remove(h.Tenure)
	n.w.trace("return", n.Name, h.String)
	n.w.promises.gone(h)
	if n.done {
		if len(n.Handlers) == 0 {
			n.exit()
		}
		return
	}
	n.Input(engine.Returned{Tenure: h.Tenure, Failed: failed && !h.Soft && !h.Over})
}
