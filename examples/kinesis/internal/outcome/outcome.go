// Package outcome checks the tables after a run of the consumer. It shares no code with the
// consumer: it reads the stream, the journal and the leases through the AWS SDK, according to
// their documentation, so that errors in the consumer's encoding, order or positions cannot
// hide themselves.
package outcome

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
)

// A Reader reads the tables of one group, and its stream.
type Reader struct {
	DynamoDB *dynamodb.Client
	Kinesis  *kinesis.Client
	Journal  string // the name of the journal's table
	Leases   string
	Stream   string
	Group    string
}

// A Digest identifies the bytes of a record.
type Digest [sha256.Size]byte

// A Verdict is the result of comparing the effects of a key with the records that were put.
type Verdict struct{ Records, Lost, Twice, Late, Foreign int }

// Add adds up the verdicts of keys.
func (v *Verdict) Add(w Verdict) {
	v.Records += w.Records
	v.Lost += w.Lost
	v.Twice += w.Twice
	v.Late += w.Late
	v.Foreign += w.Foreign
}

// Faults returns the number of records that differ from those that were put.
func (v Verdict) Faults() int { return v.Lost + v.Twice + v.Late + v.Foreign }

func (v Verdict) String() string {
	return fmt.Sprintf("%d records: %d lost, %d twice, %d out of order, %d with other bytes", v.Records, v.Lost, v.Twice, v.Late, v.Foreign)
}

// Compare compares the effects of a key with the records that were put, in order. No two records
// of a key may have the same bytes.
func Compare(put []Digest, effects [][]byte) Verdict {
	v := Verdict{Records: len(effects)}
	at := map[Digest]int{}
	for i, digest := range put {
		at[digest] = i
	}
	seen, last := map[int]bool{}, -1
	for _, effect := range effects {
		i, known := at[sha256.Sum256(effect)]
		switch {
		case !known:
			v.Foreign++
			continue
		case seen[i]:
			v.Twice++
		case i < last:
			v.Late++
		}
		seen[i], last = true, max(last, i)
	}
	v.Lost = len(put) - len(seen)
	return v
}

// item is a DynamoDB item.
type item map[string]types.AttributeValue

func (i item) text(name string) string {
	switch v := i[name].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return string(v.Value)
	}
	return ""
}

func (i item) number(name string) (n int) {
	_, _ = fmt.Sscan(i.text(name), &n)
	return n
}

// query reads all items that have a partition key.
func (r *Reader) query(ctx context.Context, table, attribute, value string) ([]item, error) {
	var all []item
	var from map[string]types.AttributeValue
	for {
		out, err := r.DynamoDB.Query(ctx, &dynamodb.QueryInput{
			TableName: &table, ConsistentRead: aws.Bool(true), ExclusiveStartKey: from,
			KeyConditionExpression:    aws.String("#k = :k"),
			ExpressionAttributeNames:  map[string]string{"#k": attribute},
			ExpressionAttributeValues: map[string]types.AttributeValue{":k": &types.AttributeValueMemberS{Value: value}},
		})
		if err != nil {
			return nil, fmt.Errorf("query %s for %s: %w", table, value, err)
		}
		for _, i := range out.Items {
			all = append(all, i)
		}
		if from = out.LastEvaluatedKey; from == nil {
			return all, nil
		}
	}
}

// Effects reads the effects of a key from the journal, in order: shards by rank, pages by sort
// key, and the effects of a page from its list or its parts.
func (r *Reader) Effects(ctx context.Context, key string) ([][]byte, error) {
	items, err := r.query(ctx, r.Journal, "id", "key/"+url.PathEscape(r.Stream)+"/"+url.PathEscape(r.Group)+"/"+key)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	byPart := map[string]item{}
	for _, i := range items {
		byPart[i.text("part")] = i
	}
	head := byPart["head"]
	var pages []string
	for part := range byPart {
		if pieces := strings.Split(part, "/"); len(pieces) == 3 && pieces[0] == "page" && pieces[2] <= head.text("mark/"+pieces[1]) {
			pages = append(pages, part)
		}
	}
	rank := func(page string) int { return head.number("rank/" + strings.Split(page, "/")[1]) }
	sort.Slice(pages, func(a, b int) bool {
		if x, y := rank(pages[a]), rank(pages[b]); x != y {
			return x < y
		}
		return pages[a] < pages[b]
	})
	var all [][]byte
	for _, page := range pages {
		effects, err := contents(byPart, page)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key, err)
		}
		all = append(all, effects...)
	}
	return all, nil
}

// contents returns the effects of a page.
func contents(byPart map[string]item, page string) ([][]byte, error) {
	if list, ok := byPart[page]["effects"].(*types.AttributeValueMemberL); ok {
		var all [][]byte
		for _, v := range list.Value {
			b, ok := v.(*types.AttributeValueMemberB)
			if !ok {
				return nil, fmt.Errorf("%s has an effect that is not binary", page)
			}
			all = append(all, b.Value)
		}
		return all, nil
	}
	var value []byte
	for n := range byPart[page].number("parts") {
		part, there := byPart[fmt.Sprintf("%s/%04d", page, n)]
		if !there {
			return nil, fmt.Errorf("%s has no part %d", page, n)
		}
		value = append(value, part.text("data")...)
	}
	return [][]byte{value}, nil
}
