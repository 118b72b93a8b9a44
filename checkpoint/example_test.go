package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// Three workers finish the records of one shard in any order. In a handler, mark is the tenure's
// Mark.
func ExampleTracker() {
	ctx := context.Background()
	mark := func(position string) error {
		fmt.Println("mark", position)
		return nil
	}
	tracker := checkpoint.NewTracker(0, mark)

	var records []checkpoint.Record
	for _, position := range []string{"101", "102", "103"} {
		r, err := tracker.Begin(ctx, position)
		if err != nil {
			fmt.Println(err)
			return
		}
		records = append(records, r)
	}

	records[2].Done()
	fmt.Println("103 is done; the oldest that is not:", tracker.Backlog().Gap)
	records[0].Done()
	records[1].Done()
	fmt.Println("drained:", tracker.Wait(ctx))
	// Output:
	// 103 is done; the oldest that is not: 101
	// mark 101
	// mark 103
	// drained: <nil>
}

// Marks are written when a hundred of them wait, and after two seconds at the latest.
func ExamplePolicy() {
	p := checkpoint.Policy{Every: 2 * time.Second, Marks: 100}
	first := 10 * time.Second // the time of the first of the waiting marks
	fmt.Println(p.Due(99, first, first+time.Second))
	fmt.Println(p.Due(100, first, first+time.Second))
	fmt.Println(p.At(first))

	onlyWhenAsked := checkpoint.Policy{Every: -1}
	fmt.Println(onlyWhenAsked.Due(1_000_000, first, first+time.Hour))
	// Output:
	// false
	// true
	// 12s true
	// false
}

// A user's own form of positions, "file:offset": files are ordered by name, offsets by number.
func ExampleOrder() {
	inFiles := checkpoint.Order(func(a, b string) (int, error) {
		fileA, offsetA, okA := strings.Cut(a, ":")
		fileB, offsetB, okB := strings.Cut(b, ":")
		if !okA || !okB {
			return 0, &checkpoint.InvalidError{Field: "position", Rule: "must be file:offset"}
		}
		if c := strings.Compare(fileA, fileB); c != 0 {
			return c, nil
		}
		return checkpoint.Decimal(offsetA, offsetB)
	})
	accepted := checkpoint.Mark{Position: "2026-01-09.log:900"}
	fmt.Println(inFiles.Advance("web", accepted, checkpoint.Mark{Position: "2026-01-09.log:1000"}))
	err := inFiles.Advance("web", accepted, checkpoint.Mark{Position: "2026-01-09.log:20"})
	fmt.Println(err, errors.Is(err, checkpoint.ErrBackwards))
	// Output:
	// <nil>
	// shard "web": position moves backwards: it is before the one already marked or accepted true
}
