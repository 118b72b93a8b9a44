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

// A session holds leases by name: locks whose fencing token grows with every holder.
func ExampleSession() {
	ctx, stop := context.WithCancel(context.Background()) // in a program: signal.NotifyContext
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
