package store

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestRepairOnDynamoDB: DynamoDB accepts the repair of every kind of spoilt item, on the condition that each attribute is as it
// was read, of whatever type; and refuses it if one has changed. The former owner is fenced.
func TestRepairOnDynamoDB(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	row, seat := goodRecords(t, s, "shard-1")
	for _, good := range []lease.Record{row, seat} {
		key := good.Key()
		stored := hand.get(key)
		for _, wrong := range append(spoilings(key.Kind), numericID) {
			spoilt := wrong.of(stored)
			spoilt["mine"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberBOOL{}, &types.AttributeValueMemberNULL{Value: true}}}
			hand.put(spoilt)
			changes := func(lease.Record, []string) error {
				other := wrong.of(stored)
				other["mine"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{}}
				hand.put(other)
				return nil
			}
			agree := func(lease.Record, []string) error { return nil }
			if wrong.attr == attr.Version {
				if _, err := s.Repair(t.Context(), key, "ann", "why", agree); !errors.Is(err, protocol.ErrNewer) {
					t.Errorf("%v, %s: %v", key, wrong.name, err)
				}
				continue
			}
			if _, err := s.Repair(t.Context(), key, "ann", "why", changes); !errors.Is(err, protocol.ErrRewritten) {
				t.Errorf("%v, %s: over another write: %v", key, wrong.name, err)
			}
			next, err := s.Repair(t.Context(), key, "ann", "why", agree)
			now, nowErr := s.Get(t.Context(), key)
			switch {
			case err != nil || next == nil && !errors.Is(nowErr, lease.ErrNotFound) || next != nil && (nowErr != nil || now.String() != next.String()):
				t.Errorf("%v, %s: %v, %v; stored %v, %v", key, wrong.name, next, err, now, nowErr)
			case next != nil && hand.get(key)["mine"] == nil:
				t.Errorf("%v, %s: the user's attribute is gone", key, wrong.name)
			}
			if key.Kind != lease.KindLease {
				continue
			}
			late := fixture.Write(t)(protocol.Commit(row, fixture.Hold(row), fixture.At("9"), fixture.Stamp()))
			if r, err := s.Write(t.Context(), late); !errors.Is(err, lease.ErrRefused) {
				t.Errorf("%s: a commit of the former owner: %v, %v", wrong.name, r, err)
			}
			if _, err := (shardlease.Supervisor{Store: s, Group: "orders", By: "ann"}).Finish(t.Context(), key.Name, now.(lease.Row).Generation, "repaired"); err != nil {
				t.Errorf("%s: a command for the repaired row: %v", wrong.name, err)
			}
		}
	}
	if acts, err := (shardlease.Supervisor{Store: s, Group: "orders", By: "ann"}).Journal(t.Context(), fixture.Stamp().At.AddDate(-1, 0, 0)); err != nil || len(acts) == 0 {
		t.Errorf("the journal: %v, %v", acts, err)
	}
}
