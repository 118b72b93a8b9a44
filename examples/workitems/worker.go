package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

const (
	steps = 5                      // of each item
	pause = 200 * time.Millisecond // after each step, and before a worker looks for items again
)

// A worker is one run of the agent. It works on one item at a time.
type worker struct {
	session *shardlease.Session
	items   []string
	tool    string // the URL of the tool
}

// run returns when all items are done, or when ctx ends.
func (w *worker) run(ctx context.Context) (err error) {
	sessionCtx, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- w.session.Run(sessionCtx) }()
	defer func() { stop(); err = errors.Join(err, <-over) }()
	for {
		left, err := w.round(ctx)
		if ctx.Err() != nil {
			return nil // the session releases the present item, and another run continues it
		}
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(pause)
	}
}

// round works on each item that nobody else works on, and returns how many items are perhaps not done yet.
func (w *worker) round(ctx context.Context) (left int, err error) {
	for _, item := range w.items {
		// TryAcquire does not notice that a holder is dead. Here the supervisor does that.
		tenure, err := w.session.TryAcquire(ctx, item, shardlease.AcquireOptions{})
		if held, ok := errors.AsType[*shardlease.HeldError](err); ok {
			if !held.Finished {
				left++
			}
			continue
		}
		if err != nil {
			return left, err
		}
		if err := w.work(tenure); err != nil {
			left++
			fmt.Printf("%s: stopped under generation %d: %v\n", item, tenure.Generation(), err)
			tenure.Release("stopped") // harmless if the supervisor has released the item
		}
	}
	return left, nil
}

// work does the steps of an item that are not completed yet.
func (w *worker) work(t *shardlease.Tenure) error {
	item := t.Shard().Name
	done, _ := strconv.Atoi(t.Checkpoint().Position)
	fmt.Printf("%s: continues after step %d under generation %d\n", item, done, t.Generation())
	for step := done + 1; step <= steps; step++ {
		if err := w.call(t.Context(), item, step); err != nil {
			return err
		}
		// If the process dies here, the next holder calls the tool for this step again. So the call
		// names the step, and the tool ignores the second call.
		if err := t.Commit(t.Context(), strconv.Itoa(step)); err != nil {
			return err
		}
		select {
		case <-t.Soft().Done():
			return context.Cause(t.Soft())
		case <-time.After(pause):
		}
	}
	if err := t.Finish(t.Context()); err != nil {
		return err
	}
	fmt.Printf("%s: done\n", item)
	return nil
}

// client sends the token of each request's context with the request.
var client = &http.Client{Transport: &fencehttp.Transport{}}

// call calls the tool for one step of an item. ctx is the context of a tenure, so the call carries the
// generation of the item. The tool refuses the call if it has already served a later holder.
func (w *worker) call(ctx context.Context, item string, step int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/%s/%d", w.tool, item, step), strings.NewReader("what the tool should do"))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return fencehttp.Check(response) // a *checkpoint.StaleError if the tool has refused the generation
}
