package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestOpenTriesAgain: Open waits for a table that is busy or answers slowly, whatever bounds a call later. The Store that
// it returns is bounded by its options.
func TestOpenTriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		takes, busy time.Duration // how long a request takes, and for how long each is refused as too many
		options     Options
	}{
		"slow":                           {takes: 2100 * time.Millisecond},
		"busy":                           {busy: 20 * time.Second},
		"busy, with one attempt":         {busy: 20 * time.Second, options: Options{Attempts: 1, Timeout: time.Second}},
		"busy, with a number of buckets": {busy: 20 * time.Second, options: inOrders(4)},
		"busy for longer":                {busy: 40 * time.Second, options: Options{Timeout: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, began := newService(c.takes), time.Now()
				f.fault = func() string {
					if time.Since(began) < c.busy {
						return "ThrottlingException"
					}
					return ""
				}
				s := f.open(t, f, c.options)
				if took := time.Since(began); took > max(c.busy, 11*c.takes)+5*time.Second {
					t.Errorf("opened after %v", took)
				}
				f.takes, began = time.Hour, time.Now()
				_, err := s.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindSeat, Name: "a"})
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > s.options.Timeout {
					t.Errorf("afterwards a call ends after %v: %v", took, err)
				}
			})
		})
	}
}

// A client sends a request.
type client func(*http.Request) (*http.Response, error)

func (c client) Do(request *http.Request) (*http.Response, error) { return c(request) }

// TestOpenGivesUp: Open ends with its context, or after 30 s. Its error has what the table has answered, although the last
// attempt was not answered, and counts the attempts.
func TestOpenGivesUp(t *testing.T) {
	for _, lives := range []time.Duration{5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), lives)
			defer cancel()
			f, began, limit := newService(90*time.Millisecond), time.Now(), min(lives, openFor)
			f.fault = func() string { return "ProvisionedThroughputExceededException" }
			unanswered := 0
			_, err := Open(ctx, clientOf(client(func(request *http.Request) (*http.Response, error) {
				if time.Since(began) < limit-480*time.Millisecond {
					return f.Do(request)
				}
				unanswered++
				<-request.Context().Done()
				return nil, request.Context().Err()
			})), "leases", Options{})
			if took := time.Since(began); took != limit {
				t.Errorf("the context lives for %v, and Open returned after %v", lives, took)
			}
			busy, ok := errors.AsType[*types.ProvisionedThroughputExceededException](err)
			if !ok || busy == nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Open returned %v", err)
			}
			if n := f.calls["DescribeTable"] + 1; unanswered != 1 || len(f.calls) != 1 || !strings.Contains(err.Error(), fmt.Sprintf("attempt %d: ", n)) {
				t.Errorf("%v were answered, and %d were not: %v", f.calls, unanswered, err)
			}
		})
	}
}

// TestOpenGivesUpBetweenPermissions: a table ceases to answer while Open tries the permissions. Its error names the action
// that was not answered, and no other.
func TestOpenGivesUpBetweenPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newService(0)
		f.deny = "orders/seat"
		_, err := Open(t.Context(), clientOf(f), "leases", inOrders(0))
		if err == nil || strings.Count(err.Error(), "orders/") != 1 || !strings.Contains(err.Error(), "orders/seat, GetItem: attempt ") {
			t.Errorf("Open returned %v", err)
		}
	})
}

// TestOpenReportsRefusalsAtOnce: a permission that is refused, and a table that does not exist, would be the same later.
func TestOpenReportsRefusalsAtOnce(t *testing.T) {
	for code, want := range map[string]error{"AccessDeniedException": ErrDenied, "ResourceNotFoundException": ErrNoTable} {
		synctest.Test(t, func(t *testing.T) {
			f, began := newService(0), time.Now()
			f.fault = func() string { return code }
			_, err := Open(t.Context(), clientOf(f), "leases", Options{})
			if took := time.Since(began); !errors.Is(err, want) || took > 0 {
				t.Errorf("%s: after %v: %v", code, took, err)
			}
			for action, n := range f.calls {
				if n > 2 { // one for the seats, one for the targets
					t.Errorf("%s: %d times %s", code, n, action)
				}
			}
		})
	}
}

// TestAReaderDoesNotWait: OpenReader is for programs that a person or a monitor waits for. Options.Timeout bounds its calls.
func TestAReaderDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, began := newService(0), time.Now()
		f.deny = "leases"
		if _, err := OpenReader(t.Context(), clientOf(f), "leases", Options{}); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
