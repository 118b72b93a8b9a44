// Package local provides tests with a DynamoDB Local: the one at DYNAMODB_ENDPOINT, or one in a
// container that the packages of integration share. Without a Docker engine the test skips, or
// fails if SHARDLEASE_REQUIRE_DYNAMODB is 1.
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"go.uber.org/goleak"
)

// shared is the server as this process sees it: the tests of one package, in a folder beside the folder internal.
var shared = server{file: "../internal/local/local.go", begin: container}

// Main runs the tests of a package, ends the server if no other package uses it, and reports goroutines that are left.
func Main(m *testing.M) {
	if !shared.alone {
		fixture.SideBySide(16)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		if _, ok := <-interrupted; ok {
			shared.stop()
			os.Exit(1)
		}
	}()
	code := m.Run()
	signal.Stop(interrupted)
	close(interrupted)
	shared.stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// MainInRealTime is Main for a package with bounds in real time. Only long tests check these bounds (fixture.Long), and
// then no other package runs beside this one.
func MainInRealTime(m *testing.M) {
	shared.alone = fixture.Long()
	Main(m)
}

// Endpoint returns the address of the server. It skips the test if there is neither DYNAMODB_ENDPOINT nor a Docker
// engine, and fails it if the engine cannot start the server.
func Endpoint(t testing.TB) string {
	t.Helper()
	return shared.need(t)
}

// Beside lets a test run beside others of its package, except in a package that has the machine for itself, because the
// others would make it late. It pays for tests that mostly wait. Like Endpoint, it may skip or fail the test.
func Beside(t *testing.T) {
	t.Helper()
	Endpoint(t)
	if !shared.alone {
		t.Parallel()
	}
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

// Table creates a lease table for one test, and deletes it afterwards: the server has all tables in its memory.
func Table(t *testing.T) string {
	t.Helper()
	table, client := "leases-"+rand.Text(), Client(t, nil)
	deleteAfter(t, client, table)
	err := dynamostore.CreateTable(t.Context(), client, table, dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true})
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
	client := Client(t, nil)
	deleteAfter(t, client, table)
	if _, err := client.CreateTable(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	return table
}

// deleteAfter deletes a table at the end of the test, if it exists then.
func deleteAfter(t *testing.T, client *dynamodb.Client, table string) {
	t.Cleanup(func() {
		_, _ = client.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: &table})
	})
}

// Open opens a lease table; without options, with the defaults. A call may take longer than by default, because the
// machine may be busy, and a write that is repeated after a late reply is refused.
func Open(t *testing.T, client *dynamodb.Client, table string, options ...dynamostore.Options) *dynamostore.Store {
	t.Helper()
	o := append(options, dynamostore.Options{})[0]
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	s, err := dynamostore.Open(t.Context(), client, table, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
