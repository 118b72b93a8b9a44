package fence_test

import (
	"fmt"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// The id of a mail that a record causes. It is the same under each generation.
func ExampleToken_Operation() {
	for _, generation := range []int64{7, 8} {
		t := fence.Token{Group: "orders", Shard: "shard-0", Generation: generation}
		fmt.Println(t.Operation("49590338271490256608559692538361571095921575989136588898", "confirmation"))
	}
	// Output:
	// orders/shard-0/49590338271490256608559692538361571095921575989136588898/confirmation
	// orders/shard-0/49590338271490256608559692538361571095921575989136588898/confirmation
}

// TestOperationsAreDistinct: whatever the names and positions contain, two effects have two ids, and one effect has the
// same id under each generation.
func TestOperationsAreDistinct(t *testing.T) {
	texts := []string{"", "a", "/", "a/", "/a", "%2F", "a%2Fa", "a/a", "é", "a b", "a+b"}
	of := map[string][4]string{}
	for _, group := range texts {
		for _, shard := range texts {
			for _, position := range texts {
				for _, effect := range texts {
					is := [4]string{group, shard, position, effect}
					id := fence.Token{Group: group, Shard: shard, Generation: 7}.Operation(position, effect)
					if other, taken := of[id]; taken {
						t.Fatalf("%q and %q have the id %s", other, is, id)
					}
					of[id] = is
					if again := (fence.Token{Group: group, Shard: shard, Generation: 8}).Operation(position, effect); again != id {
						t.Fatalf("%q: %s under generation 7, %s under generation 8", is, id, again)
					}
				}
			}
		}
	}
}
