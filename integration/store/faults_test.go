package store

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestEveryAnswerOfABusyService: if DynamoDB answers a write with a throttle, a conflict or a server
// fault, the store sends the same bytes again while there is time, and the write is stored once.
// An error that would come again is returned at once.
func TestEveryAnswerOfABusyService(t *testing.T) {
	local.Endpoint(t)
	table := local.Table(t)
	for name, tc := range map[string]struct {
		fault  network.Fault
		mended bool // whether sending again helps
	}{
		"partition throttled": {network.Fault{Code: "ThrottlingException", Reason: "TableWriteKeyRangeThroughputExceeded"}, true},
		"table throttled":     {network.Fault{Code: "ThrottlingException", Reason: "TableWriteMaxOnDemandThroughputExceeded"}, true},
		"account throttled":   {network.Fault{Code: "ThrottlingException", Reason: "TableWriteAccountLimitExceeded"}, true},
		"provisioned":         {network.Fault{Code: "ProvisionedThroughputExceededException", Reason: "TableWriteProvisionedThroughputExceeded"}, true},
		"request limit":       {network.Fault{Code: "RequestLimitExceeded"}, true},
		"user's transaction":  {network.Fault{Code: "TransactionConflictException"}, true},
		"server fault":        {network.Fault{Code: "InternalServerError", Status: http.StatusInternalServerError}, true},
		"unavailable":         {network.Fault{Code: "ServiceUnavailable", Status: http.StatusServiceUnavailable}, true},
		"request lost":        {network.Fault{DropRequest: true}, true},
		"reply lost":          {network.Fault{DropReply: true}, true},
		"expired credentials": {network.Fault{Code: "ExpiredTokenException"}, false},
		"denied":              {network.Fault{Code: "AccessDeniedException"}, false},
		"table gone":          {network.Fault{Code: "ResourceNotFoundException"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			faults := 0 // how many faults remain
			f := network.NewFaulty(func(action string, body []byte) network.Fault {
				if _, _, row := written(action, body); !row || faults == 0 {
					return network.Fault{}
				}
				faults--
				return tc.fault
			})
			s := local.Open(t, local.Client(t, f.Over), table)
			row := fixture.Must[lease.Row](t, s)
			r := row(protocol.Claim(row(protocol.Begin(name, "shard-1", nil, "a", fixture.Stamp())), fixture.Worker("a"), fixture.Stamp()))
			w, err := protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: "1"}, fixture.Stamp())
			if err != nil {
				t.Fatal(err)
			}
			faults = 2
			sent := time.Now()
			reply, err := s.Write(t.Context(), w)
			took := time.Since(sent)
			verdict, _ := protocol.Settle(fixture.Worker("a").Incarnation, w, reply, err)
			switch {
			case tc.mended && verdict != protocol.Stored:
				t.Errorf("got %v, %v", verdict, err)
			// One request is all: the bound in time is below that of an attempt, and a busy machine may need seconds.
			case !tc.mended && (verdict != protocol.Unknown || faults != 1 || took > 10*time.Second):
				t.Errorf("got %v after %v and %d requests: %v", verdict, took, 2-faults, err)
			}
			if refused, ok := errors.AsType[*lease.RefusedError](err); ok && !refused.Retried {
				t.Error("the RefusedError of a repeated write has Retried false")
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
