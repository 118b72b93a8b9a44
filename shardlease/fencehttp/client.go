package fencehttp

import (
	"bytes"
	"context"
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
	response, err := base.RoundTrip(sent)
	if response != nil && response.Request == nil {
		response.Request = sent // Check compares with its token
	}
	return response, err
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

// Raise returns a function that raises the fence of a service, for a shardlease.Target: it sends a POST without a body to
// an address of the service where a [Handler] without Effect runs. The client needs a [Transport]. The fence is raised if
// the answer is a 204, which such a Handler sends when the guard's step is complete, and only then: a login page or a proxy
// would answer 200.
func Raise(client *http.Client, url string) func(ctx context.Context, shard string, generation int64) error {
	return func(ctx context.Context, shard string, generation int64) error {
		t, ok := fence.FromContext(ctx)
		if !ok {
			return fence.ErrMissing
		}
		t.Shard, t.Generation = shard, generation
		r, err := http.NewRequestWithContext(fence.NewContext(ctx, t), http.MethodPost, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		return errors.Join(raised(response), response.Body.Close())
	}
}

// raised returns nil if a response says that a fence is raised.
func raised(r *http.Response) error {
	if err := Check(r); err != nil || r.StatusCode == http.StatusNoContent {
		return err
	}
	return fmt.Errorf("the server answered %d %s to a raise, and not 204: only a Handler without Effect raises a fence, "+
		"and nothing else", r.StatusCode, http.StatusText(r.StatusCode))
}

// mostProblem is how much of a response Check reads.
const mostProblem = 64 << 10

// Check returns nil if the status of a response is 2xx, and an error for every other status.
// The error is
//
//   - a [*checkpoint.StaleError] if the status is 412 and the body is the refusal of a handler of this
//     package, for the shard and the generation of the request: the shard has changed hands, so the
//     client has to stop;
//   - one that matches [fence.ErrMissing] or [checkpoint.ErrInvalid] if such a handler reports with
//     428 or 400 that it got no token or a malformed one;
//   - for everything else one with the status, such as for a 412 of another server or of another
//     token. Whether the effect happened is then as the server documents it for this status.
//
// r is a response of a client with a [Transport]. Call Check before you read the body: if the body was read, Check
// cannot recognize a refusal. After Check, you can still read the body.
func Check(r *http.Response) error {
	if r.StatusCode >= 200 && r.StatusCode < 300 {
		return nil
	}
	p, ok := problemIn(r)
	if ok {
		switch {
		case p.Type == typeStale && r.StatusCode == http.StatusPreconditionFailed && concerns(p, r.Request):
			return &checkpoint.StaleError{
				Shard: p.Shard, Mine: p.Generation, Observed: p.Observed, Owner: p.Owner, OutcomeUnknown: p.OutcomeUnknown,
			}
		case p.Type == typeStale && r.StatusCode == http.StatusPreconditionFailed:
			return fmt.Errorf("the server answered %d for another fencing token: generation %d of shard %q", r.StatusCode, p.Generation, p.Shard)
		case p.Type == typeMissing && r.StatusCode == http.StatusPreconditionRequired:
			return fmt.Errorf("%w in the request, as the server reports", fence.ErrMissing)
		case p.Type == typeInvalid && r.StatusCode == http.StatusBadRequest:
			return fmt.Errorf("%w: the server reports: %s", checkpoint.ErrInvalid, p.Detail)
		}
	}
	err := fmt.Errorf("the server answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	if isProblem(r) && !ok {
		err = fmt.Errorf("%w, and the problem in its body cannot be read: perhaps the body was read before the call of Check", err)
	}
	return err
}

// isProblem reports whether the body of a response is a problem.
func isProblem(r *http.Response) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == problemType
}

// problemIn returns the problem in the body of a response, if it has one.
func problemIn(r *http.Response) (p problem, ok bool) {
	if !isProblem(r) {
		return p, false
	}
	start, err := io.ReadAll(io.LimitReader(r.Body, mostProblem))
	r.Body = restored{io.MultiReader(bytes.NewReader(start), r.Body), r.Body}
	err = errors.Join(err, json.Unmarshal(start, &p))
	return p, err == nil
}

// concerns reports whether a refusal is that of the token of a request.
func concerns(p problem, r *http.Request) bool {
	if r == nil {
		return false
	}
	t, ok := fence.FromContext(r.Context())
	return ok && p.Shard == t.Shard && p.Generation == t.Generation
}

// A restored is a body that can be read again from its start, which Check has read.
type restored struct {
	io.Reader
	io.Closer
}
