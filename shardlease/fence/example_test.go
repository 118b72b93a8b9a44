package fence_test

import (
	"context"
	"fmt"

	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// The context of a tenure has its token, so code far below the handler needs no other parameter.
func ExampleFromContext() {
	// In a handler, ctx is its ctx, or t.Context().
	ctx := fence.NewContext(context.Background(), fence.Token{Group: "orders", Shard: "shard-0", Generation: 7})
	token, ok := fence.FromContext(ctx)
	fmt.Println(token, ok)
	// Output: generation 7 of orders/shard-0 true
}
