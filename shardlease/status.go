package shardlease

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A state is the state of the Run of a worker.
type state uint8

const (
	idle state = iota
	running
	waiting // the run loop has ended; Run waits for handlers and calls that have not returned
	over
)

// Healthy returns nil while Run runs, the last confirmed heartbeat is younger than the
// lease time, the table accepts the commits of this worker ([Config.CommitTimeout]), and its
// handlers do not fail whatever the shard ([event.Unwell]); otherwise it returns the reason. A
// worker that has just started counts as healthy for a lease time without a heartbeat.
//
// Healthy is for alerts. It is not for a liveness probe: a restart does not bring the
// table back. See [Worker.Probes].
func (w *Worker) Healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.stopped(); err != nil {
		return err
	}
	// Trust ends nine tenths of the lease time after the last confirmed heartbeat was sent.
	silent := time.Since(w.began) - max(0, time.Duration(w.trust)-w.config.TTL*9/10)
	if silent >= w.config.TTL {
		return w.reason("no heartbeat was confirmed for %v", silent.Round(time.Millisecond))
	}
	if fails := w.status.CommitsFail; w.state == running && fails.Count > 0 {
		late := time.Since(w.began) - time.Duration(fails.Since)
		shards := "1 shard"
		if fails.Count > 1 {
			shards = fmt.Sprintf("%d shards", fails.Count)
		}
		return w.reason("the table has accepted no commit of %s for %v: %.64q", shards, late.Round(time.Millisecond), fails.Shards)
	}
	if sick := w.status.Unwell; w.state == running && sick.Count > 0 {
		since := time.Since(w.began) - time.Duration(sick.Since)
		return w.reason("handlers fail whatever the shard: %.64q, and nothing has succeeded for %v", sick.Shards, since.Round(time.Millisecond))
	}
	return nil
}

// Ready returns nil if the worker has its seat, has seen the plan and follows it, so that it
// may hold shards, and if every shard of the group has a worker with room for it; otherwise it
// returns the reason. A worker that plans has to list its source first, and can be ready
// although the source lists no shards. A worker is not ready while it takes a new
// seat after it lost one, while its reads of the table fail, after the table was restored, and when it shuts down. If the worker
// waits for the store or for the source, the reason includes the latest error of that one.
//
// Ready is for traffic and for rollouts.
func (w *Worker) Ready() error {
	if err := w.live(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	if err := w.stopped(); err != nil {
		return err
	}
	switch {
	case s.Leaving, w.state == waiting:
		return w.reason("it shuts down")
	case s.Resting:
		return w.reason("it has given up its seat, and waits before it takes another")
	case s.Restored:
		return w.reason("the table was restored: claiming is suspended until it is adopted")
	case !s.Seated:
		return w.because("it has no seat yet", s.StoreFault)
	case !s.Proven:
		return w.because("the store has not confirmed yet that the table is the one it was", s.StoreFault)
	case s.Unread != nil:
		return w.because(s.Unread.Error(), s.StoreFault)
	case w.ready && s.Unplaced.Count > 0:
		return w.reason("no worker of the group has room for %d shards: %.64q", s.Unplaced.Count, s.Unplaced.Shards)
	case w.ready:
		return nil
	case w.noun == "session":
		return w.because("it does not know yet whether the group is one of sessions", s.StoreFault)
	case !s.Listed:
		return w.because("it has not seen the seats and the plan yet", s.StoreFault)
	case !s.Sourced:
		return w.because("it has not listed the source yet", s.SourceFault)
	}
	return w.reason("it follows no plan yet")
}

func (w *Worker) stopped() error {
	if w.state != running && w.state != waiting {
		return w.reason("it is not running")
	}
	return nil
}

func (w *Worker) reason(format string, args ...any) error {
	return fmt.Errorf("%s %q: %w", w.noun, w.config.Name, fmt.Errorf(format, args...))
}

// because returns a reason together with the fault behind it; nil: none is known.
func (w *Worker) because(text string, fault error) error {
	if fault == nil {
		return w.reason("%s", text)
	}
	return w.reason("%s: %w", text, fault)
}

// A Status is the state of a worker at one moment, for people and for dashboards. Its JSON
// has the fields group, name, task, incarnation, phase, revision, settled, held, moving, requested, targets, unraised,
// abandoned, released, lost, trustSeconds, oldestMarkSeconds, unhealthy, unready, refused, waited and
// longestWaitSeconds. The revision is a string, because some readers of JSON round large numbers. Durations are
// in seconds, and task, incarnation, targets, unraised, unhealthy, unready, refused, waited and longestWaitSeconds are
// absent if they are empty.
type Status struct {
	Group, Name, Task string
	// Incarnation is the identity of the seat; empty: the worker has none.
	Incarnation lease.Incarnation
	// Phase is one of these:
	//
	//	new       Run was not called yet
	//	joining   the worker has no confirmed seat yet, or lost the one that it had
	//	serving   the worker may claim and hold shards
	//	restored  the table was restored: claiming is suspended
	//	resting   the worker could write no row, gave up its seat, and waits before it takes another
	//	leaving   the worker shuts down, and waits for others to request its shards
	//	draining  the worker shuts down, and waits for its handlers to return
	//	stopped   Run has returned
	Phase     string
	Revision  int64 // the newest revision of the plan that the worker knows; 0: none
	Settled   bool  // whether the worker holds exactly the shards that this revision assigns to it
	Held      int   // the number of shards that the worker holds
	Moving    int   // the number of shards that it holds and another worker has requested
	Requested int   // the number of shards that it requests of others
	// Targets are the names of Config.Targets, and Unraised is the number of tenures whose fences are not all raised: their
	// handlers are not called yet, or run after a cooperative move.
	Targets  []string
	Unraised int
	// Abandoned is the number of handlers that have not returned although their tenures ended a
	// heartbeat interval ago or earlier. They ignore their contexts, so only a restart of the
	// process ends them. No probe fails for them.
	Abandoned int
	// Released and Lost count the tenures that have ended since Run was called. Lost counts those with the
	// causes expired, unreachable, fenced, vanished and conflict: the worker was silent for too long or was
	// evicted, or the table shows another holder. Released counts those that the worker has ended itself or
	// handed over. Neither counts the tenures that an operator has ended. A worker that dies does not count
	// its own end; package inspect counts from the rows how tenures have ended.
	Released, Lost int
	Trust          time.Duration // for how long the worker may hold its shards without another confirmed heartbeat
	// OldestMark is the age of the oldest mark that the table has not accepted; 0 if there
	// is none.
	OldestMark time.Duration
	Unhealthy  string // the error that Healthy returns; empty if it returns nil
	Unready    string // the error that Ready returns; empty if it returns nil
	// Refused and Waited count the acquisitions of a [Session] since Run was called that have found the lease taken:
	// Refused those that got a [*HeldError] at once, and Waited those that waited. A finished lease does not count.
	Refused, Waited int
	LongestWait     time.Duration // how long the oldest waiting acquisition has waited; 0: none waits
}

// Status returns the state of the worker. It waits neither for the run loop nor for the
// store.
func (w *Worker) Status() Status {
	s := Status{
		Group: w.config.Group, Name: w.config.Name, Task: w.config.Task,
		Unhealthy: text(w.Healthy()), Unready: text(w.Ready()),
	}
	for _, t := range w.config.Targets {
		s.Targets = append(s.Targets, t.Name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Phase, s.Abandoned, s.Released, s.Lost = w.phase(), w.abandoned, w.released, w.lost
	s.Refused, s.Waited = w.status.Refused, w.status.Waited
	if w.state != running {
		return s
	}
	s.Incarnation, s.Held, s.Moving, s.Requested = w.status.Incarnation, w.status.Held, w.status.Moving, w.status.Requested
	s.Unraised = w.status.Unraised
	s.Revision, s.Settled = w.status.Revision, w.status.Settled
	if w.status.Seated {
		s.Trust = max(0, time.Duration(w.status.Trust)-time.Since(w.began))
	}
	if w.status.Waits > 0 {
		s.LongestWait = time.Since(w.began) - time.Duration(w.status.Waits)
	}
	for t := range w.tenures {
		s.OldestMark = max(s.OldestMark, t.oldest())
	}
	return s
}

func (w *Worker) phase() string {
	switch s := w.status; {
	case w.state == idle:
		return "new"
	case w.state == over:
		return "stopped"
	case s.Draining, w.state == waiting:
		return "draining"
	case s.Leaving:
		return "leaving"
	case s.Resting:
		return "resting"
	case s.Restored:
		return "restored"
	case !s.Seated || !s.Proven:
		return "joining"
	}
	return "serving"
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A statusText is a Status as JSON.
type statusText struct {
	Group       string            `json:"group"`
	Name        string            `json:"name"`
	Task        string            `json:"task,omitempty"`
	Incarnation lease.Incarnation `json:"incarnation,omitempty"`
	Phase       string            `json:"phase"`
	Revision    int64             `json:"revision,string"`
	Settled     bool              `json:"settled"`
	Held        int               `json:"held"`
	Moving      int               `json:"moving"`
	Requested   int               `json:"requested"`
	Targets     []string          `json:"targets,omitempty"`
	Unraised    int               `json:"unraised,omitempty"`
	Abandoned   int               `json:"abandoned"`
	Released    int               `json:"released"`
	Lost        int               `json:"lost"`
	Trust       float64           `json:"trustSeconds"`
	OldestMark  float64           `json:"oldestMarkSeconds"`
	Unhealthy   string            `json:"unhealthy,omitempty"`
	Unready     string            `json:"unready,omitempty"`
	Refused     int               `json:"refused,omitempty"`
	Waited      int               `json:"waited,omitempty"`
	LongestWait float64           `json:"longestWaitSeconds,omitempty"`
}

func (s Status) text() statusText {
	// Seconds() would return 1.7469999999999999 for 1.747 s.
	seconds := func(d time.Duration) float64 { return float64(d.Round(time.Millisecond).Milliseconds()) / 1000 }
	return statusText{
		s.Group, s.Name, s.Task, s.Incarnation, s.Phase, s.Revision, s.Settled, s.Held, s.Moving, s.Requested, s.Targets, s.Unraised, s.Abandoned, s.Released, s.Lost,
		seconds(s.Trust), seconds(s.OldestMark), s.Unhealthy, s.Unready, s.Refused, s.Waited, seconds(s.LongestWait),
	}
}

// MarshalJSON writes the fields that [Status] describes, and durations to the millisecond.
//
// Do not embed a Status in a struct that is encoded as JSON: the struct would have this
// method too, and its JSON would lack its other fields. Use a field with a name instead.
func (s Status) MarshalJSON() ([]byte, error) { return json.Marshal(s.text()) }

// UnmarshalJSON reads what MarshalJSON writes. Fields that are not in the JSON keep their
// values.
func (s *Status) UnmarshalJSON(text []byte) error {
	t := s.text()
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	duration := func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	}
	*s = Status{
		t.Group, t.Name, t.Task, t.Incarnation, t.Phase, t.Revision, t.Settled, t.Held, t.Moving, t.Requested, t.Targets, t.Unraised, t.Abandoned, t.Released, t.Lost,
		duration(t.Trust), duration(t.OldestMark), t.Unhealthy, t.Unready, t.Refused, t.Waited, duration(t.LongestWait),
	}
	return nil
}

func (w *Worker) begin(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.began, w.tenures = running, at, map[*Tenure]struct{}{}
}

// end records that the run loop has ended, or that Run returns.
func (w *Worker) end(as state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.tenures = as, nil
}

func (w *Worker) add(t *Tenure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenures[t] = struct{}{}
}

// acquired returns the tenure that answers a call of Acquire; nil: there is none.
func (w *Worker) acquired(id uint64) *Tenure {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.tenures {
		if t.acquire == id {
			return t
		}
	}
	return nil
}

func (w *Worker) remove(t *Tenure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tenures, t)
}

// abandon counts the handlers that run although their tenures are over.
func (w *Worker) abandon(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned += n
}

// ended counts a tenure that has ended.
func (w *Worker) ended(cause event.Cause) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch cause {
	case event.CauseExpired, event.CauseUnreachable, event.CauseFenced, event.CauseVanished, event.CauseConflict:
		w.lost++
	case event.CauseForced:
	default:
		w.released++
	}
}

// publish stores the state of the engine for Status, Healthy and Ready.
func (w *Worker) publish(s engine.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Trust > 0 { // without a seat there is no trust; the trust of the last heartbeat is kept then
		w.trust, w.trustWall = s.Trust, s.TrustWall
	}
	w.status = s
	w.ready = s.Seated && s.Proven && !s.Restored && (w.ready || s.Planned)
}

// trustLeft returns how long trust lasts that was last published. The clock that shows less counts: a monotonic clock
// stops while the machine is suspended.
func (w *Worker) trustLeft() time.Duration {
	wall := w.wall()
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, min(time.Duration(w.trust)-time.Since(w.began), w.trustWall.Sub(wall)))
}
