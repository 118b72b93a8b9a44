package kinesis_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestPoliciesAreThoseOfTheProbe: the statements that a probe prints when everything is denied have the actions and the kinds
// of resources of the policies in docs/iam.md.
func TestPoliciesAreThoseOfTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kinesistest.New()
		orders := server.Create("orders", 1)
		registered, err := server.Client().RegisterStreamConsumer(t.Context(), &awskinesis.RegisterStreamConsumerInput{StreamARN: new(orders.ARN()), ConsumerName: new("g")})
		if err != nil {
			t.Fatal(err)
		}
		probed := map[string][]string{}
		server.Intercept = func(c kinesistest.Call) error { return &smithy.GenericAPIError{Code: "AccessDeniedException"} }
		err = (&stream.Stream{Client: server.Client(), Name: orders.ARN()}).Probe(t.Context(), *registered.Consumer.ConsumerARN)
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatal(err)
		}
		for _, one := range joined.Unwrap() {
			denied, ok := errors.AsType[*kinesis.DeniedError](one)
			if !ok {
				t.Fatal(one)
			}
			probed[kindOf(denied.Resource)] = denied.Actions
		}
		for sid, kind := range map[string]string{"ReadTheStream": "stream", "SubscribeToShards": "consumer"} {
			actions, resource := policy(t, sid)
			if kindOf(resource) != kind || !slices.Equal(actions, probed[kind]) {
				t.Errorf("%s allows %v on a %s; the probe needs %v", sid, actions, kindOf(resource), probed[kind])
			}
		}
	})
}

// kindOf returns what an ARN is that of.
func kindOf(arn string) string {
	if strings.Contains(arn, "/consumer/") {
		return "consumer"
	}
	return "stream"
}

// policy returns the actions and the resource of a statement in docs/iam.md.
func policy(t *testing.T, sid string) (actions []string, resource string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/iam.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), `"Sid": "`+sid+`",`)
	statement, _, _ := strings.Cut(rest, "}")
	var read struct {
		Action   any
		Resource string
	}
	if err := json.Unmarshal([]byte("{"+statement+"}"), &read); err != nil || !found {
		t.Fatalf("docs/iam.md has no statement %s: %v", sid, err)
	}
	switch a := read.Action.(type) {
	case string:
		return []string{a}, read.Resource
	case []any:
		for _, one := range a {
			actions = append(actions, one.(string))
		}
	}
	return actions, read.Resource
}
