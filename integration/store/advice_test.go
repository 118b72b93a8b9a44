package store

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// advice stores a seat, a plan, a target and wishes.
func advice(t *testing.T, s lease.Store) (lease.Seat, lease.Plan, lease.Target, lease.Wishes) {
	t.Helper()
	seat := lease.Seat{Group: "orders", Incarnation: "a-1", Name: "a", TTL: time.Second}
	target := lease.Target{Group: "orders", Incarnation: "a-1", Revision: 7, Pages: 1, Hold: []lease.Assigned{{Shard: "s"}}}
	wish := lease.Wish{Kind: lease.WishPause, By: "op"}
	return fixture.Must[lease.Seat](t, s)(protocol.Sit(seat, fixture.Stamp())),
		fixture.Must[lease.Plan](t, s)(protocol.OpenPlan(lease.Plan{Group: "orders"}, protocol.Opening{By: fixture.Worker("a")}, fixture.Stamp())),
		fixture.Must[lease.Target](t, s)(protocol.WriteTarget(lease.Target{}, target, fixture.Stamp())),
		fixture.Must[lease.Wishes](t, s)(protocol.SetWishes(lease.Wishes{Group: "orders"}, []lease.Wish{wish}, fixture.Stamp()))
}

// TestPlanComesWithTheSeats: one query reads the plan, the wishes and the seats, one read a page of
// a target.
func TestPlanComesWithTheSeats(t *testing.T) {
	f := network.NewFaulty(func(string, []byte) network.Fault { return network.Fault{} })
	hand := byHand{t, local.Client(t, f.Over), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	seat, plan, target, wishes := advice(t, s)

	queries, reads := f.Calls["Query"], f.Calls["GetItem"]
	var listed []lease.Record
	for r, err := range s.List(t.Context(), lease.Query{Group: "orders", Kind: lease.KindSeat}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, r)
	}
	if want := []lease.Record{plan, wishes, seat}; !reflect.DeepEqual(listed, want) || f.Calls["Query"] != queries+1 {
		t.Errorf("%d queries list %v, want %v", f.Calls["Query"]-queries, listed, want)
	}
	if page, err := s.Get(t.Context(), target.Key()); err != nil || !reflect.DeepEqual(page, lease.Record(target)) || f.Calls["GetItem"] != reads+1 {
		t.Errorf("%d reads return %v, %v", f.Calls["GetItem"]-reads, page, err)
	}
}

// TestUnknownAttributesOfAdviceSurvive: attributes of a newer version in a plan, a target or wishes
// survive the writes of this version.
func TestUnknownAttributesOfAdviceSurvive(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	_, plan, target, wishes := advice(t, s)
	for _, k := range []lease.Key{plan.Key(), target.Key(), wishes.Key()} {
		item := hand.get(k)
		item["fromTheFuture"] = &types.AttributeValueMemberSS{Value: []string{"kept"}}
		hand.put(item)
	}
	plan = fixture.Must[lease.Plan](t, s)(protocol.TickPlan(plan, true, fixture.Stamp()))
	plan = fixture.Must[lease.Plan](t, s)(protocol.ClosePlan(plan, plan.Revision, plan.By.Incarnation, lease.Finding{Members: 1}, fixture.Stamp()))
	empty := lease.Target{Group: "orders", Incarnation: "a-1", Revision: 8, Pages: 1}
	fixture.Must[lease.Target](t, s)(protocol.WriteTarget(target, empty, fixture.Stamp()))
	fixture.Must[lease.Wishes](t, s)(protocol.SetWishes(wishes, nil, fixture.Stamp()))
	for k, gone := range map[lease.Key]string{plan.Key(): attr.Open, target.Key(): attr.Hold, wishes.Key(): attr.Wishes} {
		item := hand.get(k)
		if kept, ok := item["fromTheFuture"].(*types.AttributeValueMemberSS); !ok || !slices.Equal(kept.Value, []string{"kept"}) {
			t.Errorf("%v is now %v", k, item)
		}
		if _, there := item[gone]; there {
			t.Errorf("%v still has %s", k, gone)
		}
	}
}
