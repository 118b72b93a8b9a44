package fencehttp

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

const (
	problemType = "application/problem+json"
	typeStale   = "urn:shardlease:stale"
	typeMissing = "urn:shardlease:missing-token"
	typeInvalid = "urn:shardlease:invalid-token"
)

// A problem is the body of a refusal, after RFC 9457. Generations are strings: many clients read
// the numbers of JSON as floating-point numbers, which lose the low digits of a generation.
type problem struct {
	Type           string `json:"type"`
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail"`
	Shard          string `json:"shard,omitempty"`
	Generation     int64  `json:"generation,string,omitempty"` // the generation of the request
	Observed       int64  `json:"observed,string,omitempty"`   // the higher generation that the sink has
	Owner          string `json:"owner,omitempty"`
	OutcomeUnknown bool   `json:"outcomeUnknown,omitempty"`
}

// Error writes the response to a request that failed in a handler behind [Require]. err is what the
// sink has returned. If the sink has refused the token of the request, with a
// [*checkpoint.StaleError] of its shard and its generation, the response is a 412 with both
// generations. For every other error it is a 500 that does not disclose the text, and the error is
// logged by slog.Default. A StaleError of another token is such an error: it concerns the handler,
// and a client that stops for it would stop without having been replaced.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	if t, ok := fence.FromContext(r.Context()); ok {
		if p, refused := refusalOf(t, err); refused {
			p.send(w)
			return
		}
	}
	logged(r, err)
	unexpected().send(w)
}

func (p problem) send(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: a problem has only numbers, strings and a bool
		body = nil
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

// refusalOf returns the response to a request whose token was refused, if that is what err reports.
func refusalOf(t fence.Token, err error) (problem, bool) {
	stale, ok := errors.AsType[*checkpoint.StaleError](err)
	if !ok || stale == nil || stale.Shard != t.Shard || stale.Mine != t.Generation {
		return problem{}, false
	}
	return problem{
		Type: typeStale, Title: "the shard has changed hands", Status: http.StatusPreconditionFailed, Detail: stale.Error(),
		Shard: stale.Shard, Generation: stale.Mine, Observed: stale.Observed, Owner: stale.Owner, OutcomeUnknown: stale.OutcomeUnknown,
	}, true
}

// unparsed returns the response to a request without a token, or with a malformed one.
func unparsed(err error) problem {
	if errors.Is(err, fence.ErrMissing) {
		return problem{
			Type: typeMissing, Title: "a fencing token is required", Status: http.StatusPreconditionRequired,
			Detail: "send the headers Shardlease-Group, Shardlease-Shard and Shardlease-Generation",
		}
	}
	return problem{Type: typeInvalid, Title: "the fencing token is malformed", Status: http.StatusBadRequest, Detail: err.Error()}
}

func unexpected() problem {
	return problem{Type: "about:blank", Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError}
}
