package dynamostore

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestRegister: the register passes the suite of registers.
func TestRegister(t *testing.T) {
	storetest.RunRegister(t, func(t *testing.T) storetest.Register {
		s, _ := opened(t, 0)
		return s.Register("group")
	})
}

// A line leads to a service. If next is set, it carries the next request of an action in place of the line.
type line struct {
	*service
	action string
	next   func(send func() (*http.Response, error)) (*http.Response, error)
}

var errReset = errors.New("connection reset")

// Do sends a request to the service.
func (l *line) Do(request *http.Request) (*http.Response, error) {
	content, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	send := func() (*http.Response, error) {
		request.Body = io.NopCloser(bytes.NewReader(content))
		return l.service.Do(request)
	}
	if next := l.next; next != nil && strings.HasSuffix(request.Header.Get("X-Amz-Target"), "."+l.action) {
		l.next = nil
		return next(send)
	}
	return send()
}

// valued checks what the register has for a shard.
func valued(t *testing.T, r *Register, generation int64, value string) {
	t.Helper()
	want := lease.Guarded{Name: "shard", Generation: generation, Value: value}
	if now, err := r.Get(t.Context(), "shard"); err != nil || now != want {
		t.Errorf("the value is %+v (%v), want %+v", now, err, want)
	}
}

// TestUnansweredPut: an attempt of a Put has no answer. Put recognizes its own value, and an attempt that arrives after a
// later value was stored changes nothing.
func TestUnansweredPut(t *testing.T) {
	for name, c := range map[string]struct {
		stored bool  // at once; otherwise the attempt arrives late
		next   int64 // the generation of the next value; 0: there is none
	}{
		"stored":                        {stored: true},
		"late, after the holder's next": {next: 7},
		"late, after the successor's":   {next: 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newService(0)
			l := &line{service: f, action: "PutItem"}
			r := f.open(t, l, Options{}).Register("group")
			late := func() (*http.Response, error) { return nil, nil }
			l.next = func(send func() (*http.Response, error)) (*http.Response, error) {
				if c.stored {
					_, _ = send()
				} else {
					late = send
				}
				return nil, errReset
			}
			if err := r.Put(t.Context(), "shard", 7, "a"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			valued(t, r, 7, "a")
			if c.next == 0 {
				return
			}
			if err := r.Put(t.Context(), "shard", c.next, "b"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if answer, err := late(); err != nil || answer.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: the late attempt is answered %v, %v", name, answer, err)
			}
			valued(t, r, c.next, "b")
		})
	}
}

// TestPutOfAnotherMeanwhile: between the read of a Put and its write another value is stored. If no attempt was without an
// answer, the rule of generations decides again. Otherwise Put reports that the outcome is unknown: its value may have
// been stored for a while.
func TestPutOfAnotherMeanwhile(t *testing.T) {
	for _, c := range []struct {
		generation int64 // of the other value
		unanswered bool
		stored     bool // the Put succeeds
	}{{6, false, true}, {7, false, true}, {8, false, false}, {7, true, false}, {8, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newService(0)
			l := &line{service: f, action: "PutItem"}
			r, other := f.open(t, l, Options{}).Register("group"), f.open(t, f, Options{}).Register("group")
			l.next = func(send func() (*http.Response, error)) (*http.Response, error) {
				if err := other.Put(t.Context(), "shard", c.generation, "b"); err != nil {
					t.Error(err)
				}
				if c.unanswered {
					return nil, errReset
				}
				return send()
			}
			err := r.Put(t.Context(), "shard", 7, "a")
			if c.stored != (err == nil) {
				t.Errorf("%+v: %v", c, err)
			}
			stale, ok := errors.AsType[*checkpoint.StaleError](err)
			if ok != (c.generation > 7) || ok && (stale.OutcomeUnknown != c.unanswered || stale.Observed != c.generation) {
				t.Errorf("%+v: %v", c, err)
			}
			if c.unanswered && !ok && !strings.Contains(err.Error(), "outcome unknown") {
				t.Errorf("%+v: %v", c, err)
			}
			if c.stored {
				valued(t, r, 7, "a")
			} else {
				valued(t, r, c.generation, "b")
			}
		})
	}
}

// TestPutThatCannotBeRead: an attempt was stored without an answer, another value is there, and it cannot be read. The
// error says that the outcome is unknown, and is no QueuedError: that would mean that nothing was sent.
func TestPutThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newService(0)
		l := &line{service: f, action: "PutItem"}
		r := f.open(t, l, Options{}).Register("group")
		item := keyOf("group"+registerPartition, "shard")
		item[attr.Generation], item[attr.WriteID] = attribute(int64(7)), attribute("by-hand")
		l.next = func(send func() (*http.Response, error)) (*http.Response, error) {
			_, _ = send()
			f.put(t, item)
			return nil, errReset
		}
		if err := r.Put(t.Context(), "shard", 7, "a"); err == nil || !strings.Contains(err.Error(), "outcome unknown") || errors.Is(err, lease.ErrQueued) {
			t.Errorf("an attempt without an answer, and a value that cannot be read: %v", err)
		}
		if err := r.Put(t.Context(), "shard", 9, "c"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("a value that cannot be read was overwritten: %v", err)
		}
		if _, err := r.Get(t.Context(), "shard"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("a value without its text is read as one: %v", err)
		}
	})
}
