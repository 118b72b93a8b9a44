package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/dynamostore"
)

// makeTable makes a table that is not a lease table.
func makeTable(t *testing.T, keys ...string) string {
	t.Helper()
	table := "other-" + rand.Text()
	input := &dynamodb.CreateTableInput{TableName: &table, BillingMode: types.BillingModePayPerRequest}
	for i, key := range keys {
		input.AttributeDefinitions = append(input.AttributeDefinitions, types.AttributeDefinition{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS})
		role := types.KeyTypeHash
		if i > 0 {
			role = types.KeyTypeRange
		}
		input.KeySchema = append(input.KeySchema, types.KeySchemaElement{AttributeName: &key, KeyType: role})
	}
	if _, err := newClient(t, nil).CreateTable(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	return table
}

// items counts what a table holds.
func items(t *testing.T, table string) int32 {
	t.Helper()
	out, err := newClient(t, nil).Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	return out.Count
}

// TestOpenSaysWhy: whatever is wrong with a table, Open names it and the table,
// and has written nothing.
func TestOpenSaysWhy(t *testing.T) {
	describe := func(edit func(table map[string]any)) *faulty {
		return newFaulty(func(action string, _ []byte) fault {
			if action != "DescribeTable" {
				return fault{}
			}
			return fault{editReply: func(body map[string]any) { edit(body["Table"].(map[string]any)) }}
		})
	}
	replicated := func(table map[string]any) { table["Replicas"] = []any{map[string]any{"RegionName": "eu-west-1"}} }
	for name, tc := range map[string]struct {
		table   func() string
		through *faulty
		options dynamostore.Options
		want    error // nil: it opens
	}{
		"missing, or another region": {table: func() string { return "no-such-table" }, want: dynamostore.ErrNoTable},
		"a KCL lease table":          {table: func() string { return makeTable(t, "leaseKey") }, want: dynamostore.ErrKCL},
		"another key":                {table: func() string { return makeTable(t, "id") }, want: dynamostore.ErrSchema},
		"keys swapped":               {table: func() string { return makeTable(t, "leaseKey", "leaseGroup") }, want: dynamostore.ErrSchema},
		"being created": {
			table:   func() string { return newTable(t) },
			through: describe(func(table map[string]any) { table["TableStatus"] = "CREATING" }), want: dynamostore.ErrNotActive,
		},
		"replicated, last writer wins": {
			table: func() string { return newTable(t) }, through: describe(replicated), want: dynamostore.ErrReplicated,
		},
		"replicated, and told to accept it": {
			table: func() string { return newTable(t) }, through: describe(replicated), options: dynamostore.Options{AllowReplicated: true},
		},
		"replicated, strongly consistent": {
			table: func() string { return newTable(t) }, through: describe(func(table map[string]any) {
				replicated(table)
				table["MultiRegionConsistency"] = "STRONG"
			}),
		},
		"as it should be": {table: func() string { return newTable(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint(t)
			var through func(next http.RoundTripper) http.RoundTripper
			if tc.through != nil {
				through = tc.through.over
			}
			table := tc.table()
			_, err := dynamostore.Open(t.Context(), newClient(t, through), table, tc.options)
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if err != nil && (!strings.Contains(err.Error(), table) || !strings.Contains(err.Error(), "eu-central-1")) {
				t.Errorf("%v does not name table and region", err)
			}
			if table != "no-such-table" && items(t, table) != 0 {
				t.Error("Open wrote something")
			}
		})
	}
}

// TestOpenNamesTheActionThatIsDenied: one action after the other.
func TestOpenNamesTheActionThatIsDenied(t *testing.T) {
	endpoint(t)
	table := newTable(t)
	for _, denied := range []string{"DescribeTable", "GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"} {
		f := newFaulty(func(action string, _ []byte) fault {
			if action == denied {
				return fault{code: "AccessDeniedException"}
			}
			return fault{}
		})
		_, err := dynamostore.Open(t.Context(), newClient(t, f.over), table, dynamostore.Options{})
		if !errors.Is(err, dynamostore.ErrDenied) || !strings.Contains(err.Error(), denied+": ") {
			t.Errorf("%s denied: got %v", denied, err)
		}
	}
	if items(t, table) != 0 {
		t.Error("Open wrote something")
	}
}

// TestManyCreators: any number of processes create the table at once.
func TestManyCreators(t *testing.T) {
	client := newClient(t, nil)
	table := "leases-" + rand.Text()
	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil))
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			errs[i] = dynamostore.CreateTable(t.Context(), client, table, dynamostore.TableOptions{Logger: logger})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	out, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	if !aws.ToBool(out.Table.DeletionProtectionEnabled) {
		t.Error("the table is not protected from deletion")
	}
	if lines := strings.Count(log.String(), "point-in-time recovery"); lines != 1 {
		t.Errorf("recovery is not known here, and the log says so %d times:\n%s", lines, log.String())
	}
	open(t, client, table)
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestCreateTableLeavesOthersAlone: a table of that name that is something else.
func TestCreateTableLeavesOthersAlone(t *testing.T) {
	endpoint(t)
	for keys, want := range map[string]error{"leaseKey": dynamostore.ErrKCL, "id": dynamostore.ErrSchema} {
		table := makeTable(t, keys)
		err := dynamostore.CreateTable(t.Context(), newClient(t, nil), table, dynamostore.TableOptions{})
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// TestCreateTableGivesUp: a table that does not become active, whether the deadline comes
// between two looks or while an answer is awaited.
func TestCreateTableGivesUp(t *testing.T) {
	endpoint(t)
	for _, unanswered := range []bool{false, true} {
		looks, deadline := 0, 3*time.Second
		f := newFaulty(func(action string, _ []byte) fault {
			if action != "DescribeTable" {
				return fault{}
			}
			if looks++; looks > 1 && unanswered {
				<-time.After(deadline)
			}
			return fault{editReply: func(body map[string]any) { body["Table"].(map[string]any)["TableStatus"] = "CREATING" }}
		})
		err := dynamostore.CreateTable(t.Context(), newClient(t, f.over), "leases-"+rand.Text(), dynamostore.TableOptions{Deadline: deadline})
		if !errors.Is(err, dynamostore.ErrNotActive) || !errors.Is(err, context.DeadlineExceeded) || looks < 2 {
			t.Errorf("after %d looks, the last unanswered %v: got %v", looks, unanswered, err)
		}
	}
}

// TestActionsAreThePolicy: what the whole life of a row and a seat uses is what
// docs/iam.md gives a worker, no more and no less.
func TestActionsAreThePolicy(t *testing.T) {
	endpoint(t)
	f := newFaulty(func(string, []byte) fault { return fault{} })
	s := open(t, newClient(t, f.over), newTable(t))
	if err := liveOnce(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	used, may := slices.Sorted(maps.Keys(f.calls)), workerPolicy(t)
	if !slices.Equal(used, may) {
		t.Errorf("used %v, the policy has %v", used, may)
	}
	fmt.Fprintln(t.Output(), "actions used:", used)
}
