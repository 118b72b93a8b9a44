package shardlease_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// deploy runs one deployment under the lease "deploy". If another deployment holds the lease, deploy
// does not wait: it returns an error that names the holder.
func deploy(ctx context.Context, session *shardlease.Session) error {
	tenure, err := session.TryAcquire(ctx, "deploy", shardlease.AcquireOptions{Task: "release 7"})
	if errors.Is(err, lease.ErrHeld) { // a *HeldError, which names the holder
		return fmt.Errorf("another deployment runs: %w", err)
	}
	if err != nil {
		return err
	}
	defer tenure.Release("deployed")
	for _, step := range []string{"migrate", "roll out"} {
		if err := context.Cause(tenure.Soft()); err != nil {
			return err // the lease is lost, or the program stops
		}
		fmt.Println(step) // a real step passes tenure.Context() and tenure.Generation() on
	}
	return nil
}

// runAsLeader works while it holds the lease "leader", and waits until nobody else holds it.
func runAsLeader(ctx context.Context, store lease.Store) error {
	session, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: "locks"})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- session.Run(ctx) }() // one for all leases of the program
	defer func() { stop(); <-over }()        // after this, the session holds nothing

	tenure, err := session.Acquire(ctx, "leader", shardlease.AcquireOptions{})
	if err != nil {
		return err // perhaps the *GroupError that Run returns too
	}
	defer tenure.Release("done")
	for _, step := range []string{"1", "2"} {
		fmt.Println("step", step) // real work passes tenure.Context() and tenure.Generation() on
		if err := tenure.Commit(tenure.Soft(), step); err != nil {
			return err // the lease is lost, or the program stops
		}
	}
	return nil
}

// A session holds leases by name: locks whose token grows with every holder.
func ExampleNewSession() {
	if err := runAsLeader(context.Background(), new(memstore.Store)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 1
	// step 2
}

// TryAcquire returns at once if another session holds the lease.
func ExampleSession_TryAcquire() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	session, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks"})
	if err != nil {
		fmt.Println(err)
		return
	}
	over := make(chan error)
	go func() { over <- session.Run(ctx) }()
	if err := deploy(ctx, session); err != nil {
		fmt.Println(err)
	}
	stop()
	if err := <-over; err != nil { // after this, the session holds nothing
		fmt.Println(err)
	}
	// Output:
	// migrate
	// roll out
}

// Watch shows observers who holds a lease, and which data it has.
func ExampleSession_Watch() {
	session, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for row, err := range session.Watch(context.Background(), "leader") {
		if err != nil {
			continue // the store has not answered; the next read follows
		}
		fmt.Println(row.Owner, errors.Is(err, lease.ErrHeld))
		break
	}
	// Output: nobody false
}
