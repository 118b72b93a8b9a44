// Files fences a sink that cannot compare generations, such as a file system, an object store
// or a search index. The worker writes under a name that contains the generation, so that it
// overwrites no file of another worker, and then publishes a pointer to that name by a fenced
// write. Readers follow the pointer.
//
//	go run ./examples/sinks/files
//
// Here the pointer is in a memstore.Register. In production use the Register of a
// dynamostore.Store, or any item or row that is written on condition that its fence is not
// above the generation. A file without a pointer may be deleted once the pointer was
// published under a higher generation than that of the file.
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

// A sink is a directory, and for each shard a pointer to a file in it.
type sink struct {
	dir      string
	pointers memstore.Register
}

// write writes the report of a shard after a record.
func (s *sink) write(ctx context.Context, t *shardlease.Tenure, record int, pause func() bool) error {
	shard := t.Shard().Name
	text := fmt.Sprintf("%s after %d records\n", shard, record)
	return s.publish(ctx, shard, t.Generation(), fmt.Sprint(record), text, func() { pause() })
}

// publish writes a version of the report of a shard. The name contains the generation, so a stale
// worker overwrites no file of its successor. It also contains the version, so a worker overwrites
// no file that it has published itself.
func (s *sink) publish(ctx context.Context, shard string, generation int64, version, text string, pause func()) error {
	name := fmt.Sprintf("%s-%d-%s.txt", shard, generation, version)
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		return err
	}
	pause()
	return s.pointers.Put(ctx, shard, generation, name)
}

// read returns the report of a shard, as readers find it.
func (s *sink) read(ctx context.Context, shard string) (string, error) {
	pointer, err := s.pointers.Get(ctx, shard)
	if err != nil || pointer.Value == "" { // nothing is published yet
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
	fmt.Fprintf(out, "there are %d files, including that of the late write; readers see: %s", len(files), text)
	return err
}
