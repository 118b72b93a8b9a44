package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/internal/takeover"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestTransactionsAreFenced: the sink accepts an order from the present owner of the lease row only.
func TestTransactionsAreFenced(t *testing.T) {
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	s := &sink{client: connect(local(t), transport)}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.drop(context.Background()) })
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		o := owners{store: s.store, rows: map[string]lease.Row{}, holds: map[fencetest.Fence]lease.Hold{}}
		return fencetest.Sink{
			Grant: o.grant,
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				return s.put(ctx, o.hold(f), f.Shard, string(effect), t.Pause)
			},
			Effects: s.text,
			Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
		}
	})
}

// text returns the text of the only order of a shard.
func (s *sink) text(ctx context.Context, shard string) ([][]byte, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.orders, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: shard}},
	})
	if err != nil || out.Item == nil {
		return nil, err
	}
	text, _ := out.Item["text"].(*types.AttributeValueMemberS)
	return [][]byte{[]byte(text.Value)}, nil
}

// owners changes the owners of lease rows, as workers do.
type owners struct {
	store lease.Store
	mu    sync.Mutex
	rows  map[string]lease.Row // by shard: the present row
	holds map[fencetest.Fence]lease.Hold
}

func (o *owners) grant(ctx context.Context, shard, owner string) (fencetest.Fence, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	row, exists := o.rows[shard]
	if !exists {
		var err error
		if row, err = o.write(ctx)(protocol.Begin(takeover.Group, shard, nil, "source", fixture.Stamp())); err != nil {
			return fencetest.Fence{}, err
		}
	}
	change := protocol.Claim
	if exists {
		change = protocol.Recover
	}
	row, err := o.write(ctx)(change(row, fixture.Worker(owner), fixture.Stamp()))
	if err != nil {
		return fencetest.Fence{}, err
	}
	f := fencetest.Fence{Shard: shard, Owner: owner, Generation: row.Generation}
	o.rows[shard], o.holds[f] = row, fixture.Hold(row)
	return f, nil
}

func (o *owners) write(ctx context.Context) func(lease.Write, error) (lease.Row, error) {
	return func(w lease.Write, err error) (lease.Row, error) {
		if err != nil {
			return lease.Row{}, err
		}
		r, err := o.store.Write(ctx, w)
		if verdict, now := protocol.Settle("", w, r, err); verdict == protocol.Stored {
			r, err = now, nil // on a busy machine, the store may have sent the write again
		}
		row, _ := r.(lease.Row)
		return row, err
	}
}

func (o *owners) hold(f fencetest.Fence) lease.Hold {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.holds[f]
}
