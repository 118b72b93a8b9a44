package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
)

// A verdict records what a server does to a test.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper() {}

func (v *verdict) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// verdictOf asks a server for its endpoint in a test that may be skipped or fail, and then stops the server.
func verdictOf(s *server) (endpoint string, v *verdict) {
	v = new(verdict)
	done := make(chan struct{})
	go func() {
		defer close(done)
		endpoint = s.need(v)
	}()
	<-done
	s.stop()
	return endpoint, v
}

// TestOnlyAMissingEngineSkips: a container that does not start fails the tests of a package. They may be skipped only
// if there is no Docker engine, and not even then if the server is required.
func TestOnlyAMissingEngineSkips(t *testing.T) {
	t.Setenv("DYNAMODB_ENDPOINT", "")
	for _, c := range []struct {
		required    string
		err         error
		skip, fail  bool
		description string
	}{
		{"", fmt.Errorf("%w: no socket", errNoEngine), true, false, "no engine"},
		{"1", fmt.Errorf("%w: no socket", errNoEngine), false, true, "no engine, although it is required"},
		{"", fmt.Errorf("start container: %w", context.DeadlineExceeded), false, true, "a slow container"},
		{"", errors.New("no such image"), false, true, "a container that cannot be started"},
	} {
		t.Setenv("SHARDLEASE_REQUIRE_DYNAMODB", c.required)
		_, v := verdictOf(&server{file: lockFile(t), begin: func(context.Context) (running, error) { return nil, c.err }})
		if (v.skipped != "") != c.skip || (v.failed != "") != c.fail || !strings.Contains(v.skipped+v.failed, c.err.Error()) {
			t.Errorf("%s: skipped %q, failed %q", c.description, v.skipped, v.failed)
		}
	}
}

// A stub is a container that counts how often it is ended.
type stub struct{ ended *int }

func (stub) PortEndpoint(context.Context, string, string) (string, error) { return "http://stub", nil }

func (s stub) Terminate(context.Context, ...testcontainers.TerminateOption) error {
	*s.ended++
	return nil
}

// TestTheLastPackageEndsTheServer: each server here stands for a package, whose tests are a process of their own.
func TestTheLastPackageEndsTheServer(t *testing.T) {
	t.Setenv("DYNAMODB_ENDPOINT", "")
	file, ended := lockFile(t), 0
	join := func() *server {
		return &server{file: file, begin: func(context.Context) (running, error) { return stub{&ended}, nil }}
	}
	first, second := join(), join()
	for _, s := range []*server{first, second} {
		if at := s.need(t); at != "http://stub" {
			t.Errorf("the server is at %q", at)
		}
	}
	first.stop()
	if ended != 0 {
		t.Error("a package has ended the server, although another one uses it")
	}
	second.stop()
	if ended != 1 {
		t.Errorf("the last package has ended the server %d times", ended)
	}
}

// TestPackageAlone: a package that needs the machine for itself waits for the others, and they wait for it.
func TestPackageAlone(t *testing.T) {
	file := lockFile(t)
	alone, other := &server{file: file, alone: true}, &server{file: file}
	if err := alone.enter(); err != nil {
		t.Fatal(err)
	}
	entered := make(chan error)
	go func() { entered <- other.enter() }()
	if mayOwn(t, file) {
		t.Error("another package can enter")
	}
	alone.stop()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	if mayOwn(t, file) {
		t.Error("another package can have the machine for itself")
	}
	other.stop()
	if !mayOwn(t, file) {
		t.Error("a package that has stopped keeps the lock")
	}
}

// mayOwn reports whether no package has a lock on the file.
func mayOwn(t *testing.T, file string) bool {
	t.Helper()
	l, err := newLock(file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	return l.last()
}

// lockFile returns a file to lock. It skips the test where files cannot be locked.
func lockFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := newLock(file)
	if err != nil {
		t.Fatal(err)
	}
	if l == nil {
		t.Skip("files cannot be locked here")
	}
	l.close()
	return file
}
