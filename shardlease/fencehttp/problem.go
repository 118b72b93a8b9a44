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

// Error writes the response to a request that failed with an error: 412 for a stale token, with both
// generations; 428 for a missing token; 400 for a malformed token; and 500 for any other error. A 500
// response does not contain the text of the error.
func Error(w http.ResponseWriter, err error) {
	p := problemOf(err)
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: a problem has only numbers, strings and a bool
		body = nil
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

func problemOf(err error) problem {
	stale, ok := errors.AsType[*checkpoint.StaleError](err)
	switch {
	case ok && stale != nil:
		return problem{
			Type: typeStale, Title: "the shard has changed hands", Status: http.StatusPreconditionFailed, Detail: stale.Error(),
			Shard: stale.Shard, Generation: stale.Mine, Observed: stale.Observed, Owner: stale.Owner, OutcomeUnknown: stale.OutcomeUnknown,
		}
	case errors.Is(err, fence.ErrMissing):
		return problem{
			Type: typeMissing, Title: "a fencing token is required", Status: http.StatusPreconditionRequired,
			Detail: "send the headers Shardlease-Group, Shardlease-Shard and Shardlease-Generation",
		}
	case errors.Is(err, checkpoint.ErrInvalid):
		return problem{Type: typeInvalid, Title: "the fencing token is malformed", Status: http.StatusBadRequest, Detail: err.Error()}
	}
	return problem{Type: "about:blank", Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError}
}
