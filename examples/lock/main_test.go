package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestCommandRunsUnderTheLease: a command sees its token, a second one does not run while the lease is
// held, and the token of the next one is higher.
func TestCommandRunsUnderTheLease(t *testing.T) {
	store, tokens := new(memstore.Store), filepath.Join(t.TempDir(), "tokens")
	pipe, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	script := `echo "$SHARDLEASE_GROUP/$SHARDLEASE_SHARD $SHARDLEASE_GENERATION" >> ` + tokens
	first := exec.Command("sh", "-c", script+"; echo runs >&3; read line <&4")
	input, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	first.ExtraFiles = []*os.File{write, input}
	over := make(chan error)
	go func() { over <- run(t.Context(), store, "deploy", wait, first) }()
	if _, err := pipe.Read(make([]byte, 1)); err != nil { // until the first one runs
		t.Fatal(err)
	}
	if err := run(t.Context(), store, "deploy", 50*time.Millisecond, exec.Command("sh", "-c", script)); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("the lease is held, and run returns %v", err)
	}
	if _, err := end.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), store, "deploy", wait, exec.Command("sh", "-c", script)); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(tokens)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 2 || !strings.HasPrefix(lines[0], "locks/deploy ") || lines[1] <= lines[0] {
		t.Errorf("tokens %q, %v", lines, err)
	}
}

// TestFailureIsReported: the exit code of the command is in the error, and the lease is free afterwards.
func TestFailureIsReported(t *testing.T) {
	store := new(memstore.Store)
	for range 2 {
		failure, ok := errors.AsType[*exec.ExitError](run(context.Background(), store, "deploy", wait, exec.Command("sh", "-c", "exit 3")))
		if !ok || failure.ExitCode() != 3 {
			t.Errorf("run returns %v", failure)
		}
	}
}

// TestCommandEndsWithTheLease: a command whose lease is lost is killed.
func TestCommandEndsWithTheLease(t *testing.T) {
	session, err := shardlease.NewSession(new(memstore.Store), shardlease.SessionConfig{Group: "locks", Drain: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- session.Run(ctx) }()
	tenure, err := session.Acquire(ctx, "deploy", shardlease.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- execute(tenure, exec.Command("sleep", "60")) }()
	stop()
	select {
	case err := <-ended:
		if _, killed := errors.AsType[*exec.ExitError](err); !killed {
			t.Errorf("execute returns %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the command still runs")
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestDeadHolderIsReplaced: a command runs although a dead program holds the lease.
func TestDeadHolderIsReplaced(t *testing.T) {
	store := new(memstore.Store)
	link := storetest.NewLink(store)
	session, err := shardlease.NewSession(link, shardlease.SessionConfig{Group: "locks", TTL: 500 * time.Millisecond, Drain: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- session.Run(ctx) }()
	if _, err := session.Acquire(ctx, "deploy", shardlease.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	link.Silence()
	if err := run(t.Context(), store, "deploy", wait, exec.Command("true")); err != nil {
		t.Error(err)
	}
	stop()
	<-over
}
