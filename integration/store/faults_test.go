package integration

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestEveryAnswerOfABusyService: whatever DynamoDB says that is no answer to a
// write, the store sends the same bytes again while there is time, and the write
// is stored once; and what sending again cannot mend comes back at once.
func TestEveryAnswerOfABusyService(t *testing.T) {
	endpoint(t)
	table := newTable(t)
	for name, tc := range map[string]struct {
		fault  fault
		mended bool // by sending again
	}{
		"partition throttled": {fault{code: "ThrottlingException", reason: "TableWriteKeyRangeThroughputExceeded"}, true},
		"table throttled":     {fault{code: "ThrottlingException", reason: "TableWriteMaxOnDemandThroughputExceeded"}, true},
		"account throttled":   {fault{code: "ThrottlingException", reason: "TableWriteAccountLimitExceeded"}, true},
		"provisioned":         {fault{code: "ProvisionedThroughputExceededException", reason: "TableWriteProvisionedThroughputExceeded"}, true},
		"request limit":       {fault{code: "RequestLimitExceeded"}, true},
		"user's transaction":  {fault{code: "TransactionConflictException"}, true},
		"server fault":        {fault{code: "InternalServerError", status: http.StatusInternalServerError}, true},
		"unavailable":         {fault{code: "ServiceUnavailable", status: http.StatusServiceUnavailable}, true},
		"request lost":        {fault{dropRequest: true}, true},
		"reply lost":          {fault{dropReply: true}, true},
		"expired credentials": {fault{code: "ExpiredTokenException"}, false},
		"denied":              {fault{code: "AccessDeniedException"}, false},
		"table gone":          {fault{code: "ResourceNotFoundException"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			faults := 0 // how many are still to come
			f := newFaulty(func(action string, body []byte) fault {
				if _, _, row := written(action, body); !row || faults == 0 {
					return fault{}
				}
				faults--
				return tc.fault
			})
			s := open(t, newClient(t, f.over), table)
			row := must[lease.Row](t, s)
			r := row(row(lease.Begin(name, "shard-1", nil, "a", stamp())).Claim(worker("a"), stamp()))
			w, err := r.Commit(hold(r), checkpoint.Mark{Position: "1"}, stamp())
			if err != nil {
				t.Fatal(err)
			}
			faults = 2
			sent := time.Now()
			reply, err := s.Write(t.Context(), w)
			took := time.Since(sent)
			verdict, _ := lease.Settle(worker("a").Incarnation, w, reply, err)
			switch {
			case tc.mended && verdict != lease.Stored:
				t.Errorf("got %v, %v", verdict, err)
			case !tc.mended && (verdict != lease.Unknown || faults != 1 || took > time.Second):
				t.Errorf("got %v after %v and %d requests: %v", verdict, took, 2-faults, err)
			}
			if refused, ok := errors.AsType[*lease.RefusedError](err); ok && !refused.Retried {
				t.Error("a refusal of a write that was sent before does not say so")
			}
			faults = 0
			now, err := s.Get(t.Context(), r.Key())
			if err != nil {
				t.Fatal(err)
			}
			if got := now.(lease.Row).Counter - r.Counter; got > 1 || tc.mended && got != 1 {
				t.Errorf("the write was stored %d times", got)
			}
		})
	}
}

// TestOptionsAreChecked: all that is wrong with them, at once.
func TestOptionsAreChecked(t *testing.T) {
	_, err := dynamostore.Open(t.Context(), nil, "table", dynamostore.Options{Timeout: -1, Attempts: -1, InFlight: -1})
	for _, name := range []string{"Timeout", "Attempts", "InFlight"} {
		if !errors.Is(err, checkpoint.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}
