package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// A pick says which shards ls lists, beside those of a state and of a worker, and in which order.
type pick struct {
	task     string
	older    time.Duration
	attempts int64
	order    string
}

func newPick(c *cobra.Command) *pick {
	p := new(pick)
	c.Flags().StringVar(&p.task, "task", "", "only shards that are held for this `TASK` or its descendants")
	c.Flags().DurationVar(&p.older, "older", 0, "only shards without an accepted checkpoint in the last so long")
	c.Flags().Int64Var(&p.attempts, "attempts", 0, "only shards with at least so many failed attempts")
	c.Flags().StringVar(&p.order, "sort", "name", "the `ORDER`: name, or the largest first of attempts, checkpoint (its age), since and size")
	return p
}

// sortOrders compare two shards by what a person looks for. Shards that compare as equal stay in the order of their names.
func sortOrders() map[string]func(a, b *inspect.Shard) int {
	return map[string]func(a, b *inspect.Shard) int{
		"name":       func(a, b *inspect.Shard) int { return 0 },
		"attempts":   func(a, b *inspect.Shard) int { return cmp.Compare(b.Attempts, a.Attempts) },
		"checkpoint": func(a, b *inspect.Shard) int { return cmp.Compare(lacking(b), lacking(a)) },
		"since":      func(a, b *inspect.Shard) int { return cmp.Compare(b.Since.D, a.Since.D) },
		"size":       func(a, b *inspect.Shard) int { return cmp.Compare(b.Size, a.Size) },
	}
}

// lacking returns for how long no checkpoint of the shard was accepted: since its last change of hands if it never had one.
func lacking(s *inspect.Shard) time.Duration {
	if s.Checkpoint.Known {
		return s.Checkpoint.D
	}
	return s.Tenure.D
}

func (p *pick) check() error {
	switch {
	case sortOrders()[p.order] == nil:
		return usage("unknown --sort %q: it must be one of %s", p.order, strings.Join(slices.Sorted(maps.Keys(sortOrders())), ", "))
	case p.older < 0 || p.attempts < 0:
		return usage("--older and --attempts must not be negative")
	}
	return nil
}

// from returns the shards of a snapshot that are wanted, in order. A shard that is finished or removed needs no checkpoint.
func (p *pick) from(s *inspect.Snapshot) (list []*inspect.Shard) {
	for i := range s.Shards {
		of := &s.Shards[i]
		over := of.State == inspect.Finished || of.State == inspect.Removed
		switch {
		case p.task != "" && !of.Owner.Serves(p.task):
		case p.older > 0 && (over || lacking(of) < p.older):
		case of.Attempts < p.attempts:
		default:
			list = append(list, of)
		}
	}
	slices.SortStableFunc(list, sortOrders()[p.order])
	return list
}
