package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play runs the whole show in fake time.
func play(t *testing.T, interrupted time.Duration, args ...string) (out string, took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		if interrupted > 0 {
			time.AfterFunc(interrupted, interrupt)
		}
		var b bytes.Buffer
		began := time.Now()
		err = run(ctx, args, &b)
		out, took = b.String(), time.Since(began)
	})
	return out, took, err
}

// The story is told to its end in either mode, and no record is lost.
func TestTheWholeStory(t *testing.T) {
	for _, args := range [][]string{nil, {"-handoff", "cooperative"}, {"-shards", "24", "-workers", "5"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) { testTheWholeStory(t, args) })
	}
}

func testTheWholeStory(t *testing.T, args []string) {
	out, took, err := play(t, 0, args...)
	if err != nil || took > 20*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	for _, line := range essential() {
		if !regexp.MustCompile(line).MatchString(out) {
			t.Errorf("nothing like %s in", line)
		}
	}
	if processed := regexp.MustCompile(`records processed: (\d+) of (\d+);`).FindStringSubmatch(out); processed == nil || processed[1] != processed[2] {
		t.Errorf("processed: %q", processed)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences where there is no terminal")
	}
	if t.Failed() || testing.Verbose() {
		t.Log(out)
	}
}

// essential are the lines that no run lacks.
func essential() []string {
	return []string{
		`✓ even after`,
		`✓ even again after .* the fewest possible`,
		`shard-\d\d  worker-\d → worker-\d  handoff   a planned move`,
		`shard-\d\d  worker-2 → worker-\d  expired   its owner's lease had run out`,
		`worker-\d has seen no heartbeat of worker-2 for 1 s`,
		`✗ the table refuses the commit: it was made under generation \d+ of shard-\d\d,`,
		`and worker-\d holds that under generation \d+`,
		`✗ the sink refuses what worker-3 had in its hands, record \d+ of shard-\d\d`,
		`worker-1 .* has left`,
		`✓ it has handed over its \d+ shards and is gone after`,
		`\n  eager  .* 0 ms +0 ms +0 ms\n`,
		`\n  cooperative +\d+ +0 ms +0 ms +0 ms `,
		`✓ all \d+ shards are processed to their end`,
		`\n  transfers: \d+ \(initial \d+, handoff \d+, .*finished \d+\)\n`,
		`\n  refused checkpoints: [1-9]\d*; accepted: [1-9]\d*\n`,
		`\n  refused by the sink: [1-9]\d* writes\n`,
		`\n  records lost: 0\n$`,
	}
}

// Interrupted, it stops in good order, whichever act it is in.
func TestInterrupted(t *testing.T) {
	for after := 250 * time.Millisecond; after < 10*time.Second; after += 500 * time.Millisecond {
		if _, took, err := play(t, after); !errors.Is(err, context.Canceled) || took > after+2*time.Second {
			t.Errorf("interrupted after %v, it stopped after %v: %v", after, took, err)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-handoff magic", "choose a handoff mode"},
		{"-workers 2 -shards 70", "one is killed"},
		{"-shards 70", "at most 64"},
		{"-store disk", "memory"},
		{"-endpoint http://localhost:8000", "goes with -store dynamodb"},
		{"now", "no arguments"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), strings.Fields(c.args), &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-h"}, &out); err != flag.ErrHelp || !strings.Contains(out.String(), "cooperative") {
		t.Errorf("help: %v, %s", err, out.String())
	}
}

// On a terminal the board is drawn below the lines, and over what was there before.
func TestDrawing(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.live, s.colour = true, true
	s.draw([]string{"a", "b"})
	s.print("line")
	s.draw(nil)
	const hide, show = "\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h"
	want := hide + "a\nb\n" + show + "\x1b[2A\x1b[Jline\n" + hide + "a\nb\n" + show + "\x1b[2A\x1b[J"
	if out.String() != want {
		t.Errorf("drew %q", out.String())
	}
	if isTerminal(&out) || s.paint(red, "x") != "\x1b[31mx\x1b[0m" {
		t.Error("what is a terminal, and what is red")
	}
}

// With an endpoint in the environment the story is told on DynamoDB, too.
func TestOnDynamoDB(t *testing.T) {
	endpoint := os.Getenv("SHARDLEASE_QUICKSTART_ENDPOINT")
	if endpoint == "" {
		t.Skip("SHARDLEASE_QUICKSTART_ENDPOINT is not set: to the URL of a DynamoDB Local")
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-store", "dynamodb", "-endpoint", endpoint}, &out)
	if err != nil || !strings.Contains(out.String(), "records lost: 0") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
