package shardlease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Journal returns the acts of operators since a time, the oldest first: who did what, when, and why. It goes back 90 days at
// most, and costs a read of what it returns. The error contains a [*lease.MalformedError] for each entry that cannot be read;
// Journal returns the other entries nevertheless.
//
// Every method that changes a row, a seat or a wish adds an entry after it has done so. An entry is best effort: one that
// cannot be stored changes nothing about the act, and is passed to Unjournaled.
func (s Supervisor) Journal(ctx context.Context, since time.Time) ([]lease.Act, error) {
	if err := s.check(false); err != nil {
		return nil, err
	}
	var acts []lease.Act
	var errs []error
	for record, err := range s.Store.List(ctx, lease.ActsSince(s.Group, since, time.Now())) {
		if act, ok := record.(lease.Act); ok {
			acts = append(acts, act)
		}
		errs = append(errs, err)
	}
	return acts, errors.Join(errs...)
}

// Record adds to the journal an act that the Supervisor did not carry out, such as an adoption by dynamostore. By and
// the time are those of the Supervisor and of now. If the act has begun a generation, workers read the row of Subject
// at once, and the tenure that the act has ended is counted. Record returns an error if the entry may be missing.
func (s Supervisor) Record(ctx context.Context, act lease.Act) error {
	if err := s.check(true); err != nil {
		return err
	}
	if act.Generation > 0 {
		s.look(ctx, act.Subject)
		defer func() { s.countEnds(ctx, endedBy(ctx, s, act)) }()
	}
	return record(ctx, s, act)
}

// record adds an act to the journal.
func record(ctx context.Context, s Supervisor, act lease.Act) error {
	act.By = s.By
	w, err := protocol.Enter(s.Group, act, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
	if err != nil {
		return err
	}
	const tries = 3
	for try := 1; ; try++ {
		reply, answer := s.Store.Write(ctx, w)
		if verdict, _ := protocol.Settle("", w, reply, answer); verdict == protocol.Stored {
			return nil
		}
		if answer == nil {
			answer = lease.ErrMalformed // an answer that does not fit
		}
		if try == tries || !rest(ctx, time.Duration(try)*50*time.Millisecond) {
			return fmt.Errorf("journal of the %s: %w", act.Did, answer)
		}
	}
}

// journal records an act that was carried out.
func journal(ctx context.Context, s Supervisor, act lease.Act) {
	if err := record(ctx, s, act); err != nil && s.Unjournaled != nil {
		s.Unjournaled(act, err)
	}
}

// changed records a command that has changed some rows, as far as it has, and passes its results on.
func changed(ctx context.Context, s Supervisor, act lease.Act, rows []lease.Row, err error) ([]lease.Row, error) {
	if act.Rows = int64(len(rows)); err == nil || len(rows) > 0 {
		journal(ctx, s, act)
	}
	return rows, err
}

// wished records a wish that was stored, and passes the error on.
func wished(ctx context.Context, s Supervisor, w lease.Wish, lasts time.Duration, err error) error {
	if err == nil {
		journal(ctx, s, lease.Act{Did: string(w.Kind), Subject: w.Subject, To: w.To, Why: w.Why, Until: ending(lasts)})
	}
	return err
}

// ending returns when something ends that lasts so long from now on; 0: no end is set.
func ending(lasts time.Duration) time.Time {
	if lasts == 0 {
		return time.Time{}
	}
	return time.Now().Add(lasts)
}

// lifted records that wishes were lifted, and passes the error on.
func lifted(ctx context.Context, s Supervisor, kind, subject, why string, err error) error {
	if err == nil {
		journal(ctx, s, lease.Act{Did: "lift " + kind, Subject: subject, Why: why})
	}
	return err
}
