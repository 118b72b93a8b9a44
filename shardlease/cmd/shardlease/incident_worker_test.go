package main

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// evicts is the time in which other workers evict a dead one: a lease time, a third and half a second.
const evicts = 14 * time.Second

// fleetIncidents concern the workers of a group together.
func fleetIncidents() []incident {
	return []incident{{
		code: inspect.CodeNoWorkers, level: "ERROR", watch: 0, within: time.Second, // all were stopped
		cause: func(s *scene) { s.leave("a", "b", "c") },
		mend:  func(s *scene) { s.join("a", "b", "c") },
		over:  20 * time.Second,
	}, {
		code: inspect.CodeNoWorkers, level: "ERROR", with: []inspect.Code{inspect.CodeSilent}, watch: 20 * time.Second, within: 25 * time.Second, // all were killed
		cause: func(s *scene) { s.kill("a", "b", "c") },
		mend:  func(s *scene) { s.join("a", "b", "c") },
		over:  45 * time.Second,
	}, {
		code: inspect.CodeAlone, level: "INFO", watch: 0, within: 2 * evicts,
		cause: func(s *scene) { s.leave("a"); s.kill("b") },
		mend:  func(s *scene) { s.join("b") },
		over:  20 * time.Second,
	}, {
		code: inspect.CodeWish, level: "INFO", watch: 0, within: time.Second,
		cause: func(s *scene) { s.types("pause") },
		mend:  func(s *scene) { s.types("lift", "pause") },
		over:  time.Second,
	}, {
		code: inspect.CodeTTLDiffers, level: "INFO", watch: 0, within: 10 * time.Second,
		cause: func(s *scene) { s.leave("a"); s.joinAs("a", shardlease.Config{TTL: 20 * time.Second}) },
		mend: func(s *scene) {
			time.Sleep(5 * time.Minute) // otherwise shards may be handed over four times in five minutes
			s.leave("a")
			s.join("a")
		},
		over: 20 * time.Second,
	}}
}

// workerIncidents concern single workers.
func workerIncidents() []incident {
	return []incident{{
		code: inspect.CodeSilent, level: "WARN", watch: 20 * time.Second, within: 40 * time.Second, // the others may not delete its seat
		cause: func(s *scene) {
			for _, name := range []string{"a", "b"} {
				s.worker(name).refuse(func(w lease.Write) bool { return w.Op == lease.OpDelete && w.Key().Kind == lease.KindSeat })
			}
			s.kill("c")
		},
		mend: func(s *scene) { s.types("evict", "c") },
		over: 40 * time.Second,
	}, {
		code: inspect.CodeUnwellWorker, level: "WARN", watch: 0, within: time.Minute,
		begin: func(s *scene) { s.list(12); s.join("a", "b", "c") },
		cause: func(s *scene) { s.ail(fails, "a", "*") },
		mend:  func(s *scene) { s.heal() },
		over:  6 * time.Minute,
	}, {
		code: inspect.CodeUnwellWorker, level: "WARN", watch: 0, within: time.Minute, // it may not read the table
		begin: func(s *scene) { s.list(3); s.join("a", "b", "c") },
		cause: func(s *scene) {
			s.worker("b").OnList(func(context.Context, lease.Query, func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
				return func(yield func(lease.Record, error) bool) {
					yield(nil, errors.New("not authorized to perform dynamodb:Query"))
				}
			})
		},
		mend: func(s *scene) { s.worker("b").OnList(nil) },
		over: time.Minute,
	}, {
		code: inspect.CodeUnwellWorker, level: "WARN", watch: 0, within: time.Minute, // it is replaced
		begin: func(s *scene) { s.list(12); s.join("a", "b", "c") },
		cause: func(s *scene) { s.ail(fails, "a", "*") },
		mend:  func(s *scene) { s.leave("a"); s.heal(); s.join("a") },
		over:  30 * time.Second,
	}, {
		code: inspect.CodeUnwellWorker, level: "WARN", watch: 0, within: time.Minute, // an operator drains the worker before the restart
		begin: func(s *scene) { s.list(12); s.join("a", "b", "c") },
		cause: func(s *scene) { s.ail(fails, "a", "*") },
		mend: func(s *scene) {
			s.types("drain", "a")
			s.leave("a")
			s.heal()
			s.join("a")
			s.types("lift", "drain", "a")
		},
		over: 30 * time.Second,
	}, {
		code: inspect.CodeUnwellWorker, level: "ERROR", watch: 0, within: 2 * time.Minute, // a sink that all share
		begin: func(s *scene) { s.list(12); s.join("a", "b", "c") },
		cause: func(s *scene) { s.ail(fails, "*", "*") },
		mend:  func(s *scene) { s.heal() },
		over:  6 * time.Minute,
	}, {
		code: inspect.CodeClockSkew, level: "WARN", watch: 0, within: 10 * time.Second,
		cause: func(s *scene) { s.worker("b").skew(3 * time.Minute) },
		mend:  func(s *scene) { s.worker("b").skew(0) },
		over:  20 * time.Second,
	}, {
		code: inspect.CodeClockSkew, level: "WARN", watch: 12 * time.Second, within: 20 * time.Second, // behind
		cause: func(s *scene) { s.worker("b").skew(-3 * time.Minute) },
		mend:  func(s *scene) { s.worker("b").skew(0) },
		over:  20 * time.Second,
	}}
}

// skew makes the wall clock of a worker's host wrong, as far as its heartbeats show it.
func (a *actor) skew(by time.Duration) {
	a.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		seat, is := w.Next.(lease.Seat)
		if !is {
			return send()
		}
		seat.At = seat.At.Add(by)
		w.Next = seat
		return a.table.Write(ctx, w)
	})
}
