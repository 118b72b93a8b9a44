// Lock runs a command, such as a deployment script, while it holds a lease by name.
//
//	go run ./examples/lock deploy sh -c 'echo deploying under $SHARDLEASE_GENERATION'
//
// If the lease is held, the program prints the holder and waits for a while, because the holder may be
// dead. After that it gives up, and the command does not run. The environment of the command contains
// the fencing token; docs/leases.md shows how a script sends it to a service. With
// LEASE_TABLE the leases are in a DynamoDB table, and without it in memory, where nobody else sees them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// wait is longer than the lease time of a holder, so it is long enough to replace a dead one.
const wait = 30 * time.Second

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: lock NAME COMMAND [ARGUMENT...]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	store, err := open(ctx, os.Getenv("LEASE_TABLE"))
	if err == nil {
		err = run(ctx, store, os.Args[1], wait, exec.Command(os.Args[2], os.Args[3:]...))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run runs a command while it holds the lease of that name.
func run(ctx context.Context, store lease.Store, name string, wait time.Duration, command *exec.Cmd) error {
	session, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: "locks"})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- session.Run(ctx) }()
	defer func() { stop(); <-over }() // after this, the session holds nothing

	soon, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	options := shardlease.AcquireOptions{Task: filepath.Base(command.Path)}
	tenure, err := session.TryAcquire(soon, name, options)
	if held := err; errors.Is(held, lease.ErrHeld) { // a *HeldError, which names the holder
		log.Println(held)
		if tenure, err = session.Acquire(soon, name, options); err != nil {
			return fmt.Errorf("%w; gave up: %w", held, err)
		}
	}
	if err != nil {
		return err
	}
	defer tenure.Release("the command has ended")
	return execute(tenure, command)
}

// execute runs the command with the fencing token in its environment, and kills it if the lease is lost.
func execute(tenure *shardlease.Tenure, command *exec.Cmd) error {
	token, _ := fence.FromContext(tenure.Context())
	fields, err := token.Fields()
	if err != nil {
		return err
	}
	command.Env = os.Environ()
	for field, value := range fields { // such as SHARDLEASE_GENERATION
		command.Env = append(command.Env, strings.ToUpper(strings.ReplaceAll(field, "-", "_"))+"="+value)
	}
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := command.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(tenure.Context(), func() { _ = command.Process.Kill() })()
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%v: %w", command, err)
	}
	return nil
}

// open returns the store that holds the leases.
func open(ctx context.Context, table string) (lease.Store, error) {
	if table == "" {
		return new(memstore.Store), nil
	}
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := dynamodb.NewFromConfig(c)
	if err := dynamostore.CreateTable(ctx, client, table, dynamostore.TableOptions{}); err != nil {
		return nil, err
	}
	return dynamostore.Open(ctx, client, table, dynamostore.Options{Group: "locks"})
}
