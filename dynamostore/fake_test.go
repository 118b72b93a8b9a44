package dynamostore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
)

// A service imitates the part of DynamoDB that this package uses. It replaces the HTTP client
// of the SDK, so it evaluates the expressions that are really sent, also in a synctest bubble.
// TestStore in integration/store runs the same suite on DynamoDB Local, which shows whether
// the imitation is right.
type service struct {
	takes time.Duration // how long each request takes
	room  chan struct{} // its capacity is how many requests are served at a time; nil: any number
	deny  string        // requests that contain this text are not answered; empty: none
	fault func() string // the code of the error with which a request is answered; nil, or empty: there is none

	mu    sync.Mutex
	items map[string]image // by the result of place
	calls map[string]int   // by action
	busy  int              // how many requests are served
	most  int              // the largest busy so far
	read  int              // how many items queries have returned
}

type (
	image map[string]any // an item in DynamoDB's JSON: {"owner": {"S": "a"}}
	body  struct {
		Item, Key, ExpressionAttributeValues                          image
		ConditionExpression, UpdateExpression, KeyConditionExpression string
		ExpressionAttributeNames                                      map[string]string
		ReturnValues                                                  string
		ExclusiveStartKey                                             image
		Limit                                                         int
	}
)

// newService returns an empty service that answers each request after takes.
func newService(takes time.Duration) *service {
	return &service{takes: takes, items: map[string]image{}, calls: map[string]int{}}
}

// opened returns a store on a new service that answers each request after takes.
func opened(t *testing.T, takes time.Duration) (*Store, *service) {
	t.Helper()
	f := newService(takes)
	return f.open(t, f, Options{}), f
}

// open returns a store on f that sends its requests through the given client.
func (f *service) open(t *testing.T, through dynamodb.HTTPClient, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), clientOf(through), "leases", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func clientOf(through dynamodb.HTTPClient) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", HTTPClient: through, BaseEndpoint: aws.String("http://fake"),
		Credentials: credentials.NewStaticCredentialsProvider("fake", "fake", ""),
	})
}

// put stores an item as no store would, and get returns one.
func (f *service) put(t *testing.T, item map[string]types.AttributeValue) {
	t.Helper()
	in := imageOf(t, item)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items[place(in)] = in
}

func (f *service) get(t *testing.T, key map[string]types.AttributeValue) image {
	t.Helper()
	at := place(imageOf(t, key))
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items[at]
}

func imageOf(t *testing.T, item map[string]types.AttributeValue) image {
	t.Helper()
	in := image{}
	for name, value := range item {
		in[name] = jsonOf(t, value)
	}
	return in
}

// jsonOf returns an attribute in DynamoDB's JSON.
func jsonOf(t *testing.T, value types.AttributeValue) any {
	t.Helper()
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *types.AttributeValueMemberB:
		return map[string]any{"B": base64.StdEncoding.EncodeToString(v.Value)}
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *types.AttributeValueMemberSS:
		set := make([]any, len(v.Value)) // as a request has it
		for i, element := range v.Value {
			set[i] = element
		}
		return map[string]any{"SS": set}
	}
	t.Fatalf("a %T", value)
	return nil
}

// Do answers one request.
func (f *service) Do(request *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	content, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var in body
	if err := json.Unmarshal(content, &in); err != nil {
		return nil, err
	}
	if f.deny != "" && bytes.Contains(content, []byte(f.deny)) {
		return nil, errors.New("connection refused")
	}
	if err := f.work(request.Context()); err != nil {
		return nil, err
	}
	status, out := f.serve(action, in)
	content, err = json.Marshal(out)
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Request: request, Body: io.NopCloser(bytes.NewReader(content)), ContentLength: int64(len(content)),
	}, err
}

// work waits for as long as a request takes.
func (f *service) work(ctx context.Context) error {
	f.serving(1)
	defer f.serving(-1)
	if f.room != nil {
		f.room <- struct{}{}
		defer func() { <-f.room }()
	}
	if f.takes == 0 {
		return nil
	}
	select {
	case <-time.After(f.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *service) serving(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy += n
	f.most = max(f.most, f.busy)
}

// serve executes one request.
func (f *service) serve(action string, in body) (status int, out any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[action]++
	if f.fault != nil {
		if code := f.fault(); code != "" {
			return http.StatusBadRequest, map[string]any{"__type": "x#" + code, "message": "no"}
		}
	}
	at := place(in.Key)
	if action == "PutItem" {
		at = place(in.Item)
	}
	old := f.items[at]
	switch {
	case action == "DescribeTable":
		return http.StatusOK, description()
	case action == "Query":
		items, last := f.query(in)
		f.read += len(items)
		return http.StatusOK, map[string]any{"Items": items, "LastEvaluatedKey": last}
	case !in.holds(old):
		return http.StatusBadRequest, map[string]any{"__type": "x#ConditionalCheckFailedException", "message": "no", "Item": old}
	case action == "PutItem":
		f.items[at] = in.Item
	case action == "DeleteItem":
		delete(f.items, at)
	case action == "UpdateItem":
		f.items[at] = in.update(old)
		if in.ReturnValues == "ALL_NEW" {
			return http.StatusOK, map[string]any{"Attributes": f.items[at]}
		}
	case old != nil: // GetItem
		return http.StatusOK, map[string]any{"Item": old}
	}
	return http.StatusOK, map[string]any{}
}

func description() any {
	name := func(name, key, value string) map[string]string {
		return map[string]string{"AttributeName": name, key: value}
	}
	return map[string]any{"Table": map[string]any{
		"TableStatus": "ACTIVE", "TableId": "the-table",
		"KeySchema":            []any{name(attr.Group, "KeyType", "HASH"), name(attr.Key, "KeyType", "RANGE")},
		"AttributeDefinitions": []any{name(attr.Group, "AttributeType", "S"), name(attr.Key, "AttributeType", "S")},
	}}
}

// place returns the key of an item in service.items: group and name.
func place(key image) string {
	return fmt.Sprint(value(key[attr.Group]), "\x00", value(key[attr.Key]))
}

// value returns the v of {"S": v}.
func value(attribute any) any {
	of, _ := attribute.(map[string]any)
	for _, v := range of {
		return v
	}
	return nil
}

// query returns one page, and the key of its last item if there may be more.
func (f *service) query(in body) (found []image, last image) {
	_, operand, _ := strings.Cut(in.KeyConditionExpression, " = ")
	prefix := fmt.Sprint(value(in.ExpressionAttributeValues[operand]), "\x00")
	start := ""
	found = []image{}
	if in.ExclusiveStartKey != nil {
		start = place(in.ExclusiveStartKey)
	}
	for _, at := range slices.Sorted(maps.Keys(f.items)) {
		if strings.HasPrefix(at, prefix) && at > start {
			found = append(found, f.items[at])
		}
		if len(found) == in.Limit && in.Limit > 0 {
			item := found[in.Limit-1]
			return found, image{attr.Group: item[attr.Group], attr.Key: item[attr.Key]}
		}
	}
	return found, nil
}

// holds reports whether the condition holds for an item.
func (in body) holds(item image) bool {
	if in.ConditionExpression == "" {
		return true
	}
	for term := range strings.SplitSeq(in.ConditionExpression, " AND ") {
		if function, name, ok := strings.Cut(strings.TrimSuffix(term, ")"), "("); ok {
			_, there := item[in.ExpressionAttributeNames[name]]
			if there != (function == "attribute_exists") {
				return false
			}
			continue
		}
		word := strings.Fields(term)
		is, there := item[in.ExpressionAttributeNames[word[0]]]
		wanted := in.ExpressionAttributeValues[word[2]]
		if !there || word[1] == "=" && !reflect.DeepEqual(is, wanted) || word[1] == "<" && number(is) >= number(wanted) {
			return false
		}
	}
	return true
}

func number(attribute any) int64 {
	n, _ := strconv.ParseInt(fmt.Sprint(value(attribute)), 10, 64)
	return n
}

// update returns the item after the update.
func (in body) update(old image) image {
	item := maps.Clone(old)
	sets, removes, _ := strings.Cut(strings.TrimPrefix(in.UpdateExpression, "SET "), " REMOVE ")
	for clause := range strings.SplitSeq(sets, ", ") {
		word := strings.Fields(clause) // #name = :value, or #name = #name + :value
		attribute := in.ExpressionAttributeValues[word[len(word)-1]]
		name := in.ExpressionAttributeNames[word[0]]
		if len(word) > 3 {
			attribute = map[string]any{"N": strconv.FormatInt(number(item[name])+number(attribute), 10)}
		}
		item[name] = attribute
	}
	for name := range strings.SplitSeq(removes, ", ") {
		delete(item, in.ExpressionAttributeNames[name])
	}
	return item
}
