package fences3_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fences3"
)

// A worker writes a report under a name that contains the generation, and then publishes it.
func ExampleRegister() {
	var client *s3.Client // s3.NewFromConfig(…)
	pointers := &fences3.Register{Client: client, Bucket: "reports", Prefix: "current/"}
	_ = func(_ context.Context, t *shardlease.Tenure) error {
		report := fmt.Sprintf("%s-%d-%d", t.Shard().Name, t.Generation(), 17) // uploaded before
		return pointers.Put(t.Context(), t.Shard().Name, t.Generation(), report)
	}
}
