package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"

	"github.com/shardlease/shardlease-go/shardlease"
)

// A member is one worker of a fleet, on a host of its own.
type member struct {
	name    string
	fleet   *fleet
	host    *host
	stop    context.CancelFunc
	gone    chan struct{} // closed when Run has returned
	err     error         // what it returned
	records atomic.Int64  // processed
}

// process is the handler: it is called for each shard this worker holds, for as long
// as it holds it.
func (m *member) process(ctx context.Context, t *shardlease.Tenure) error {
	shard := t.Shard().Name
	visit := m.fleet.probe.enter(m.name, shard)
	defer m.fleet.probe.leave(visit)
	position, _ := strconv.Atoi(t.Checkpoint().Position) // none yet: from the beginning
	for record, err := range m.fleet.stream.read(ctx, position) {
		switch {
		case !m.host.runs():
			return nil // a dead host processes nothing
		case errors.Is(err, io.EOF):
			return t.Finish(t.Context()) // the shard itself has ended
		case err != nil:
			return err // told to wind down: there is nothing left to do
		}
		if err := m.fleet.sink.write(shard, record, t.Generation()); err != nil {
			m.fleet.refused(m, err)
			return err
		}
		m.records.Add(1)
		if err := t.Mark(strconv.Itoa(record)); err != nil {
			return err
		}
	}
	return nil
}

// quiet reports whether nothing of what this worker does can be seen from outside.
func (m *member) quiet() bool {
	s, _ := m.host.now()
	return s != up && s != pausing
}

// hasLeft reports whether Run has returned.
func (m *member) hasLeft() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}
