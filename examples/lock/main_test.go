//go:build darwin || linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/examples/internal/ledger"
	"github.com/shardlease/shardlease-go/examples/internal/process"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

func TestMain(m *testing.M) {
	process.Main(m, map[string]func(){"lock": main, "program": program})
}

// program is what lock runs in these tests: for each line of its standard input it makes an effect at a
// sink, under the token of its environment. It has no context that could end.
func program() {
	fmt.Printf("program %d starts\n", os.Getpid())
	header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(os.Getenv("SHARDLEASE_FENCE") + "\n\n"))).ReadMIMEHeader()
	if err != nil {
		panic(err)
	}
	if token, err := fence.Parse(http.Header(header).Values); err != nil || strconv.FormatInt(token.Generation, 10) != os.Getenv("SHARDLEASE_GENERATION") {
		panic(fmt.Sprint(token, err))
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		request, err := http.NewRequest(http.MethodPut, os.Args[1]+lines.Text(), nil)
		if err != nil {
			panic(err)
		}
		request.Header = http.Header(header)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(err)
		}
		fmt.Println(lines.Text(), response.StatusCode)
	}
}

// A bench starts locks on one lease table. Tests with a bench run beside each other, because they mostly wait.
type bench struct {
	*testing.T
	leases []string
	file   string
}

func newBench(t *testing.T) *bench {
	leases, file := process.Table(t)
	return &bench{t, append(leases, "-ttl", process.Time(time.Second).String(), "-lock-delay", "0s"), file}
}

// command returns the arguments of a lock.
func (b *bench) command(flags string, program ...string) []string {
	return slices.Concat(b.leases, strings.Fields(flags), []string{"nightly", "--"}, program)
}

func (b *bench) start(flags string, program ...string) *process.Process {
	b.Helper()
	return process.Start(b, "lock", b.command(flags, program...)...)
}

// run runs a lock until it ends.
func (b *bench) run(flags string, program ...string) (stdout, stderr string, code int) {
	b.Helper()
	line := process.Command("lock", b.command(flags, program...)...)
	cmd := exec.CommandContext(b.Context(), line[0], line[1:]...)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	_ = cmd.Run()
	return out.String(), messages.String(), cmd.ProcessState.ExitCode()
}

// sh returns a program of the shell.
func sh(script string) []string { return []string{"sh", "-c", script} }

// TestPausedLockIsReplaced: a lock is paused, while its program is not. Another lock gets the lease, and
// then the sink refuses the first program, which cannot know that it was replaced. The first lock wakes up and
// stops its program.
func TestPausedLockIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var sink ledger.Ledger
	url := process.NewNetwork(t, &sink, "").URL
	first := b.start("", process.Command("program", url)...)
	first.Await(`program \d+ starts`)
	fmt.Fprintln(first.Stdin, "/1")
	first.Await("/1 200")

	first.Pause(b.file)
	second := b.start("-wait -1s", process.Command("program", url)...)
	second.Await(`program \d+ starts`)
	fmt.Fprintln(second.Stdin, "/2")
	second.Await("/2 200")
	fmt.Fprintln(first.Stdin, "/3")
	first.Await("/3 412")

	first.Signal(syscall.SIGCONT)
	if code := first.Wait(); code != exitLost {
		t.Errorf("the first lock ended with code %d", code)
	}
	first.Await(`lock: the lease "nightly" is lost, the program is stopped: .*`)
	second.Signal(syscall.SIGTERM)
	if code := second.Wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("the second lock ended with code %d", code)
	}
	if effects := sink.Effects(); len(effects) != 2 || effects[0].Token.Generation >= effects[1].Token.Generation {
		t.Errorf("effects: %v", effects)
	}
}

// TestHeld: a lock that does not get the lease prints who holds the lease, since when and for which task.
func TestHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.start("-task backup-7", sh("echo runs; read line")...)
	first.Await("runs")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range []string{"-wait 0s", "-wait 200ms"} {
		out, messages, code := b.run(flags, "echo", "never")
		message := regexp.MustCompile(`lock: lease "nightly" is held by .*` + regexp.QuoteMeta(host) + `.*backup-7.* since 20\d\d-.*\n$`)
		if out != "" || code != exitHeld || !message.MatchString(messages) {
			t.Errorf("%s: code %d, output %q, message %q", flags, code, out, messages)
		}
	}
	fmt.Fprintln(first.Stdin)
	if code := first.Wait(); code != 0 {
		t.Errorf("the first lock ended with code %d", code)
	}
}

// TestExitCodes: lock passes on the output and the exit code of a program, and releases the lease.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program     []string
		out, errors string // errors is a pattern
		code        int
	}{
		{sh("echo out; echo err >&2; exit 7"), "out\n", "err\n", 7},
		{sh("printf 'no line end'"), "no line end", "", 0},
		{sh("kill -USR1 $$"), "", "", 128 + int(syscall.SIGUSR1)},
		{[]string{plain}, "", "lock: .*permission denied\n", exitCannotRun},
		{[]string{"there-is-no-such-program"}, "", "lock: .*not found.*\n", exitNotFound},
		{[]string{"/there/is/no/such/program"}, "", "lock: .*no such file.*\n", exitNotFound},
		{nil, "", "lock: the arguments must be NAME -- PROGRAM .*\n", exitFailed},
	} {
		out, messages, code := b.run("-wait 0s", c.program...)
		if out != c.out || code != c.code || !regexp.MustCompile("^"+c.errors+"$").MatchString(messages) {
			t.Errorf("%q: code %d, output %q, %q", c.program, code, out, messages)
		}
	}
}

// TestUnusableFile: a mistyped path is reported at once, and not after the time to wait.
func TestUnusableFile(t *testing.T) {
	folder := t.TempDir()
	for path, want := range map[string]string{filepath.Join(folder, "none", "leases"): "no such file", folder: "is a directory"} {
		code, err := run([]string{"-file", path, "-wait", "1m", "deploy", "--", "true"})
		if code != exitFailed || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "deadline") {
			t.Errorf("%s: code %d, %v", path, code, err)
		}
	}
}

// TestSettings: a variable sets a flag, and the flag on the command line wins.
func TestSettings(t *testing.T) {
	t.Setenv("SHARDLEASE_LOCK_DELAY", "3s")
	t.Setenv("SHARDLEASE_GROUP", "other")
	l, err := parse([]string{"-group", "mine", "a", "--", "b", "-c"})
	if err != nil || l.config.Group != "mine" || l.config.LockDelay.String() != "3s" || !slices.Equal(l.program, []string{"b", "-c"}) {
		t.Errorf("%+v, %v", l, err)
	}
	t.Setenv("SHARDLEASE_TTL", "soon")
	if _, err := parse([]string{"a", "--", "b"}); err == nil || !strings.Contains(err.Error(), "SHARDLEASE_TTL") {
		t.Error(err)
	}
}

// TestSignalsAreForwarded: the program decides what a signal means, and the lease is held until it ends.
func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start("", sh("trap 'echo stopping; read line; exit 3' TERM; trap 'echo reloading' USR1; echo runs; while :; do sleep 0.02; done")...)
	p.Await("runs")
	p.Signal(syscall.SIGUSR1) // nohup ignores SIGHUP
	p.Await("reloading")
	p.Signal(syscall.SIGTERM)
	p.Await("stopping")
	if _, _, code := b.run("-wait 0s", "true"); code != exitHeld {
		t.Errorf("code %d while the program is stopping", code)
	}
	fmt.Fprintln(p.Stdin)
	if code := p.Wait(); code != 3 {
		t.Errorf("lock ended with code %d", code)
	}
	if _, messages, code := b.run("-wait 0s", "true"); code != 0 {
		t.Errorf("code %d after the program has ended: %s", code, messages)
	}
}

// TestLostLease: when an operator releases the lease, lock stops the program. It kills each process of the
// program's group that does not end: the program itself, or one that the program leaves behind.
func TestLostLease(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"stubborn program": "trap '' TERM; sleep 600 & echo child $!; while :; do sleep 0.02; done",
		"stubborn child":   "(trap '' TERM; while :; do sleep 0.02; done) & echo child $!; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			p := b.start("-grace 100ms", sh(script)...)
			child, err := strconv.Atoi(p.Await(`child (\d+)`)[1])
			if err != nil {
				t.Fatal(err)
			}
			b.release("it hangs")
			if code := p.Wait(); code != exitLost || !strings.Contains(p.Output(), "an operator took") {
				t.Errorf("code %d: %s", code, p.Output())
			}
			process.Until(t, "the end of the child", func() bool { return gone(child) })
		})
	}
}

// release releases the lease, as an operator does.
func (b *bench) release(why string) {
	b.Helper()
	l, err := parse(b.command("", "true"))
	if err != nil {
		b.Fatal(err)
	}
	store, err := l.leases.Open(b.Context(), l.config.Group)
	if err != nil {
		b.Fatal(err)
	}
	s := shardlease.Supervisor{Store: store, Group: l.config.Group, By: "ann"}
	row, err := s.Get(b.Context(), "nightly")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.ForceRelease(b.Context(), "nightly", row.Generation, why); err != nil {
		b.Fatal(err)
	}
}

// TestKilledLock: when lock is killed, Linux kills the program, and a lock that waits gets the lease.
func TestKilledLock(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the program")
	}
	b := newBench(t)
	p := b.start("", sh("echo program $$; while :; do sleep 0.02; done")...)
	pid, err := strconv.Atoi(p.Await(`program (\d+)`)[1])
	if err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGKILL)
	process.Until(t, "the end of the program", func() bool { return gone(pid) })
	if out, messages, code := b.run("-wait -1s", "echo", "mine"); out != "mine\n" || code != 0 {
		t.Errorf("code %d, %q", code, messages)
	}
}

// TestLocksThatOnlyAskReplaceTheDead: lock is killed. Of the locks that only ask, each in a process of its own, the
// second one at the latest gets the lease.
func TestLocksThatOnlyAskReplaceTheDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start("-lock-delay 500ms", sh("echo runs; read line")...)
	p.Await("runs")
	if _, messages, code := b.run("-wait 0s", "true"); code != exitHeld {
		t.Errorf("beside a holder: code %d, %q", code, messages)
	}
	p.Signal(syscall.SIGKILL)
	p.Wait()
	_, messages, code := b.run("-wait 0s", "true")
	if code == exitHeld { // the last heartbeat was too new
		time.Sleep(process.Time(1250 * time.Millisecond))
		_, messages, code = b.run("-wait 0s", "true")
	}
	if code != 0 {
		t.Errorf("code %d, %q", code, messages)
	}
}

// gone reports whether a process has ended. Until its new parent has collected it, it is a zombie.
func gone(pid int) bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // on Linux
	return syscall.Kill(pid, 0) != nil || err == nil && bytes.Contains(state, []byte(") Z "))
}
