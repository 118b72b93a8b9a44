package shardlease

import (
	"encoding/json"
	"net/http"
	"time"
)

// Probes returns a handler for the probes of a platform such as Kubernetes. It answers GET
// requests of exactly these two paths, and 404 for any other path; under a prefix it needs
// [http.StripPrefix]:
//
//   - /livez fails only if a restart may help: the run loop has stood still for a lease time,
//     because Handoff or Order blocks. It does not fail because the table or the
//     source does not answer, and neither before Run is called, nor after it has returned, nor
//     while Run waits for handlers that ignore their contexts.
//   - /readyz fails while [Worker.Ready] returns an error. That includes an outage of the table
//     that is longer than the lease time.
//
// The status code is 200, or 503 if the probe fails. The body is JSON: ok is true or false,
// reason is the error and is absent if ok is true, and status is the [Status].
func (w *Worker) Probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", w.probe(w.stuck))
	mux.HandleFunc("GET /readyz", w.probe(w.Ready))
	return mux
}

func (w *Worker) probe(check func() error) http.HandlerFunc {
	return func(out http.ResponseWriter, _ *http.Request) {
		err := check()
		body, _ := json.Marshal(struct { // cannot fail: every field can be encoded
			OK     bool   `json:"ok"`
			Reason string `json:"reason,omitempty"`
			Status Status `json:"status"`
		}{err == nil, text(err), w.Status()})
		out.Header().Set("Content-Type", "application/json")
		out.Header().Set("Cache-Control", "no-store")
		if err != nil {
			out.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = out.Write(append(body, '\n'))
	}
}

// live returns an error if the run loop has stood still for a lease time because a function
// that it calls does not return. The loop turns several times in that time even if nothing
// happens and the table does not answer: for the next heartbeat, for the time limit of a call,
// or, while the worker rests without a seat, to check whether its fault still lasts.
func (w *Worker) live() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != running {
		return nil // no loop runs
	}
	if still := time.Since(w.began) - time.Duration(w.turned.Load()); still >= w.config.TTL {
		return w.reason("its run loop has stood still for %v: Handoff or Order may block, or the machine is too slow", still.Round(time.Millisecond))
	}
	return nil
}

// stuck is live for a process that may have been paused: its run loop gets a moment to turn.
func (w *Worker) stuck() error {
	if w.live() == nil {
		return nil
	}
	time.Sleep(min(w.config.TTL/4, 250*time.Millisecond))
	return w.live()
}
