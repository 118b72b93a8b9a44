package sim

import (
	"fmt"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// TestNothingStandsStillWithoutAName: when nobody processes a shard for longer than its bound, an
// event, the row or the plan says why, whatever is wrong with the fleet. And when it is mended the
// fleet comes to rest.
func TestNothingStandsStillWithoutAName(t *testing.T) {
	for _, a := range fixture.Sample(2, Ailments()) {
		for _, workers := range fixture.Sample(1, []int{4, 12}) {
			t.Run(fmt.Sprintf("%s/%d", a.Name, workers), func(t *testing.T) {
				t.Parallel()
				if r := a.Run(workers, given.from, nil); r.Err != nil {
					t.Errorf("%.3000v", r.Err)
				}
			})
		}
	}
}
