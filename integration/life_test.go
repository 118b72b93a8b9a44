package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func stamp() lease.Stamp { return lease.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()} }

func worker(name string) lease.Owner {
	return lease.Owner{Name: name, Incarnation: lease.Incarnation(name + "-1")}
}

func hold(r lease.Row) lease.Hold {
	return lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation, Order: checkpoint.Decimal}
}

// liveOnce does one of everything.
func liveOnce(ctx context.Context, s lease.Store) error {
	var errs []error
	row := func(w lease.Write, err error) lease.Row {
		if err != nil {
			errs = append(errs, err)
			return lease.Row{}
		}
		r, err := s.Write(ctx, w)
		errs = append(errs, err)
		got, _ := r.(lease.Row)
		return got
	}
	r := row(lease.Begin("orders", "shard-1", nil, "a", stamp()))
	r = row(r.Claim(worker("a"), stamp()))
	r = row(r.Commit(hold(r), checkpoint.Mark{Position: "10"}, stamp()))
	r = row(r.Offer(hold(r), worker("b").Incarnation, checkpoint.Mark{Position: "11"}, stamp()))
	r = row(r.Take(worker("b"), stamp()))
	row(r.Finish(hold(r), checkpoint.Mark{}, stamp()))
	for _, err := range s.List(ctx, lease.Query{Group: "orders", Kind: lease.KindLease}) {
		errs = append(errs, err)
	}
	_, err := s.Get(ctx, r.Key())
	errs = append(errs, err)

	seat := lease.Seat{Group: "orders", Incarnation: worker("a").Incarnation, Name: "a", TTL: time.Second}
	w, err := seat.Sit(stamp())
	errs = append(errs, err)
	got, err := s.Write(ctx, w)
	errs = append(errs, err)
	if seat, ok := got.(lease.Seat); ok {
		w, err = seat.Evict()
		errs = append(errs, err)
		_, err = s.Write(ctx, w)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
