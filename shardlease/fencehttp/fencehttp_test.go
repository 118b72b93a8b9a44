package fencehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"github.com/shardlease/shardlease-go/shardlease/tenuretest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A ledger is a guard in memory, whose effects add entries. A real one is a transaction.
type ledger struct {
	pause func() // is called where a real storage would be

	mu      sync.Mutex
	fences  map[string]int64    // by group and shard
	entries map[string][]string // by shard
}

func newLedger(pause func()) *ledger {
	return &ledger{pause: pause, fences: map[string]int64{}, entries: map[string][]string{}}
}

func (l *ledger) Do(ctx context.Context, t fence.Token, effect func(context.Context, *[]string) error) error {
	l.pause()
	defer l.pause()
	l.mu.Lock()
	defer l.mu.Unlock()
	key := t.Group + "/" + t.Shard // generations of two groups are not related
	if observed := l.fences[key]; t.Generation < observed {
		return t.Refused(observed)
	}
	var added []string
	if err := effect(ctx, &added); err != nil {
		return err
	}
	l.fences[key] = t.Generation
	l.entries[t.Shard] = append(l.entries[t.Shard], added...)
	return nil
}

func (l *ledger) list(_ context.Context, shard string) (list [][]byte, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.entries[shard] {
		list = append(list, []byte(entry))
	}
	return list, nil
}

// add is the effect of a request.
func add(w http.ResponseWriter, r *http.Request, step *[]string) error {
	entry, err := io.ReadAll(r.Body)
	*step = append(*step, string(entry))
	w.WriteHeader(http.StatusCreated)
	return err
}

func (l *ledger) handler() http.Handler {
	raises, adds := fencehttp.Handler[*[]string]{Guard: l}, fencehttp.Handler[*[]string]{Guard: l, Effect: add}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fence" {
			raises.ServeHTTP(w, r)
		} else {
			adds.ServeHTTP(w, r)
		}
	})
}

// request returns a request under generation 7 of shard-0, as the server gets it.
func request(ctx context.Context, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", strings.NewReader(body))
	r.Header = http.Header{"Shardlease-Group": {"orders"}, "Shardlease-Shard": {"shard-0"}, "Shardlease-Generation": {"7"}}
	return r
}

// serve starts a server, and returns a client that sends tokens.
func serve(t testing.TB, h http.Handler) (*httptest.Server, *http.Client) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	base := new(http.Transport)
	t.Cleanup(base.CloseIdleConnections)
	return server, &http.Client{Transport: &fencehttp.Transport{Base: base}}
}

// post sends an effect under the token of the context.
func post(ctx context.Context, client *http.Client, url, effect string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(effect))
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if err := fencehttp.Check(response); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func under(ctx context.Context, shard string, generation int64) context.Context {
	return fence.NewContext(ctx, fence.Token{Group: "orders", Shard: shard, Generation: generation})
}

// overHTTP is a sink behind a real server. Its clients are stopped, and so is the server where it
// calls Pause.
func overHTTP(t *fencetest.T, h http.Handler, effects func(context.Context, string) ([][]byte, error)) fencetest.Sink {
	server, client := serve(t, h)
	return fencetest.Sink{
		Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
			return post(under(ctx, f.Shard, f.Generation), client, server.URL, string(effect))
		},
		Effects: effects,
		Raise: func(ctx context.Context, f fencetest.Fence) error {
			return fencehttp.Raise(client, server.URL+"/fence")(under(ctx, f.Shard, f.Generation), f.Shard, f.Generation)
		},
		Restart: func(context.Context) error {
			server.Close()
			server, client = serve(t, h)
			return nil
		},
		Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
	}
}

// TestHandlerIsFenced: a stale request has no effect, wherever its client or the server was stopped.
func TestHandlerIsFenced(t *testing.T) {
	t.Parallel()
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		l := newLedger(t.Pause)
		sink := overHTTP(t, l.handler(), l.list)
		sink.MustPause = true
		return sink
	})
}

// reports returns a handler that stores one report for each shard, in a register.
func reports(register *memstore.Register, pause func()) http.Handler {
	return fencehttp.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report, err := io.ReadAll(r.Body)
		if err == nil {
			pause()
			token, _ := fence.FromContext(r.Context())
			if r.URL.Path == "/fence" {
				err = register.Raise(r.Context(), token.Shard, token.Generation)
			} else {
				err = register.Put(r.Context(), token.Shard, token.Generation, string(report))
			}
		}
		if err != nil {
			fencehttp.Error(w, r, err)
			return
		}
		w.WriteHeader(http.StatusNoContent) // Raise takes no other answer for a success
	}))
}

// TestRegisterOverHTTPIsFenced: a handler that hands the token on to a register is fenced.
func TestRegisterOverHTTPIsFenced(t *testing.T) {
	t.Parallel()
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		register := new(memstore.Register)
		return overHTTP(t, reports(register, t.Pause), func(ctx context.Context, shard string) ([][]byte, error) {
			report, err := register.Get(ctx, shard)
			if report.Value == "" {
				return nil, err
			}
			return [][]byte{[]byte(report.Value)}, err
		})
	})
}

// A recorder is a test that records its failures.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// TestComparingBeforeTheHandlerLetsPass: a middleware that compares the token, and then calls a
// handler that writes, accepts a stale request.
func TestComparingBeforeTheHandlerLetsPass(t *testing.T) {
	r := &recorder{TB: t}
	fencetest.Play(r, func(t *fencetest.T) fencetest.Sink {
		l := newLedger(func() {})
		compare := func(next http.Handler) http.Handler {
			return fencehttp.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				token, _ := fence.FromContext(r.Context())
				if err := l.Do(r.Context(), token, func(context.Context, *[]string) error { return nil }); err != nil {
					fencehttp.Error(w, r, err)
					return
				}
				t.Pause()
				next.ServeHTTP(w, r)
			}))
		}
		return overHTTP(t, compare(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, _ := fence.FromContext(r.Context())
			entry, _ := io.ReadAll(r.Body)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.entries[token.Shard] = append(l.entries[token.Shard], string(entry))
		})), l.list)
	})
	if all := strings.Join(r.failures, "\n"); !strings.Contains(all, "the sink accepted an effect of generation 7 after one of generation 8") {
		t.Errorf("the report is %q", all)
	}
}

// TestTenureSendsItsToken: both contexts of a tenure have its token, and the answer to a request of
// a replaced worker is a StaleError.
func TestTenureSendsItsToken(t *testing.T) {
	l := newLedger(func() {})
	server, client := serve(t, l.handler())
	tenure := tenuretest.Begin(t, shardlease.Config{Group: "orders"}, "shard-3", checkpoint.Mark{})
	err := tenure.Call(func(ctx context.Context, tn *shardlease.Tenure) error {
		return errors.Join(post(ctx, client, server.URL, "from ctx"), post(tn.Context(), client, server.URL, "from t.Context()"))
	})
	if err != nil || l.fences["orders/shard-3"] != tenure.Generation() || len(l.entries["shard-3"]) != 2 {
		t.Errorf("%v; fences %v, entries %v", err, l.fences, l.entries)
	}
	next := tenure.Generation() + 1
	if err := post(under(t.Context(), "shard-3", next), client, server.URL, "of the successor"); err != nil {
		t.Error(err)
	}
	late := context.WithoutCancel(tenure.Context()) // the process was paused, and does not know
	stale, ok := errors.AsType[*checkpoint.StaleError](post(late, client, server.URL, "late"))
	if want := (checkpoint.StaleError{Shard: "shard-3", Mine: next - 1, Observed: next}); !ok || *stale != want {
		t.Errorf("got %v, want %v", stale, &want)
	}
}

// TestSlowClientHoldsNoStep: a client that sends half of its body does not delay its successor, and
// is refused when it has sent the rest.
func TestSlowClientHoldsNoStep(t *testing.T) {
	l := newLedger(func() {})
	server, client := serve(t, l.handler())
	body, rest := net.Pipe()
	late := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(under(t.Context(), "shard-0", 7), http.MethodPost, server.URL, body)
		if err != nil {
			late <- err
			return
		}
		response, err := client.Do(r)
		if err == nil {
			err = fencehttp.Check(response)
			_ = response.Body.Close()
		}
		late <- err
	}()
	if _, err := rest.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := post(under(ctx, "shard-0", 8), client, server.URL, "whole"); err != nil {
		t.Error(err)
	}
	_ = rest.Close()
	if err := <-late; !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("the slow client got %v", err)
	}
	if got := l.entries["shard-0"]; len(got) != 1 || got[0] != "whole" {
		t.Errorf("the entries are %q", got)
	}
}

// TestResponses: each refusal has its status and a body that names both generations, and Check reads
// it back. Nothing is applied.
func TestResponses(t *testing.T) {
	const large = 1<<53 + 1 // a floating-point number does not have this value
	valid := http.Header{"Shardlease-Group": {"orders"}, "Shardlease-Shard": {"a%2Fb"}, "Shardlease-Generation": {fmt.Sprint(large)}}
	fails := errors.New("password")
	for name, tc := range map[string]struct {
		header http.Header
		body   string
		effect func(http.ResponseWriter) error
		status int
		want   error // what Check returns; nil: any error
		text   string
	}{
		"missing":   {http.Header{}, "", nil, 428, fence.ErrMissing, `"type":"urn:shardlease:missing-token"`},
		"malformed": {http.Header{"Shardlease-Generation": {"x"}}, "", nil, 400, checkpoint.ErrInvalid, `"type":"urn:shardlease:invalid-token"`},
		"stale": {valid, "", nil, 412, checkpoint.ErrStale, fmt.Sprintf(
			`"shard":"a/b","generation":"%d","observed":"%d"}`, large, large+1)},
		"large body":       {valid, strings.Repeat("x", 101), nil, 413, nil, "Too Large"},
		"the effect fails": {valid, "", func(http.ResponseWriter) error { return fails }, 500, nil, `"status":500`},
		"the effect fails after a success": {valid, "", func(w http.ResponseWriter) error { w.WriteHeader(201); return fails },
			500, nil, `"status":500`},
		"the effect refuses": {valid, "", func(w http.ResponseWriter) error {
			w.Header().Set("X-Reason", "sold out")
			w.WriteHeader(409)
			_, err := io.WriteString(w, "sold out")
			return errors.Join(err, fails)
		}, 409, nil, "sold out"},
		"the effect does not write": {valid, "", func(http.ResponseWriter) error { return nil }, 200, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(func() {})
			if tc.effect == nil {
				l.fences["orders/a/b"] = large + 1
				tc.effect = func(http.ResponseWriter) error { t.Error("the effect happens"); return nil }
			}
			before := l.fences["orders/a/b"]
			h := fencehttp.Handler[*[]string]{Guard: l, MaxBody: 100, Effect: func(w http.ResponseWriter, _ *http.Request, _ *[]string) error {
				return tc.effect(w)
			}}
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tc.body))
			r.Header = tc.header
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			response := w.Result()
			response.Request = r.WithContext(under(t.Context(), "a/b", large)) // as the Transport has sent it
			err := fencehttp.Check(response)
			body, errBody := io.ReadAll(response.Body)
			if response.StatusCode != tc.status || (err == nil) != (tc.status < 300) || tc.want != nil && !errors.Is(err, tc.want) || errBody != nil ||
				!strings.Contains(string(body), tc.text) || strings.Contains(string(body), "password") {
				t.Errorf("status %d, Check returns %v, the body is %s (%v)", response.StatusCode, err, body, errBody)
			}
			if tc.status != 200 && l.fences["orders/a/b"] != before {
				t.Error("the fence was raised")
			}
			if name == "the effect refuses" && response.Header.Get("X-Reason") == "" {
				t.Error("the header of the effect is lost")
			}
			if strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") && !json.Valid(body) {
				t.Errorf("the body is no JSON: %s", body)
			}
		})
	}
}

// A swap is a guard that returns another error than its ledger, as one does that compares late.
type swap struct {
	*ledger
	err error
}

func (s swap) Do(ctx context.Context, t fence.Token, effect func(context.Context, *[]string) error) error {
	return errors.Join(s.ledger.Do(ctx, t, effect), s.err)
}

// TestOnlyTheGuardRefuses: an error of the effect, or of the guard about something else, is a 500
// that is reported and not disclosed, also if it looks like a refusal. A 412 would stop a client
// that nobody has replaced.
func TestOnlyTheGuardRefuses(t *testing.T) {
	stale := func(shard string, mine int64) error {
		return fmt.Errorf("secret: %w", &checkpoint.StaleError{Shard: shard, Mine: mine, Observed: 9})
	}
	for name, tc := range map[string]struct {
		effect, guard error
		status        int
	}{
		"effect: another shard":         {stale("shard-1", 7), nil, 500},
		"effect: another generation":    {stale("shard-0", 6), nil, 500},
		"effect: the same token":        {stale("shard-0", 7), nil, 500},
		"effect: invalid":               {fmt.Errorf("secret: %w", checkpoint.ErrInvalid), nil, 500},
		"effect: missing":               {fmt.Errorf("secret: %w", fence.ErrMissing), nil, 500},
		"guard: another shard":          {nil, stale("shard-1", 7), 500},
		"guard: another generation":     {nil, stale("shard-0", 6), 500},
		"guard: invalid":                {nil, fmt.Errorf("secret: %w", checkpoint.ErrInvalid), 500},
		"guard: missing":                {nil, fmt.Errorf("secret: %w", fence.ErrMissing), 500},
		"guard: this token":             {nil, stale("shard-0", 7), 412},
		"guard: a typed nil":            {nil, (*checkpoint.StaleError)(nil), 500},
		"effect: an error and a status": {errors.New("secret"), nil, 500},
	} {
		t.Run(name, func(t *testing.T) {
			var reported error
			h := fencehttp.Handler[*[]string]{
				Guard:  swap{newLedger(func() {}), tc.guard},
				Effect: func(w http.ResponseWriter, _ *http.Request, _ *[]string) error { w.WriteHeader(201); return tc.effect },
				Report: func(_ *http.Request, err error) { reported = err },
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(t.Context(), ""))
			if w.Code != tc.status || (reported != nil) != (tc.status == 500) || tc.status == 500 && strings.Contains(w.Body.String(), "secret") {
				t.Errorf("status %d, reported %v, the body is %s", w.Code, reported, w.Body)
			}
			if tc.effect != nil && !errors.Is(reported, tc.effect) {
				t.Errorf("reported %v", reported)
			}
		})
	}
}

// A quiet guard returns nil after an effect that has failed.
type quiet struct{ *ledger }

func (q quiet) Do(ctx context.Context, t fence.Token, effect func(context.Context, *[]string) error) error {
	_ = q.ledger.Do(ctx, t, effect)
	return nil
}

// TestFailedEffectIsNoSuccess: if an effect fails, the client gets the status 500 and the error is reported, even if the
// guard does not return the error.
func TestFailedEffectIsNoSuccess(t *testing.T) {
	fails := errors.New("no disk")
	var reported error
	h := fencehttp.Handler[*[]string]{
		Guard: quiet{newLedger(func() {})}, Effect: func(http.ResponseWriter, *http.Request, *[]string) error { return fails },
		Report: func(_ *http.Request, err error) { reported = err },
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(t.Context(), ""))
	if w.Code != http.StatusInternalServerError || !errors.Is(reported, fails) {
		t.Errorf("status %d, reported %v", w.Code, reported)
	}
}

// TestEffectHasTheToken: an effect finds the token of a request in the context of that request.
func TestEffectHasTheToken(t *testing.T) {
	var got fence.Token
	h := fencehttp.Handler[*[]string]{Guard: newLedger(func() {}), Effect: func(_ http.ResponseWriter, r *http.Request, _ *[]string) error {
		got, _ = fence.FromContext(r.Context())
		return nil
	}}
	h.ServeHTTP(httptest.NewRecorder(), request(t.Context(), ""))
	if want := (fence.Token{Group: "orders", Shard: "shard-0", Generation: 7}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRequireNeedsAToken: no request without a valid token reaches the handler behind Require.
func TestRequireNeedsAToken(t *testing.T) {
	h := fencehttp.Require(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler is called") }))
	for _, tc := range []struct {
		header http.Header
		status int
	}{{http.Header{}, 428}, {http.Header{"Shardlease-Generation": {"7"}}, 400}} {
		w, r := httptest.NewRecorder(), request(t.Context(), "")
		r.Header = tc.header
		if h.ServeHTTP(w, r); w.Code != tc.status {
			t.Errorf("%v: status %d", tc.header, w.Code)
		}
	}
}

// TestErrorComparesTheToken: behind Require, only a refusal of the token of the request is a 412.
func TestErrorComparesTheToken(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
	}{
		{&checkpoint.StaleError{Shard: "shard-0", Mine: 7, Observed: 8}, 412},
		{&checkpoint.StaleError{Shard: "shard-1", Mine: 7, Observed: 8}, 500},
		{&checkpoint.StaleError{Shard: "shard-0", Mine: 6, Observed: 8}, 500},
		{fence.ErrMissing, 500}, {checkpoint.ErrInvalid, 500}, {errors.New("secret"), 500},
	} {
		w := httptest.NewRecorder()
		fencehttp.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fencehttp.Error(w, r, tc.err)
		})).ServeHTTP(w, request(t.Context(), ""))
		if w.Code != tc.status {
			t.Errorf("%v: status %d", tc.err, w.Code)
		}
	}
}

// TestErrorsAreLogged: without Report, an error is a line of the default logger.
func TestErrorsAreLogged(t *testing.T) {
	var lines bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	h := fencehttp.Handler[*[]string]{Guard: newLedger(func() {}), Effect: func(http.ResponseWriter, *http.Request, *[]string) error {
		return errors.New("no disk")
	}}
	h.ServeHTTP(httptest.NewRecorder(), request(t.Context(), ""))
	if !strings.Contains(lines.String(), `level=ERROR msg="fenced request failed" method=POST path=/orders error="no disk"`) {
		t.Errorf("the log is %q", lines.String())
	}
}

// TestFailedResponseIsRolledBack: an effect that answers with a failure did not happen, and its
// response is sent. No error is reported.
func TestFailedResponseIsRolledBack(t *testing.T) {
	l := newLedger(func() {})
	h := fencehttp.Handler[*[]string]{
		Guard: l,
		Effect: func(w http.ResponseWriter, r *http.Request, step *[]string) error {
			w.WriteHeader(http.StatusEarlyHints) // does not fix the status
			w.WriteHeader(http.StatusConflict)
			*step = append(*step, "order")
			_, err := io.WriteString(w, "sold out")
			return err
		},
		Report: func(_ *http.Request, err error) { t.Errorf("reported: %v", err) },
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(t.Context(), ""))
	if w.Code != http.StatusConflict || w.Body.String() != "sold out" || len(l.entries) != 0 || len(l.fences) != 0 {
		t.Errorf("status %d, %q; entries %v, fences %v", w.Code, w.Body, l.entries, l.fences)
	}
}

// TestInvalidStatusIsRolledBack: an effect with a status that net/http does not send panics in its
// step, not after it.
func TestInvalidStatusIsRolledBack(t *testing.T) {
	for _, status := range []int{0, 99, 1000} {
		l := newLedger(func() {})
		h := fencehttp.Handler[*[]string]{Guard: l, Effect: func(w http.ResponseWriter, _ *http.Request, step *[]string) error {
			*step = append(*step, "order")
			w.WriteHeader(status)
			return nil
		}}
		func() {
			defer func() {
				if p := recover(); p == nil || len(l.entries) != 0 {
					t.Errorf("status %d: panic %v, entries %v", status, p, l.entries)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), request(t.Context(), ""))
		}()
	}
}

// TestNegativeMaxBodyIsOff: a negative MaxBody allows a body above the default.
func TestNegativeMaxBodyIsOff(t *testing.T) {
	for most, status := range map[int64]int{0: 413, -1: 201} {
		w := httptest.NewRecorder()
		h := fencehttp.Handler[*[]string]{Guard: newLedger(func() {}), Effect: add, MaxBody: most}
		h.ServeHTTP(w, request(t.Context(), strings.Repeat("x", fencehttp.DefaultMaxBody+1)))
		if w.Code != status {
			t.Errorf("MaxBody %d: status %d", most, w.Code)
		}
	}
}

// TestCheckReportsEveryFailure: Check returns nil for a status of 2xx and for no other one, and a
// StaleError only for the token of the request. The body can be read.
func TestCheckReportsEveryFailure(t *testing.T) {
	const problem = "application/problem+json"
	refusal := func(shard, generation string) string {
		return fmt.Sprintf(`{"type":"urn:shardlease:stale","shard":%q,"generation":%q,"observed":"8"}`, shard, generation)
	}
	mine := request(under(t.Context(), "shard-0", 7), "")
	for _, tc := range []struct {
		status     int
		kind, body string
		request    *http.Request
		fails      bool
		stale      bool
	}{
		{200, "text/plain", "ok", mine, false, false}, {204, "", "", nil, false, false},
		{200, problem, refusal("shard-0", "7"), mine, false, false},
		{412, problem, refusal("shard-0", "7"), mine, true, true},
		{412, problem, refusal("shard-1", "7"), mine, true, false}, {412, problem, refusal("shard-0", "6"), mine, true, false},
		{412, problem, refusal("shard-0", "7"), nil, true, false}, {412, problem, refusal("shard-0", "7"), request(t.Context(), ""), true, false},
		{500, problem, refusal("shard-0", "7"), mine, true, false}, {412, problem, "no JSON", mine, true, false},
		{412, "", "", mine, true, false}, {412, problem, `{"type":"about:blank"}`, mine, true, false},
		{412, "application/json", refusal("shard-0", "7"), mine, true, false},
		{199, "", "", mine, true, false}, {302, "", "", mine, true, false}, {400, "", "", mine, true, false},
		{428, "text/plain", "x", mine, true, false}, {500, "text/plain", "x", mine, true, false}, {503, "text/html", "x", nil, true, false},
	} {
		r := &http.Response{
			StatusCode: tc.status, Header: http.Header{"Content-Type": {tc.kind}}, Body: io.NopCloser(strings.NewReader(tc.body)), Request: tc.request,
		}
		if err := fencehttp.Check(r); (err != nil) != tc.fails || errors.Is(err, checkpoint.ErrStale) != tc.stale {
			t.Errorf("%+v: %v", tc, err)
		}
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != tc.body {
			t.Errorf("%+v: the body is %q, %v", tc, body, err)
		}
	}
}

// TestCheckSaysThatTheBodyWasRead: if the body of a refusal was read before Check, the error of Check says so. A problem
// of another type, whose body was not read, does not get this error.
func TestCheckSaysThatTheBodyWasRead(t *testing.T) {
	for body, says := range map[string]bool{"": true, `{"type":"urn:shardlease:other"}`: false} {
		r := &http.Response{StatusCode: 412, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(strings.NewReader(body))}
		if err := fencehttp.Check(r); err == nil || strings.Contains(err.Error(), "before the call of Check") != says {
			t.Errorf("with the body %q: %v", body, err)
		}
	}
}

// A closable body reports whether it was closed.
type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

type sender func(*http.Request) (*http.Response, error)

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// TestTransportSendsNoRequestWithoutToken: a request without a valid token is not sent, and its body
// is closed. A request with one is not changed, because its owner may send it again.
func TestTransportSendsNoRequestWithoutToken(t *testing.T) {
	var sent *http.Request
	transport := &fencehttp.Transport{Base: sender(func(r *http.Request) (*http.Response, error) { sent = r; return nil, nil })}
	for ctx, want := range map[context.Context]error{
		t.Context():                      fence.ErrMissing,
		under(t.Context(), "shard-0", 0): checkpoint.ErrInvalid,
		under(t.Context(), "shard 0", 7): nil,
	} {
		body := &closable{Reader: strings.NewReader("x")}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://example.com", body)
		if err != nil {
			t.Fatal(err)
		}
		sent = nil
		_, err = transport.RoundTrip(r)
		if !errors.Is(err, want) || (sent != nil) != (want == nil) || body.closed != (want != nil) || len(r.Header) != 0 {
			t.Errorf("want %v: got %v, sent %t, closed %t, the request has %v", want, err, sent != nil, body.closed, r.Header)
		}
		if want == nil && sent.Header.Get("Shardlease-Shard") != "shard%200" {
			t.Errorf("the headers are %v", sent.Header)
		}
	}
}

// TestResponseHasItsRequest: Check needs the request of a response to recognize a refusal. The transport sets the request
// if its Base does not.
func TestResponseHasItsRequest(t *testing.T) {
	h := newLedger(func() {})
	h.fences["orders/shard-0"] = 8
	client := &http.Client{Transport: &fencehttp.Transport{Base: sender(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h.handler().ServeHTTP(w, r)
		return w.Result(), nil
	})}}
	if err := post(under(t.Context(), "shard-0", 7), client, "http://example.com", "late"); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("got %v", err)
	}
}

// TestRedirectsAreNotFollowed: the token does not leave for another server, and no effect is sent
// with another method.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other, _ := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server got a %s with %v", r.Method, r.Header)
	}))
	for _, status := range []int{301, 302, 303, 307, 308} {
		server, client := serve(t, http.RedirectHandler(other.URL, status))
		err := post(under(t.Context(), "shard-0", 7), client, server.URL, "order")
		if err == nil || !strings.Contains(err.Error(), "use the final address") {
			t.Errorf("status %d: %v", status, err)
		}
	}
}
