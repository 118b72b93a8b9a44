package stream_test

import (
	"github.com/aws/smithy-go"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A fake is a server with one stream.
type fake struct {
	*kinesistest.Server
	*kinesistest.Stream
}

// newFake returns a server whose stream has these shards.
func newFake(shards ...kinesistest.Shard) *fake {
	f := &fake{Server: kinesistest.New()}
	f.recreate(shards...)
	return f
}

// recreate replaces the stream by another one of its name.
func (f *fake) recreate(shards ...kinesistest.Shard) {
	f.Stream = f.Create("orders", 0)
	f.Add(shards...)
}

// code returns an error of Kinesis.
func code(code string) error { return &smithy.GenericAPIError{Code: code} }
