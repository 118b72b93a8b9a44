package guides

import (
	"net/http"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// TestCopyableHelper runs the helper that docs/testing.md offers to copy.
func TestCopyableHelper(t *testing.T) {
	if os.Getenv("DYNAMODB_ENDPOINT") != "" {
		t.Skip("this test starts its own container, but DYNAMODB_ENDPOINT is set")
	}
	local.Beside(t) // skips the test if there is no Docker
	t.Cleanup(func() {
		if t.Skipped() && os.Getenv("SHARDLEASE_REQUIRE_DYNAMODB") == "1" {
			t.Error("the helper skipped the test although SHARDLEASE_REQUIRE_DYNAMODB is 1")
		}
	})
	client := dynamoDBLocal(t)
	err := dynamostore.CreateTable(t.Context(), client, "leases", dynamostore.TableOptions{NoPointInTimeRecovery: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := dynamostore.Open(t.Context(), client, "leases", dynamostore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(t.Context())
	if err != nil || len(rows) > 0 {
		t.Errorf("%v, %v", rows, err)
	}
}

// dynamoDBLocal starts a DynamoDB Local for one test, and returns a client for it.
func dynamoDBLocal(t *testing.T) *dynamodb.Client {
	t.Helper()
	server, err := testcontainers.Run(t.Context(), "amazon/dynamodb-local:3.3.1",
		testcontainers.WithExposedPorts("8000/tcp"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/").WithPort("8000/tcp").WithStatusCodeMatcher(func(int) bool { return true })))
	testcontainers.CleanupContainer(t, server)
	if err != nil {
		t.Skipf("no container: %v", err)
	}
	endpoint, err := server.PortEndpoint(t.Context(), "8000/tcp", "http")
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport) // the default one keeps connections, which leak detectors find
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:   &http.Client{Transport: transport},
	})
}
