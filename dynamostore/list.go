package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A listing yields records, and errors about records that cannot be read. Another error ends it.
type listing = iter.Seq2[lease.Record, error]

// List queries one partition, or each bucket of the lease rows, page by page. It reads the first
// pages of up to four buckets at a time, and keeps a page of each bucket in memory. A query with a
// limit asks each bucket for its share first, and for a few more where that was not enough.
func (s *reading) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := q.Validate(); err != nil {
			yield(nil, err)
			return
		}
		n, err := s.bucketsOf(ctx, q.Group, q.Kind)
		if err != nil {
			yield(nil, fmt.Errorf("list %v: %w", q, err))
			return
		}
		buckets := make([]listing, n)
		for b, key := range partitions(q.Group, q.Kind, n) {
			buckets[b] = s.query(ctx, q, key, n)
		}
		listed := 0
		limited := func(r lease.Record, err error) bool {
			listed++
			return yield(r, err) && listed != q.Limit
		}
		if n == 1 {
			buckets[0](limited)
			return
		}
		merge(buckets, limited)
	}
}

// query lists one partition. The listing ends with the page that has no key to continue from; an
// empty page may be followed by others. A row that is not in the bucket of its name cannot be
// read: it was copied from a group with another number of buckets.
func (s *reading) query(ctx context.Context, q lease.Query, key string, buckets int) listing {
	return func(yield func(lease.Record, error) bool) {
		e := newExpression()
		input := &dynamodb.QueryInput{
			TableName:                 &s.table,
			ConsistentRead:            aws.Bool(!q.Eventually),
			KeyConditionExpression:    aws.String(e.is(attr.Group, key)),
			ExpressionAttributeNames:  e.names,
			ExpressionAttributeValues: e.values,
		}
		if q.After != "" {
			input.ExclusiveStartKey = keyOf(key, q.After)
		}
		of := share{rows: (q.Limit-1)/buckets + 1}
		for more := true; more; more = len(input.ExclusiveStartKey) > 0 {
			if q.Limit > 0 {
				input.Limit = aws.Int32(int32(min(of.next(), math.MaxInt32)))
			}
			page, err := call(ctx, s, lease.Key{Group: q.Group, Kind: q.Kind}, func(ctx context.Context) (*dynamodb.QueryOutput, error) {
				return s.client.Query(ctx, input, once)
			})
			if err != nil {
				yield(nil, fmt.Errorf("list %v: %w", q, err))
				return
			}
			of.read += len(page.Items)
			for _, item := range page.Items {
				r, err := decode(item)
				switch row, ok := r.(lease.Row); {
				case ok && row.Removed:
					continue
				case ok && partition(row.Key(), buckets) != key:
					r, err = nil, &lease.MalformedError{Key: row.Key(), Cause: fmt.Errorf("it is in %q, which is not its bucket of %d", key, buckets)}
				}
				if !yield(r, err) {
					return
				}
			}
			input.ExclusiveStartKey = page.LastEvaluatedKey
		}
	}
}

// A share is the part of a listing with a limit that one bucket is asked for.
type share struct {
	rows int // so many on average
	read int // so many were read
}

// next returns how many rows the next request asks for: the rest of the share, because a page may have ended
// at 1 MB, and then a few more. The names are hashed, so a bucket seldom has more than its share and the square
// root of that; if it has, each request asks for as many as all those before it beyond the share.
func (s share) next() int {
	if rest := s.rows - s.read; rest > 0 {
		return rest
	}
	return max(1, int(math.Sqrt(float64(s.rows))), s.read-s.rows)
}

// A head is the next element of a listing.
type head struct {
	next func() (lease.Record, error, bool)
	r    lease.Record
	err  error
	more bool   // false: the listing has ended
	name string // of the record; empty: the error ends the listing
}

func (h *head) advance() {
	h.r, h.err, h.more = h.next()
	h.name = ""
	if malformed, ok := errors.AsType[*lease.MalformedError](h.err); ok {
		h.name = malformed.Key.Name
	} else if h.r != nil {
		h.name = h.r.Key().Name
	}
}

// before orders heads: first an error that ends the whole listing, then by name.
func (h *head) before(other *head) int {
	if h.more != other.more {
		if h.more {
			return -1
		}
		return 1
	}
	return strings.Compare(h.name, other.name)
}

// merge yields the records of ordered listings in order. It asks for the first page of a few
// listings at a time; these calls have ended when it yields.
func merge(lists []listing, yield func(lease.Record, error) bool) {
	const few = 4
	heads := make([]*head, len(lists))
	asking := make(chan struct{}, few)
	var all sync.WaitGroup
	for i, list := range lists {
		next, stop := iter.Pull2(list)
		defer stop()
		heads[i] = &head{next: next}
		asking <- struct{}{}
		all.Go(func() { heads[i].advance(); <-asking })
	}
	all.Wait()
	for {
		first := slices.MinFunc(heads, (*head).before)
		if !first.more || !yield(first.r, first.err) || first.name == "" {
			return
		}
		first.advance()
	}
}
