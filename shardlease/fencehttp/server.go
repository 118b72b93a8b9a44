package fencehttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"

	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// DefaultMaxBody is the default of Handler.MaxBody, in bytes.
const DefaultMaxBody = 1 << 20

// A Handler applies the effect of each request in an atomic step of a guard. If the guard has already
// accepted a higher generation, the request gets a 412 response, and its effect does not happen.
//
//	mux.Handle("POST /orders", fencehttp.Handler[*sql.Tx]{Guard: guard, Effect: addOrder})
type Handler[E any] struct {
	Guard fence.Guard[E] // compares the tokens; required

	// Effect applies the effect of a request as a part of the guard's step. Required.
	//
	// The Handler sends the response of Effect when the step is complete. If Effect returns an error,
	// its effect does not happen. Then the client gets the response of Effect if Effect has set a
	// status of 400 or more; otherwise it gets the response that the function Error writes.
	Effect func(w http.ResponseWriter, r *http.Request, step E) error

	// MaxBody is the size of the largest request body; a larger body gets a 413 response. The
	// Handler reads the body before the step begins. During the step the guard may hold a lock, and
	// otherwise the successor would wait for that lock while a slow client sends its body. Default
	// DefaultMaxBody.
	MaxBody int64
}

// ServeHTTP applies the effect of one request.
func (h Handler[E]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := tokenOf(r)
	if err != nil {
		Error(w, err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, cmp.Or(h.MaxBody, DefaultMaxBody)))
	if err != nil {
		unreadable(w, err)
		return
	}
	var a answer
	err = h.Guard.Do(fence.NewContext(r.Context(), t), t, func(ctx context.Context, step E) error {
		r := r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
		return h.Effect(&a, r, step)
	})
	if err != nil && a.status < http.StatusBadRequest {
		Error(w, err)
		return
	}
	a.send(w)
}

func unreadable(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, http.StatusText(status), status)
}

// Require reads the token of each request and puts it into the request's context, where
// fence.FromContext finds it. A request without a token gets a 428 response, and one with a
// malformed token a 400 response.
//
// Require does not compare the token, on purpose: if the shard changes hands between the comparison
// in a middleware and the write of the handler, a stale effect would still pass. The handler has to
// pass the token to a sink that compares it, such as a register, and to report a refusal with
// [Error]. A [Handler] does both.
func Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, err := tokenOf(r)
		if err != nil {
			Error(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(fence.NewContext(r.Context(), t)))
	})
}

func tokenOf(r *http.Request) (fence.Token, error) {
	return fence.Parse(func(field string) []string { return r.Header[textproto.CanonicalMIMEHeaderKey(field)] })
}

// An answer records the response of Effect, which the Handler sends after the step or not at all.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = w.Write(a.body.Bytes())
}
