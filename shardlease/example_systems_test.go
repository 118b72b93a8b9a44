package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The programs of docs/leases.md. Each one does with leases by name what is usually done with another system.
// Each one is complete, and has at most 30 lines.

// Chubby: a primary sends its sequencer along, and the file server refuses an old one.
func Example_chubby() {
	ctx, stop := context.WithCancel(context.Background())
	session, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks", LockDelay: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	over := make(chan error)
	go func() { over <- session.Run(ctx) }()
	var server memstore.Register // compares and writes in one step
	var sequencers []int64
	for _, data := range []string{"first", "second"} { // two primaries, one after the other
		primary, err := session.Acquire(ctx, "primary", shardlease.AcquireOptions{})
		if err != nil {
			log.Fatal(err)
		}
		sequencers = append(sequencers, primary.Generation())
		fmt.Println(data, server.Put(ctx, "file", primary.Generation(), data))
		primary.Release("steps down")
	}
	late := server.Put(ctx, "file", sequencers[0], "late")
	fmt.Println("late write refused:", errors.Is(late, checkpoint.ErrStale))
	stop()
	fmt.Println("end:", <-over)
	// Output:
	// first <nil>
	// second <nil>
	// late write refused: true
	// end: <nil>
}

// ZooKeeper: the node of a member holds the member's address and ends with the member's session, and a watcher
// notices that.
func Example_zookeeper() {
	ctx, stop := context.WithCancel(context.Background())
	alive, leave := context.WithCancel(ctx)
	store, running := new(memstore.Store), new(sync.WaitGroup)
	member, err1 := shardlease.NewSession(store, shardlease.SessionConfig{Group: "members", Drain: -1})
	watcher, err2 := shardlease.NewSession(store, shardlease.SessionConfig{Group: "members", TTL: time.Second, Drain: -1})
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	running.Go(func() { _ = member.Run(alive) })
	running.Go(func() { _ = watcher.Run(ctx) }) // looks three times per lease time
	node, err := member.Acquire(ctx, "member-7", shardlease.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered:", node.Commit(ctx, "10.0.0.7:80"))
	for row, err := range watcher.Watch(ctx, "member-7") {
		fmt.Println("found:", row.Checkpoint.Position, err)
		break
	}
	leave() // after a crash, the node ends after the lease time of the member
	_, err = watcher.Acquire(ctx, "member-7", shardlease.AcquireOptions{})
	fmt.Println("gone:", err)
	stop()
	running.Wait()
	// Output:
	// registered: <nil>
	// found: 10.0.0.7:80 <nil>
	// gone: <nil>
}

// etcd: one heartbeat keeps one lease alive, the lease keeps several keys, and the end of the lease releases
// all keys.
func Example_etcd() {
	ctx, revoke := context.WithCancel(context.Background())
	session, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{
		Group: "locks", TTL: 30 * time.Second, Drain: -1, // no time to wind down
	})
	if err != nil {
		log.Fatal(err)
	}
	over := make(chan error)
	go func() { over <- session.Run(ctx) }() // KeepAlive, for all keys
	for _, key := range []string{"jobs/1", "jobs/2"} {
		if _, err := session.Acquire(ctx, key, shardlease.AcquireOptions{}); err != nil {
			log.Fatal(err)
		}
		fmt.Println("holds", key)
	}
	revoke()
	fmt.Println("revoked:", <-over)
	for row, err := range session.Watch(context.Background(), "jobs/1") {
		fmt.Println("holder:", row.Owner, err)
		break
	}
	// Output:
	// holds jobs/1
	// holds jobs/2
	// revoked: <nil>
	// holder: nobody <nil>
}

// Consul: acquire answers at once, and a failed health check ends the session and its locks.
func Example_consul() {
	ctx, stop := context.WithCancel(context.Background())
	passing, critical := context.WithCancel(ctx) // a health check of web-1 calls critical
	store, running := new(memstore.Store), new(sync.WaitGroup)
	web1, err1 := shardlease.NewSession(store, shardlease.SessionConfig{Group: "locks", Name: "web-1", Drain: -1, LockDelay: time.Second / 2})
	web2, err2 := shardlease.NewSession(store, shardlease.SessionConfig{Group: "locks", Name: "web-2", Drain: -1, TTL: time.Second})
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	running.Go(func() { _ = web1.Run(passing) })
	running.Go(func() { _ = web2.Run(ctx) })
	first, err := web1.TryAcquire(ctx, "leader", shardlease.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = web2.TryAcquire(ctx, "leader", shardlease.AcquireOptions{})
	fmt.Println("held:", errors.Is(err, lease.ErrHeld)) // a *HeldError, which names the holder
	critical()
	next, err := web2.Acquire(ctx, "leader", shardlease.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the token has grown, as LockIndex does:", next.Generation() > first.Generation())
	stop()
	running.Wait()
	// Output:
	// held: true
	// the token has grown, as LockIndex does: true
}

// DynamoDB Lock Client: a lock has data, and a caller waits for the lock for a limited time.
func Example_dynamodbLockClient() {
	ctx, stop := context.WithCancel(context.Background())
	store, running := new(memstore.Store), new(sync.WaitGroup)
	one, err1 := shardlease.NewSession(store, shardlease.SessionConfig{Group: "lockTable"})
	two, err2 := shardlease.NewSession(store, shardlease.SessionConfig{Group: "lockTable", TTL: time.Second, Drain: -1})
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	running.Go(func() { _ = one.Run(ctx) })
	running.Go(func() { _ = two.Run(ctx) })
	lock, err := one.Acquire(ctx, "Moe", shardlease.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	stored := errors.Join(lock.MarkState("1", "test data"), lock.Flush(ctx))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = two.Acquire(short, "Moe", shardlease.AcquireOptions{})
	fmt.Println("stored:", stored, "- gave up:", errors.Is(err, context.DeadlineExceeded))
	lock.Release("done")
	if lock, err = two.Acquire(ctx, "Moe", shardlease.AcquireOptions{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the next holder reads:", lock.Checkpoint().State)
	stop()
	running.Wait()
	// Output:
	// stored: <nil> - gave up: true
	// the next holder reads: test data
}

// SQS: others do not see a message while it is processed, and a deleted message does not come back.
func Example_sqs() {
	ctx, stop := context.WithCancel(context.Background())
	session, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "jobs"})
	if err != nil {
		log.Fatal(err)
	}
	over := make(chan error)
	go func() { over <- session.Run(ctx) }()                       // its heartbeats extend the visibility timeout
	for _, id := range []string{"video-1", "video-2", "video-1"} { // video-1 is delivered twice
		message, err := session.TryAcquire(ctx, id, shardlease.AcquireOptions{})
		if held, ok := errors.AsType[*shardlease.HeldError](err); ok {
			fmt.Println(id, "skipped, finished:", held.Finished)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(id, "processed")                // in case of an error: message.Release("failed")
		if err := message.Finish(ctx); err != nil { // DeleteMessage
			log.Fatal(err)
		}
	}
	stop()
	fmt.Println("end:", <-over)
	// Output:
	// video-1 processed
	// video-2 processed
	// video-1 skipped, finished: true
	// end: <nil>
}

// Kubernetes: candidates lead one after the other, and each release lets the next one lead.
func Example_kubernetes() {
	store, pods := new(memstore.Store), new(sync.WaitGroup)
	for _, name := range []string{"pod-a", "pod-b"} {
		pods.Go(func() {
			ctx, stop := context.WithCancel(context.Background())
			session, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: "controller", Name: name, TTL: time.Second})
			if err != nil {
				log.Fatal(err)
			}
			over := make(chan error)
			go func() { over <- session.Run(ctx) }()
			tenure, err := session.Acquire(ctx, "leader", shardlease.AcquireOptions{})
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(name, "leads") // OnStartedLeading; work until tenure.Soft() ends
			tenure.Release("done")     // ReleaseOnCancel
			<-tenure.Context().Done()  // OnStoppedLeading
			stop()
			<-over
		})
	}
	pods.Wait()
	// Unordered output:
	// pod-a leads
	// pod-b leads
}

// A cron guard: the crontab of each host starts the program, and one host makes the report of the day.
func Example_cron() {
	store, day := new(memstore.Store), "2026-01-05" // the time of the schedule, the same on all hosts
	for _, host := range []string{"host-1", "host-2"} {
		ctx, stop := context.WithCancel(context.Background())
		session, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: "cron", Name: host, Order: checkpoint.Lexical})
		if err != nil {
			log.Fatal(err)
		}
		over := make(chan error)
		go func() { over <- session.Run(ctx) }()
		job, err := session.Acquire(ctx, "report", shardlease.AcquireOptions{})
		if err != nil {
			log.Fatal(err)
		}
		if job.Checkpoint().Position >= day {
			fmt.Println(host, "has nothing to do")
		} else { // a real report has the token job.Generation()
			fmt.Println(host, "made the report;", job.Commit(ctx, day))
		}
		job.Release("done")
		stop()
		<-over
	}
	// Output:
	// host-1 made the report; <nil>
	// host-2 has nothing to do
}

// A volume: an operator detaches it from a node that hangs, and the disk refuses that node's writes.
func Example_volume() {
	ctx, stop := context.WithCancel(context.Background())
	store, running := new(memstore.Store), new(sync.WaitGroup)
	var disk memstore.Register // compares and writes in one step
	attach := func(node string) *shardlease.Tenure {
		session, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: "volumes", Name: node, Drain: -1})
		if err != nil {
			log.Fatal(err)
		}
		running.Go(func() { _ = session.Run(ctx) })
		volume, err := session.TryAcquire(ctx, "vol-1", shardlease.AcquireOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(node, "attached;", disk.Put(ctx, "vol-1", volume.Generation(), node)) // raises the fence
		return volume
	}
	first := attach("node-1")
	operator := shardlease.Supervisor{Store: store, Group: "volumes", By: "operator"}
	_, err := operator.ForceRelease(ctx, "vol-1", first.Generation(), "node-1 hangs")
	attach("node-2")
	late := disk.Put(ctx, "vol-1", first.Generation(), "late")
	fmt.Println("detached:", err, "- late write refused:", errors.Is(late, checkpoint.ErrStale))
	stop()
	running.Wait()
	// Output:
	// node-1 attached; <nil>
	// node-2 attached; <nil>
	// detached: <nil> - late write refused: true
}
