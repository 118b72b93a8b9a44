package local

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Image is pinned. provide-image builds the same image if it cannot be pulled.
const Image = "amazon/dynamodb-local:3.3.1"

// patience is how long a container may need to start. That includes the pull of the image, and a busy machine.
// It is shorter than the 10 minutes that go test waits for a package.
const patience = 4 * time.Minute

// quickStart lets Java run without its optimizing compiler, which would occupy a core for most of the minute that the
// server lives. The server then needs 79 s of processor time for all tests of the store instead of 108 s, and 4 s for its
// start instead of 9 s.
const quickStart = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// errNoEngine means that there is no Docker engine. The test is then skipped. If there is an engine, every other
// error is a failure: a package must not pass because its server was slow.
var errNoEngine = errors.New("no Docker engine")

// A server is the DynamoDB Local that the packages of a working copy share; each test has a table of its own. The first
// package starts the container, and the last one that uses the container ends it. A package that was killed leaves the
// container behind: the next package finds it by its name, uses it and ends it.
type server struct {
	file  string                                 // the packages lock it
	begin func(context.Context) (running, error) // begins or finds the container

	once     sync.Once
	alone    bool // no other package may run beside this one
	lock     *lock
	running  running
	endpoint string
	why      error // why there is no server
}

// running is what a server needs of a container.
type running interface {
	PortEndpoint(ctx context.Context, port, scheme string) (string, error)
	Terminate(ctx context.Context, options ...testcontainers.TerminateOption) error
}

func (s *server) start() {
	if s.why = s.enter(); s.why != nil {
		return
	}
	if s.endpoint = os.Getenv("DYNAMODB_ENDPOINT"); s.endpoint != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.running, s.why = s.begin(ctx); s.why == nil {
		s.endpoint, s.why = s.running.PortEndpoint(ctx, "8000/tcp", "http")
	}
}

// enter takes the lock. A package that needs the machine for itself waits until no other package has the lock, and other
// packages wait for such a package.
func (s *server) enter() (err error) {
	if s.lock, err = newLock(s.file); err != nil {
		return err
	}
	if s.alone {
		return s.lock.own()
	}
	return s.lock.share()
}

// stop ends the container if no other package uses it, also if the server never answered.
func (s *server) stop() {
	if s.lock == nil {
		return
	}
	defer s.lock.close()
	if s.running == nil || !s.lock.last() {
		return
	}
	if err := s.running.Terminate(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "the container stays behind:", err)
	}
}

// need skips the test if there is no Docker engine, and fails it if an engine cannot start the server.
func (s *server) need(t testing.TB) string {
	t.Helper()
	s.once.Do(s.start)
	const advice = "no DynamoDB Local: set DYNAMODB_ENDPOINT, or start a Docker engine that has or can pull " + Image + " (%v)"
	switch {
	case s.why == nil:
	case errors.Is(s.why, errNoEngine) && os.Getenv("SHARDLEASE_REQUIRE_DYNAMODB") != "1":
		t.Skipf(advice, s.why)
	default:
		t.Fatalf(advice, s.why)
	}
	return s.endpoint
}

// container starts the container of this working copy, or finds it. It disables Ryuk, the clean-up of testcontainers:
// Ryuk would end the container with the run of go test that started it, although another run may use it.
func container(ctx context.Context) (running, error) {
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return nil, err
	}
	provider, err := testcontainers.ProviderDocker.GetProvider()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoEngine, err)
	}
	_ = provider.Close()
	name, err := name()
	if err != nil {
		return nil, err
	}
	c, err := testcontainers.Run(ctx, Image,
		testcontainers.WithReuseByName(name),
		testcontainers.WithExposedPorts("8000/tcp"),
		testcontainers.WithEnv(map[string]string{"JAVA_TOOL_OPTIONS": quickStart}),
		testcontainers.WithWaitStrategyAndDeadline(patience,
			wait.ForHTTP("/").WithPort("8000/tcp").WithStatusCodeMatcher(answers).WithStartupTimeout(patience)))
	if c == nil { // testcontainers keeps a container that was there before and does not answer
		return stale(name), err
	}
	return c, err
}

// stale is the name of a container that a killed run may have left behind, and that does not answer.
type stale string

func (s stale) PortEndpoint(context.Context, string, string) (string, error) {
	return "", fmt.Errorf("the container %s does not answer", string(s))
}

// Terminate removes the container, so that the next run starts another.
func (s stale) Terminate(ctx context.Context, _ ...testcontainers.TerminateOption) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	_, err = docker.ContainerRemove(ctx, string(s), client.ContainerRemoveOptions{Force: true})
	return err
}

// name returns the name of the container. Each working copy and each image has a name of its own, so that no working copy
// waits for another, or fails because the other's branch uses another image.
func name() (string, error) {
	dir, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, dir, Image)
	return fmt.Sprintf("shardlease-dynamodb-local-%x", h.Sum64()), nil
}

// answers accepts any status, because DynamoDB Local answers a bare GET with 400.
func answers(int) bool { return true }
