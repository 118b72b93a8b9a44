package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
	"go.uber.org/goleak"
)

// image is pinned; provide-image builds the same where it cannot be pulled.
const image = "amazon/dynamodb-local:3.3.1"

func TestMain(m *testing.M) {
	code := m.Run()
	server.stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// server is the one DynamoDB Local that all tests of a run share; each test has
// a table of its own.
var server local

type local struct {
	once      sync.Once
	endpoint  string
	why       error // why there is none
	container testcontainers.Container
}

func (l *local) start() {
	if l.endpoint = os.Getenv("DYNAMODB_ENDPOINT"); l.endpoint != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l.container, l.why = testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts("8000/tcp"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/").WithPort("8000/tcp").WithStatusCodeMatcher(answers)))
	if l.why == nil {
		l.endpoint, l.why = l.container.PortEndpoint(ctx, "8000/tcp", "http")
	}
}

// answers: it says 400 to whoever only asks for a page.
func answers(int) bool { return true }

func (l *local) stop() {
	if l.container != nil {
		if err := l.container.Terminate(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "the container stays behind:", err)
		}
	}
}

// endpoint gives the server's address, or skips the test.
func endpoint(t *testing.T) string {
	t.Helper()
	server.once.Do(server.start)
	if server.why != nil {
		const skip = "no DynamoDB Local: set DYNAMODB_ENDPOINT or start Docker to run the DynamoDB tests (%v)"
		if os.Getenv("SHARDLEASE_REQUIRE_DYNAMODB") == "1" {
			t.Fatalf(skip, server.why)
		}
		t.Skipf(skip, server.why)
	}
	return server.endpoint
}

// newClient is a client over a transport; nil is the network as it is.
func newClient(t *testing.T, through func(http.RoundTripper) http.RoundTripper) *dynamodb.Client {
	t.Helper()
	plain := &http.Transport{}
	t.Cleanup(plain.CloseIdleConnections)
	var transport http.RoundTripper = plain
	if through != nil {
		transport = through(plain)
	}
	return dynamodb.New(dynamodb.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(endpoint(t)),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:   &http.Client{Transport: transport},
	})
}

// newTable makes a lease table of its own for a test.
func newTable(t *testing.T) string {
	t.Helper()
	table := "leases-" + rand.Text()
	err := dynamostore.CreateTable(t.Context(), newClient(t, nil), table, dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func open(t *testing.T, client *dynamodb.Client, table string) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.Open(t.Context(), client, table, dynamostore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
