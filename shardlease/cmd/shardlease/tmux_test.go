package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"go.uber.org/goleak"

	"github.com/shardlease/shardlease-go/dynamostore"
)

// A pane is a terminal of tmux.
type pane struct {
	t      *testing.T
	server string
}

// newPane starts a command line in a terminal of a size. It skips the test where tmux is missing, unless
// SHARDLEASE_REQUIRE_TMUX is 1.
func newPane(t *testing.T, width, height int, line string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("SHARDLEASE_REQUIRE_TMUX") == "1" {
			t.Fatalf("SHARDLEASE_REQUIRE_TMUX is 1: %v", err)
		}
		t.Skip("tmux is not installed: install it to test top in a terminal")
	}
	p := &pane{t, "shardlease-" + rand.Text()[:8]}
	t.Cleanup(func() { _ = exec.Command("tmux", "-L", p.server, "kill-server").Run() }) // fails if the command has ended it
	p.tmux("-f", os.DevNull, "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), line)
	return p
}

// tmux gives a command to the terminal, and returns what it prints.
func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-u", "-L", p.server}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// press sends keys, by their names in tmux.
func (p *pane) press(keys ...string) { p.t.Helper(); p.tmux(append([]string{"send-keys"}, keys...)...) }

// shows waits until the screen has all texts, and returns it.
func (p *pane) shows(texts ...string) (screen string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		screen = p.tmux("capture-pane", "-p")
		missing := ""
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
			}
		}
		if missing == "" {
			return screen
		}
	}
	p.t.Fatalf("the screen does not show %q:\n%s", texts, screen)
	return ""
}

// TestTopInATerminal: the program, in a terminal of tmux, follows workers that run in its process: one joins, a
// handler fails, the table does not answer for a while.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	outage := filepath.Join(t.TempDir(), "outage")
	line := "env " + outageFile + "=" + outage + " %s " + os.Args[0] + " top --table leases --group orders --rows-every 2s; echo exit code $?; cat"
	p := newPane(t, 100, 30, fmt.Sprintf(line, ""))
	p.shows("orders  table leases", "13 shards", "12 held", "3 workers")
	p.press("4")
	p.shows("joined      host-3", "handoff: cooperative")
	p.press("3")
	p.shows("ERROR  quarantined", "do: Repair what made it fail, then `shardlease unquarantine poison-record --why")
	p.press("1", "/")
	p.press("-l", "000000000007")
	p.press("Enter", "Enter")
	screen := p.shows("Shard shardId-000000000007", "checkpoint   accepted")
	if strings.Contains(screen, "canary") {
		t.Errorf("the screen shows a position:\n%s", screen)
	}
	p.press("Escape")
	p.shows("1 of 1")
	if err := os.WriteFile(outage, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.shows("The table could not be read for ", "no answer from the table", "shardId-000000000007")
	if err := os.Remove(outage); err != nil {
		t.Fatal(err)
	}
	if colors := p.tmux("capture-pane", "-pe"); !strings.Contains(colors, green) {
		t.Errorf("the screen has no colours: %q", colors)
	}
	p.tmux("resize-window", "-x", "40", "-y", "12")
	p.shows("orders", "[1 Shards 13]  2  3  4")
	p.press("q")
	p.shows("exit code 0")

	p = newPane(t, 80, 24, fmt.Sprintf(line, "NO_COLOR=1"))
	p.shows("held")
	if colors := p.tmux("capture-pane", "-pe"); strings.Contains(colors, green) {
		t.Errorf("NO_COLOR is set, and the screen has colours: %q", colors)
	}
	p.press("C-c")
	p.shows("exit code 0")
}

// green begins a green text.
const green = "\x1b[32m"

// TestTopOnDynamoDB: the real program, built as users build it, in a terminal and on a DynamoDB Local.
func TestTopOnDynamoDB(t *testing.T) {
	besideOthers(t)
	binary := filepath.Join(t.TempDir(), "shardlease")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	table, d := "leases-"+strings.ToLower(rand.Text()[:8]), new(dynamo)
	if err := d.Create(t.Context(), table, dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}); err != nil {
		t.Fatal(err)
	}
	store, err := d.Store(t.Context(), place{table, "orders"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := seeder{store: store, group: "orders", now: time.Now()}
	if err := s.run(fleet); err != nil {
		t.Fatal(err)
	}
	p := newPane(t, 100, 30, binary+" top --table "+table+" --group orders; echo exit code $?; cat")
	p.shows("orders  table "+table, "6 shards", "quarantined")
	s.now = time.Now()
	if err := s.run("beat a-1\nbeat b-1\nclaim free b-1 host-2"); err != nil {
		t.Fatal(err)
	}
	p.press("4")
	if screen := p.shows(`transfer    free`); strings.Contains(screen, "SDK ") {
		t.Errorf("the AWS SDK writes to the screen:\n%s", screen)
	}
	p.press("C-c")
	p.shows("exit code 0")
}

// TestTopLeavesNothingBehind: whatever ends top, no goroutine is left, and the end is no error.
func TestTopLeavesNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	for name, end := range map[string]func(keyboard io.Writer, stop func()){
		"q":           func(keyboard io.Writer, _ func()) { _, _ = io.WriteString(keyboard, "q") },
		"ctrl+c":      func(keyboard io.Writer, _ func()) { _, _ = io.WriteString(keyboard, "\x03") },
		"its context": func(_ io.Writer, stop func()) { stop() },
	} {
		w := newWorld()
		w.seeds(t, fleet)
		in, keyboard, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		out := &watched{text: "6 shards", seen: make(chan struct{})}
		empty := func(string) (string, bool) { return "", false }
		d := &display{&reader{&place{"leases", "orders"}, w.tables, empty, time.Now}, in, out}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- d.show(ctx, w.tables.link("leases"), time.Second, tea.WithWindowSize(80, 24))
		}()
		<-out.seen
		end(keyboard, stop)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		stop()
		_, _ = keyboard.Close(), in.Close()
		if err := goleak.Find(before); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A watched output reports when it has been given a text.
type watched struct {
	bytes.Buffer
	text string
	seen chan struct{}
	done bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if !w.done && bytes.Contains(w.Bytes(), []byte(w.text)) {
		w.done = true
		close(w.seen)
	}
	return n, err
}
