package effects_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
)

// TestConnect: the client validates checksums, except those of a DynamoDB Local. The tests of the sink are in
// examples/dynamodbstreams, because they need a server.
func TestConnect(t *testing.T) {
	for endpoint, quiet := range map[string]bool{"": false, "http://localhost:8000": true, "https://dynamodb.example.com": false} {
		t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
		sdk, err := config.LoadDefaultConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if o := effects.Connect(sdk).Options(); o.DisableValidateResponseChecksum != quiet {
			t.Errorf("%q: checksums are validated: %v", endpoint, !o.DisableValidateResponseChecksum)
		}
	}
}
