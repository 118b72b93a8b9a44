package journal

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type stored = map[string]types.AttributeValue

// Effects returns the effects of a key, in order.
func (j *Journal) Effects(ctx context.Context, key string) ([][]byte, error) {
	items, err := j.query(ctx, j.keyID(key))
	if err == nil {
		var all [][]byte
		if all, err = effects(items); err == nil {
			return all, nil
		}
	}
	return nil, j.failed(fmt.Errorf("key %q: %w", key, err))
}

// query reads all items of an id, in the order of their parts.
func (j *Journal) query(ctx context.Context, id string) ([]stored, error) {
	input := &dynamodb.QueryInput{
		TableName: &j.Table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("#id = :id"),
		ExpressionAttributeNames:  map[string]string{"#id": attrID},
		ExpressionAttributeValues: stored{":id": text(id)},
	}
	var items []stored
	for pages := dynamodb.NewQueryPaginator(j.Client, input); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
	}
	return items, nil
}

// effects returns the effects in the pages of a key, sorted by the ranks of their shards. The
// head was read first, so a page may be newer than the head; it is left out.
func effects(items []stored) ([][]byte, error) {
	if len(items) == 0 || textOf(items[0][attrPart]) != partHead {
		return nil, nil
	}
	head, byShard := items[0], map[string][][]byte{}
	for i, in := range items {
		shard, order, ok := strings.Cut(strings.TrimPrefix(textOf(in[attrPart]), partPage), "/")
		if !ok || strings.Contains(order, "/") || order > textOf(head[markOf(shard)]) {
			continue // the head, a part, or a page that is newer than the head
		}
		values, err := values(in, items[i+1:])
		if err != nil {
			return nil, err
		}
		byShard[shard] = append(byShard[shard], values...)
	}
	var shards []string
	for shard := range byShard {
		shards = append(shards, shard)
	}
	rank := func(shard string) int { return numberOf(head[rankOf(shard)]) }
	slices.SortFunc(shards, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	var all [][]byte
	for _, shard := range shards {
		all = append(all, byShard[shard]...)
	}
	return all, nil
}

// values returns the effects of a page.
func values(page stored, after []stored) ([][]byte, error) {
	list, ok := page[attrEffects].(*types.AttributeValueMemberL)
	if !ok {
		value, err := whole(page, after)
		return [][]byte{value}, err
	}
	var all [][]byte
	for _, v := range list.Value {
		b, ok := v.(*types.AttributeValueMemberB)
		if !ok {
			return nil, fmt.Errorf("%s: an effect is not binary", textOf(page[attrPart]))
		}
		all = append(all, b.Value)
	}
	return all, nil
}

// whole joins the parts of a value, which follow its item.
func whole(in stored, after []stored) ([]byte, error) {
	name := textOf(in[attrPart])
	var value []byte
	for i := range numberOf(in[attrParts]) {
		if i >= len(after) || textOf(after[i][attrPart]) != fmt.Sprintf("%s/%04d", name, i) {
			return nil, fmt.Errorf("%s: part %d is missing", name, i)
		}
		value = append(value, bytesOf(after[i][attrData])...)
	}
	return value, nil
}

func bytesOf(v types.AttributeValue) []byte {
	if b, ok := v.(*types.AttributeValueMemberB); ok {
		return b.Value
	}
	return nil
}

func textOf(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func numberOf(v types.AttributeValue) int {
	if n, ok := v.(*types.AttributeValueMemberN); ok {
		i, _ := strconv.Atoi(n.Value)
		return i
	}
	return 0
}
