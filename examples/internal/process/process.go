//go:build darwin || linux

// Package process runs the program under test in processes of their own, and pauses and continues them.
package process

import (
	"bytes"
	"crypto/rand"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// variable is set in the processes that Start starts. Its value is the name of their main function.
const variable = "SHARDLEASE_EXAMPLE_PROCESS"

// endpoint is the variable that names a DynamoDB Local.
const endpoint = "DYNAMODB_ENDPOINT"

// patience is how long Await waits. It is long because a loaded machine is slow; a test that passes
// waits only for as long as it has to.
const patience = 3 * time.Minute

// Main is for TestMain. In a process that Start has started it calls a main function, and otherwise it
// runs the tests. The arguments are those of Start.
func Main(m *testing.M, mains map[string]func()) {
	if main, ok := mains[os.Getenv(variable)]; ok {
		os.Unsetenv(variable)
		main()
		os.Exit(0)
	}
	if endpoint := os.Getenv(endpoint); endpoint != "" { // set here, because a parallel test cannot call t.Setenv
		for name, value := range map[string]string{
			"AWS_ENDPOINT_URL_DYNAMODB": endpoint, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local",
		} {
			os.Setenv(name, value)
		}
	}
	_ = flag.Set("test.parallel", "16") // parallel tests wait for processes, also on a machine of few cores
	os.Exit(m.Run())
}

// Table returns the flags that name an empty lease table. If DYNAMODB_ENDPOINT is set, that is a table of
// that DynamoDB Local, and the path is empty. Otherwise it is a file, and Table also returns its path.
func Table(t *testing.T) (flags []string, file string) {
	t.Helper()
	if os.Getenv(endpoint) == "" {
		file = filepath.Join(t.TempDir(), "leases")
		return []string{"-file", file}, file
	}
	return []string{"-table", "leases-" + rand.Text()}, ""
}

// Time returns d if the table is a file, and twice d on DynamoDB Local, which other tests keep busy.
func Time(d time.Duration) time.Duration {
	if os.Getenv(endpoint) != "" {
		return 2 * d
	}
	return d
}

// A Process is a process of a test.
type Process struct {
	Stdin io.Writer
	Pid   int

	t      testing.TB
	name   string
	cmd    *exec.Cmd
	output output
	ended  chan struct{}
}

// Start starts a process with a main function that Main knows, and kills it at the end of the test.
func Start(t testing.TB, main string, args ...string) *Process {
	t.Helper()
	return start(t, main, Command(main, args...))
}

// Command returns a command line that runs a main function.
func Command(main string, args ...string) []string {
	return append([]string{"/usr/bin/env", variable + "=" + main, os.Args[0]}, args...)
}

func start(t testing.TB, name string, command []string) *Process {
	t.Helper()
	p := &Process{t: t, name: name, cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = leash()
	p.cmd.WaitDelay = time.Second // a process that p left behind may hold its output
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin = stdin
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the leash is tied to the thread that starts the process
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	p.Pid = p.cmd.Process.Pid
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, p.output.String())
		}
	})
	return p
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v to %s: %v", s, p.name, err)
	}
}

// Pause stops the process with SIGSTOP, and returns when the process is stopped. If the stopped process holds
// the lock of the file with the leases, no other process can write. Then Pause lets it continue and tries
// again. DynamoDB has no such lock.
func (p *Process) Pause(file string) {
	p.t.Helper()
	for {
		p.Signal(syscall.SIGSTOP)
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		for errors.Is(err, syscall.EINTR) {
			_, err = syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		}
		if err != nil || !status.Stopped() {
			p.t.Fatalf("%s is not stopped but %v: %v", p.name, status, err)
		}
		if free(file + ".lock") {
			return
		}
		p.Signal(syscall.SIGCONT)
		time.Sleep(time.Millisecond)
	}
}

// free reports whether no process holds the lock of a file.
func free(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true // there is no such file, because nobody has written yet or the leases are in a table
	}
	defer f.Close() // this releases the lock
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// Await waits until the output has a line that matches a pattern, and returns its submatches.
func (p *Process) Await(pattern string) []string {
	p.t.Helper()
	expression := regexp.MustCompile("(?m)^" + pattern + "$")
	var found []string
	Until(p.t, p.name+" to print "+pattern, func() bool {
		found = expression.FindStringSubmatch(p.output.String())
		return found != nil
	})
	return found
}

// Output returns what the process has printed so far.
func (p *Process) Output() string { return p.output.String() }

// Wait waits until the process has ended, and returns its exit code: -1 if a signal ended it.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Until waits until a condition holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// An output collects what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
