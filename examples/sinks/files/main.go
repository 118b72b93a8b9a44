// Files is a fence for a sink that cannot compare: a file system, an object store, an
// index that is built on the side. What is written goes under a name that contains the
// generation, where it is in nobody's way; then a pointer to it is published by a
// fenced write. Readers follow the pointer.
//
//	go run ./examples/sinks/files
//
// The pointer is in a memstore.Register here. In DynamoDB it is the Register of a
// dynamostore.Store, or any item or row that is written on the condition that its
// fence is not above the generation. What nobody points at may be deleted once the
// pointer has been published under a higher generation than its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

// A sink is a directory and a pointer into it for each shard.
type sink struct {
	dir      string
	pointers memstore.Register
}

// write makes the report of a shard as it is after a record. Generations are in the
// name, so a holder that was replaced overwrites nothing of its successor's; records
// are, so it overwrites nothing that it has published itself.
func (s *sink) write(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error {
	shard, generation := t.Shard().Name, t.Generation()
	name := fmt.Sprintf("%s-%d-%d.txt", shard, generation, record)
	text := fmt.Sprintf("%s after %d records\n", shard, record)
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		return err
	}
	pause()
	return s.pointers.Put(ctx, shard, generation, name)
}

// read is what readers do.
func (s *sink) read(ctx context.Context, shard string) (string, error) {
	pointer, err := s.pointers.Get(ctx, shard)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(s.dir, pointer.Value))
	return string(text), err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "files:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "sink")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &sink{dir: dir}
	late, err := takeover.Play(ctx, new(memstore.Store), out, s.write)
	if err != nil {
		return err
	}
	if !errors.Is(late, checkpoint.ErrStale) {
		return fmt.Errorf("a late write was not refused: %v", late)
	}
	text, err := s.read(ctx, takeover.Shard)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	fmt.Fprintf(out, "there are %d files, the one of the late write among them; readers see: %s", len(files), text)
	return err
}
