package fencehttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// A Transport sends the token of each request's context with the request. It sends no request
// whose context has no token, and returns [fence.ErrMissing] instead: use another client for
// requests that need none.
//
// It follows no redirect: an http.Client would send the token to whatever host the response names,
// and a POST as a GET without its body. The client gets an error instead.
type Transport struct {
	Base http.RoundTripper // sends the requests; nil: http.DefaultTransport
}

var errRedirected = errors.New("fencehttp: the server redirected a request with a fencing token, " +
	"which is not sent to another address: use the final address")

// RoundTrip sends a request with the token of its context.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fields, err := fieldsOf(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must close the body even if it sends nothing
		}
		return nil, err
	}
	sent := r.Clone(r.Context())
	for name, value := range fields {
		sent.Header.Set(name, value)
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(sent)
}

func fieldsOf(r *http.Request) (map[string]string, error) {
	if r.Response != nil { // a client sets it in the requests that a redirect causes
		return nil, errRedirected
	}
	t, ok := fence.FromContext(r.Context())
	if !ok {
		return nil, fmt.Errorf("%w in the context of the request: use the context of a tenure", fence.ErrMissing)
	}
	return t.Fields()
}

// mostProblem is how much of a response Check reads.
const mostProblem = 64 << 10

// Check returns the error that the server wrote with [Error]: a [*checkpoint.StaleError],
// [fence.ErrMissing], or an error that matches [checkpoint.ErrInvalid]. For any other response Check
// returns nil, which does not mean that the request succeeded. The caller can still read the body of
// the response.
func Check(r *http.Response) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != problemType {
		return nil
	}
	start, err := io.ReadAll(io.LimitReader(r.Body, mostProblem))
	r.Body = restored{io.MultiReader(bytes.NewReader(start), r.Body), r.Body}
	var p problem
	if err = errors.Join(err, json.Unmarshal(start, &p)); err != nil {
		return nil // the body was not written by Error
	}
	switch {
	case p.Type == typeStale && r.StatusCode == http.StatusPreconditionFailed:
		return &checkpoint.StaleError{
			Shard: p.Shard, Mine: p.Generation, Observed: p.Observed, Owner: p.Owner, OutcomeUnknown: p.OutcomeUnknown,
		}
	case p.Type == typeMissing && r.StatusCode == http.StatusPreconditionRequired:
		return fmt.Errorf("%w in the request, as the server reports", fence.ErrMissing)
	case p.Type == typeInvalid && r.StatusCode == http.StatusBadRequest:
		return fmt.Errorf("%w: the server reports: %s", checkpoint.ErrInvalid, p.Detail)
	}
	return nil
}

// A restored is a body that can be read again from its start, which Check has read.
type restored struct {
	io.Reader
	io.Closer
}
