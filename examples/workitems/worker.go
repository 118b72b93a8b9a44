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
	tool    string          // the URL of the tool
	aside   map[string]bool // the items that are quarantined
}

// run returns when all items are done or quarantined, or when ctx ends.
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
		// A session notices by itself that the holder of an item is dead; the supervisor is usually faster.
		var failed error
		err := w.session.Do(ctx, item, shardlease.AcquireOptions{Wait: -1}, func(ctx context.Context, t *shardlease.Tenure) error {
			if failed = w.work(ctx, t); failed != nil {
				fmt.Printf("%s: stopped under generation %d: %v\n", item, t.Generation(), failed)
			}
			return failed // a failed attempt, unless ctx has ended
		})
		held, ok := errors.AsType[*shardlease.HeldError](err)
		switch {
		case ok && held.Quarantined:
			if !w.aside[item] {
				fmt.Printf("%s: quarantined\n", item)
			}
			w.aside[item] = true
		case ok && held.Finished:
		case ok || failed != nil:
			left++
		case err != nil:
			return left, err
		}
	}
	return left, nil
}

// work does the steps of an item that are not completed yet. ctx ends when it should stop.
func (w *worker) work(ctx context.Context, t *shardlease.Tenure) error {
	item := t.Shard().Name
	done, _ := strconv.Atoi(t.Checkpoint().Position)
	fmt.Printf("%s: continues after step %d under generation %d; %d failed attempts\n", item, done, t.Generation(), t.Attempt())
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
		case <-ctx.Done():
			return context.Cause(ctx)
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
