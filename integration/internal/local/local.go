// Package local provides tests with a DynamoDB Local: the one at DYNAMODB_ENDPOINT, or one in a
// container that it starts. Without either the test skips, or fails if
// SHARDLEASE_REQUIRE_DYNAMODB is 1.
package local

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
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
	"go.uber.org/goleak"
)

// Image is pinned. provide-image builds the same image if it cannot be pulled.
const Image = "amazon/dynamodb-local:3.3.1"

// Main runs the tests of a room, stops the server, and reports goroutines that are left.
func Main(m *testing.M) {
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

// server is the DynamoDB Local that all tests of a room share; each test has a table of its own.
// Rooms use their servers one after the other: go test runs packages side by side, and tests in
// real time need the whole machine.
var server container

type container struct {
	once     sync.Once
	endpoint string
	why      error // why there is no server
	running  testcontainers.Container
	end      func() // ends the turn of this room
}

func (c *container) start() {
	if c.end, c.why = takeTurn(); c.why != nil {
		return
	}
	if c.endpoint = os.Getenv("DYNAMODB_ENDPOINT"); c.endpoint != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c.running, c.why = testcontainers.Run(ctx, Image,
		testcontainers.WithExposedPorts("8000/tcp"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/").WithPort("8000/tcp").WithStatusCodeMatcher(answers)))
	if c.why == nil {
		c.endpoint, c.why = c.running.PortEndpoint(ctx, "8000/tcp", "http")
	}
}

// answers accepts any status, because DynamoDB Local answers a bare GET with 400.
func answers(int) bool { return true }

func (c *container) stop() {
	if c.running != nil {
		if err := c.running.Terminate(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "the container stays behind:", err)
		}
	}
	if c.end != nil {
		c.end()
	}
}

// Endpoint returns the address of the server, or skips the test.
func Endpoint(t *testing.T) string {
	t.Helper()
	server.once.Do(server.start)
	if server.why != nil {
		const skip = "no DynamoDB Local: %v (set DYNAMODB_ENDPOINT, or start a Docker engine that has or can pull " + Image +
			" and the image testcontainers/ryuk; TESTCONTAINERS_RYUK_DISABLED=true does without the second)"
		if os.Getenv("SHARDLEASE_REQUIRE_DYNAMODB") == "1" {
			t.Fatalf(skip, server.why)
		}
		t.Skipf(skip, server.why)
	}
	return server.endpoint
}

// Client returns a client whose requests go through a transport; nil adds none.
func Client(t *testing.T, through func(http.RoundTripper) http.RoundTripper) *dynamodb.Client {
	t.Helper()
	plain := &http.Transport{}
	t.Cleanup(plain.CloseIdleConnections)
	var transport http.RoundTripper = plain
	if through != nil {
		transport = through(plain)
	}
	return NewClient(Endpoint(t), transport)
}

// NewClient returns a client of the server at that address.
func NewClient(endpoint string, transport http.RoundTripper) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:   &http.Client{Transport: transport},
	})
}

// Table creates a lease table for one test.
func Table(t *testing.T) string {
	t.Helper()
	table := "leases-" + rand.Text()
	err := dynamostore.CreateTable(t.Context(), Client(t, nil), table, dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// OtherTable creates a table that is no lease table.
func OtherTable(t *testing.T, keys ...string) string {
	t.Helper()
	table := "other-" + rand.Text()
	input := &dynamodb.CreateTableInput{TableName: &table, BillingMode: types.BillingModePayPerRequest}
	for i, key := range keys {
		input.AttributeDefinitions = append(input.AttributeDefinitions, types.AttributeDefinition{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS})
		role := types.KeyTypeHash
		if i > 0 {
			role = types.KeyTypeRange
		}
		input.KeySchema = append(input.KeySchema, types.KeySchemaElement{AttributeName: &key, KeyType: role})
	}
	if _, err := Client(t, nil).CreateTable(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	return table
}

// Open opens a lease table; without options, with the defaults.
func Open(t *testing.T, client *dynamodb.Client, table string, options ...dynamostore.Options) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.Open(t.Context(), client, table, append(options, dynamostore.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return s
}
