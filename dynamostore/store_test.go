package dynamostore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestStore runs the conformance suite on an imitation of DynamoDB that evaluates the
// expressions this package sends.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) lease.Store {
		s, _ := opened(t, 0)
		return s
	})
}

// TestStoreInBuckets runs it with the lease rows of every group in four buckets.
func TestStoreInBuckets(t *testing.T) {
	storetest.Run(t, func(t *testing.T) lease.Store {
		if strings.Contains(t.Name(), "/EveryWriteUnderEveryFate") && !fixture.Long() {
			t.Skip("a write concerns one row in one bucket: with SHARDLEASE_LONG=1")
		}
		f := newService(0)
		return f.open(t, f, Options{Group: "orders", Buckets: 4})
	})
}

// TestClientThatCannotSend: Open, OpenReader and CreateTable report at once that a client has no region
// or no credentials, or is nil. Open used to try for 2 s or more without a region or
// credentials, and to panic with a nil client.
func TestClientThatCannotSend(t *testing.T) {
	known := credentials.NewStaticCredentialsProvider("fake", "fake", "")
	failing := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no role")
	})
	for name, c := range map[string]struct {
		client *dynamodb.Client
		want   error
	}{
		"nil":                   {nil, ErrNoClient},
		"no region":             {dynamodb.New(dynamodb.Options{Credentials: known}), ErrNoRegion},
		"no credentials":        {dynamodb.New(dynamodb.Options{Region: "eu-central-1"}), ErrNoCredentials},
		"anonymous":             {dynamodb.New(dynamodb.Options{Region: "eu-central-1", Credentials: aws.AnonymousCredentials{}}), ErrNoCredentials},
		"credentials that fail": {dynamodb.New(dynamodb.Options{Region: "eu-central-1", Credentials: failing}), ErrNoCredentials},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			if _, err := Open(t.Context(), c.client, "leases", Options{}); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := OpenReader(t.Context(), c.client, "leases", Options{}); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if err := CreateTable(t.Context(), c.client, "leases", TableOptions{}); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("%s: only after %v", name, took)
			}
		})
	}
	if _, err := Open(t.Context(), dynamodb.New(dynamodb.Options{}), "", Options{}); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("no table: %v", err)
	}
}
