package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

const (
	group = "leaders" // all sessions that contend for the same leases
	name  = "leader"  // the lease
)

// A candidate leads while it holds the lease, and otherwise waits for the lease.
type candidate struct {
	session *shardlease.Session
	sink    string        // the URL of the sink
	pause   time.Duration // between two effects
	listen  string        // the address at which it answers; empty: nowhere

	leads atomic.Pointer[shardlease.Tenure] // nil: it does not lead
}

// run returns when ctx ends. The session then releases the lease, so no other candidate has to wait for the
// lease time.
func (c *candidate) run(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- c.session.Run(ctx) }()
	answered := make(chan error, 1)
	go func() {
		defer stop() // without an address it cannot do its work
		if c.listen == "" {
			<-ctx.Done()
			answered <- nil
			return
		}
		answered <- c.answer(ctx, c.listen)
	}()
	defer func() { stop(); err = errors.Join(err, <-over, <-answered) }()
	for {
		tenure, err := c.session.Acquire(ctx, name, shardlease.AcquireOptions{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Printf("leads under generation %d\n", tenure.Generation())
		c.leads.Store(tenure)
		err = c.lead(tenure)
		c.leads.Store(nil)
		tenure.Release("stopped leading") // harmless if the lease is lost
		fmt.Printf("stopped leading under generation %d: %v\n", tenure.Generation(), err)
	}
}

// lead does the work of a leader until it should stop, and returns the reason.
func (c *candidate) lead(t *shardlease.Tenure) error {
	// The work continues where an earlier leader has stopped: the checkpoint is kept in the lease.
	last, _ := strconv.Atoi(t.Checkpoint().Position)
	for n := last + 1; ; n++ {
		if err := c.effect(t.Context(), n); err != nil {
			if errors.Is(err, checkpoint.ErrStale) {
				return fmt.Errorf("the sink refused effect %d: %w", n, err)
			}
			return err
		}
		// A commit also notices that an operator has released the lease.
		if err := t.Commit(t.Context(), strconv.Itoa(n)); err != nil {
			return err
		}
		select {
		case <-t.Soft().Done():
			return context.Cause(t.Soft())
		case <-time.After(c.pause):
		}
	}
}

// client sends the token of each request's context with the request.
var client = &http.Client{Transport: &fencehttp.Transport{}}

// effect makes one effect at the sink. ctx is the context of a tenure, which has the fencing token.
func (c *candidate) effect(ctx context.Context, n int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/%d", c.sink, n), strings.NewReader("effect"))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return fencehttp.Check(response)
}
