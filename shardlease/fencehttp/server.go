package fencehttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	// Effect applies the effect of a request as a part of the guard's step. Default: no effect, so that
	// the handler only raises the fence, and the response is a 204: see [Raise].
	//
	// Its response is sent when the step is complete, so an informational response (1xx) is not
	// sent. If Effect sets a status of 400 or more, the step is rolled back, and the client gets that
	// response; so Effect needs no error to refuse a request. If Effect returns an error, the step is
	// rolled back, and the error is reported. The client gets a 500 response without the text of the
	// error, unless Effect has set a status of 400 or more. This is also so for a
	// *checkpoint.StaleError of Effect: it is about another fence than that of the request, and must
	// not stop the client.
	Effect func(w http.ResponseWriter, r *http.Request, step E) error

	// MaxBody is the size of the largest request body; a larger one gets a 413 response. The body
	// is read before the step begins: during the step the guard may hold a lock, for which the
	// successor would wait as long as a slow client sends. Default DefaultMaxBody; negative: no
	// limit.
	MaxBody int64

	// Report gets each error of Effect, and each of Guard that is not its refusal of the request's
	// token. Default: an error line of slog.Default.
	Report func(r *http.Request, err error)
}

// errFailed rolls back the step of an effect whose response is a failure.
var errFailed = errors.New("the response of the effect has a status of 400 or more")

// ServeHTTP applies the effect of one request.
func (h Handler[E]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := tokenOf(r)
	if err != nil {
		unparsed(err).send(w)
		return
	}
	from := r.Body
	if h.MaxBody >= 0 {
		from = http.MaxBytesReader(w, r.Body, cmp.Or(h.MaxBody, DefaultMaxBody))
	}
	body, err := io.ReadAll(from)
	if err != nil {
		unreadable(w, err)
		return
	}
	var a answer
	var errEffect error
	err = h.Guard.Do(fence.NewContext(r.Context(), t), t, func(ctx context.Context, step E) error {
		r := r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if h.Effect == nil {
			a.WriteHeader(http.StatusNoContent)
			return nil
		}
		errEffect = h.Effect(&a, r, step)
		if errEffect == nil && a.failed() {
			errEffect = errFailed
		}
		return errEffect
	})
	err = cmp.Or(err, errEffect) // for a guard that loses the error of the effect
	// An error of the effect is never the guard's refusal, whatever it looks like.
	refusal, refused := refusalOf(t, err)
	refused = refused && errEffect == nil
	if !refused && err != nil && !errors.Is(err, errFailed) {
		h.report(r, err)
	}
	switch {
	case refused:
		refusal.send(w)
	case err != nil && !a.failed():
		unexpected().send(w)
	default:
		a.send(w)
	}
}

func (h Handler[E]) report(r *http.Request, err error) {
	if h.Report == nil {
		logged(r, err)
		return
	}
	h.Report(r, err)
}

func logged(r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "fenced request failed", "method", r.Method, "path", r.URL.Path, "error", err)
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
			unparsed(err).send(w)
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

// WriteHeader panics for an invalid status as net/http does. That is in the guard's step, which is
// then rolled back; sending the response would panic when the step is complete.
func (a *answer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if a.status == 0 && status >= 200 { // an informational response precedes that with the status
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// failed reports whether the client learns that its request had no effect.
func (a *answer) failed() bool { return a.status >= http.StatusBadRequest }

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = w.Write(a.body.Bytes())
}
