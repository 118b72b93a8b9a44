package story

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play runs the whole story in fake time.
func play(t *testing.T, interrupted time.Duration, mode rebalance.Mode, shards, workers int) (out string, took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		if interrupted > 0 {
			time.AfterFunc(interrupted, interrupt)
		}
		var b bytes.Buffer
		began := time.Now()
		err = newFleet(mode, shards, &b).run(ctx, workers)
		out, took = b.String(), time.Since(began)
	})
	return out, took, err
}

// The story comes to its end in either mode, and no record is lost.
func TestTheWholeStory(t *testing.T) {
	for _, c := range []struct {
		mode            rebalance.Mode
		shards, workers int
	}{{rebalance.Eager, 12, 3}, {rebalance.Cooperative, 12, 3}, {rebalance.Eager, 24, 5}} {
		t.Run(c.mode.String()+strconv.Itoa(c.shards), func(t *testing.T) {
			out, took, err := play(t, 0, c.mode, c.shards, c.workers)
			if err != nil || took > 14*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
			check(t, out)
			if t.Failed() || testing.Verbose() {
				t.Logf("%s\nafter %v", out, took)
			}
		})
	}
}

// check looks for the lines that no run lacks.
func check(t *testing.T, out string) {
	t.Helper()
	for _, line := range []string{
		`✓ even after`,
		`shard-\d\d  worker-\d → worker-\d  handoff`,
		`shard-\d\d  worker-2 → worker-\d  expired`,
		`worker-\d has seen no heartbeat of worker-2 for 1s, and evicts it`,
		`✓ others own its shards after`,
		`✓ the table refuses the checkpoint: generation \d+ of shard-\d\d is over, worker-\d owns \d+`,
		`✓ the sink refuses a record of worker-3: shard "shard-\d\d": stale generation`,
		`worker-3 has noticed that its lease expired`,
		`✓ worker-3 has its share again after`,
		`worker-1 .* has left`,
		`✓ it handed them over, and is gone after`,
		`\n  eager +\d+ +\d+ms +\d+ms +0s +0s\n`,
		`\n  cooperative +\d+ +0s +0s +\d+ms +\d+ms\n`,
		`✓ all \d+ shards are processed to their end`,
		`\n  changes of owner: expired:\d+ finished:\d+ handoff:\d+ initial:\d+`,
		`\n  stale checkpoints that the table refused: [1-9]\d*\n`,
		`\n  stale writes that the sink refused: [1-9]\d*\n`,
		`\n  records lost: 0\n`,
	} {
		if !regexp.MustCompile(line).MatchString(out) {
			t.Errorf("nothing like %s in\n%s", line, out)
		}
	}
	same(t, out, `even again after .* with (\d+) moves; the fewest possible are (\d+)\n`, 2)
	stale := regexp.MustCompile(`generation (\d+) of shard-\d\d is over, worker-\d owns (\d+)`).FindStringSubmatch(out)
	if stale == nil || stale[1] >= stale[2] {
		t.Errorf("refused over an earlier generation: %q", stale)
	}
	refused := regexp.MustCompile(`stale checkpoints that the table refused: (\d+)`).FindStringSubmatch(out)
	if shown := strings.Count(out, "✓ the table refuses"); refused == nil || refused[1] != strconv.Itoa(shown) {
		t.Errorf("%d refused checkpoints are shown, and counted: %q", shown, refused)
	}
	same(t, out, `records processed: (\d+) of (\d+);`, 1)
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences where there is no terminal")
	}
}

// same checks two figures that have to be equal, wherever a line has them.
func same(t *testing.T, out, line string, times int) {
	t.Helper()
	found := regexp.MustCompile(line).FindAllStringSubmatch(out, -1)
	for _, f := range found {
		if f[1] != f[2] {
			t.Errorf("%s and %s differ in %q", f[1], f[2], f[0])
		}
	}
	if len(found) != times {
		t.Errorf("%s is there %d times", line, len(found))
	}
}

// Interrupted, it stops, whichever step it is at.
func TestInterrupted(t *testing.T) {
	for after := 250 * time.Millisecond; after < 12*time.Second; after += fixture.Size(1500*time.Millisecond, 500*time.Millisecond) {
		_, took, err := play(t, after, rebalance.Eager, 12, 3)
		if took < after && after > 10*time.Second && err == nil {
			continue // the story was over
		}
		if !errors.Is(err, context.Canceled) || took > after+2*time.Second {
			t.Errorf("interrupted after %v, it stopped after %v: %v", after, took, err)
		}
	}
}

// TestShort: the quickstart is the first program that a newcomer reads.
func TestShort(t *testing.T) {
	const most = 600
	files, err := filepath.Glob("*.go")
	lines := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	if err != nil || lines == 0 || lines > most {
		t.Errorf("%d lines, more than %d (%v)", lines, most, err)
	}
}

// A story has one of two modes, and the error for any other names both.
func TestUnknownMode(t *testing.T) {
	var out bytes.Buffer
	err := Tell(t.Context(), "swift", &out)
	if !errors.Is(err, rebalance.ErrNoMode) || !strings.Contains(err.Error(), "swift") || out.Len() > 0 {
		t.Errorf("%v, after %q", err, out.String())
	}
}

// On a terminal the board is drawn below the lines, and over what was there before.
func TestDrawing(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	if s.live {
		t.Error("a buffer is a terminal")
	}
	s.live, s.ctx = true, t.Context()
	s.put(nil, []string{"a", "b"})
	s.put(nil, []string{"a", "b"})
	s.print("line")
	s.put(nil, []string{})
	const narrow, wide = "\x1b[?7l", "\x1b[?7h"
	want := narrow + "a\nb\n" + wide + "\x1b[2A\x1b[Jline\n" + narrow + "a\nb\n" + wide + "\x1b[2A\x1b[J"
	if out.String() != want {
		t.Errorf("drew %q", out.String())
	}
	if s.paint("32", "x") != "\x1b[32mx\x1b[0m" {
		t.Error("no colours")
	}
	t.Setenv("NO_COLOR", "1")
	if s.paint("32", "x") != "x" {
		t.Error("colours, in spite of NO_COLOR")
	}
}

// A screen that cannot be written to ends the story.
func TestBrokenPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := newFleet(rebalance.Eager, 12, broken{}).run(t.Context(), 3); !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
