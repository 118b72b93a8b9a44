package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLatePointerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		story := `(?s)a holds shard-0, generation (\d+)\n  a writes record 1: done\n  a writes record 2: done\na is paused.*` +
			`b holds shard-0, generation (\d+)\n  b writes record 3: done\n  b writes record 4: done\n` +
			`a wakes up.*\n  a writes record 3: refused: .* written under generation (\d+), now at (\d+)\n` +
			`there are 5 files, .* readers see: shard-0 after 4 records\n`
		found := regexp.MustCompile(story).FindStringSubmatch(out.String())
		if found == nil || found[1] != found[3] || found[2] != found[4] || found[1] == found[2] {
			t.Errorf("unexpected output: %q\n%s", found, out.String())
		}
	})
}

// TestPublishedFilesAreFenced: readers never see the file of a stale worker.
func TestPublishedFilesAreFenced(t *testing.T) {
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		s := &sink{dir: t.TempDir()}
		return fencetest.Sink{
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				return s.publish(ctx, f.Shard, f.Generation, string(effect), string(effect), t.Pause)
			},
			Effects: func(ctx context.Context, shard string) ([][]byte, error) {
				text, err := s.read(ctx, shard)
				if text == "" {
					return nil, err
				}
				return [][]byte{[]byte(text)}, err
			},
			Raise: func(ctx context.Context, f fencetest.Fence) error {
				return s.pointers.Raise(ctx, f.Shard, f.Generation)
			},
			Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
		}
	})
}
