package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
)

// items returns the number of items in a table.
func items(t *testing.T, table string) int32 {
	t.Helper()
	out, err := local.Client(t, nil).Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	return out.Count
}

// TestOpenSaysWhy: Open names the fault of a table, and the table itself, and writes nothing. OpenReader
// finds the same faults.
func TestOpenSaysWhy(t *testing.T) {
	describe := func(edit func(table map[string]any)) *network.Faulty {
		return network.NewFaulty(func(action string, _ []byte) network.Fault {
			if action != "DescribeTable" {
				return network.Fault{}
			}
			return network.Fault{EditReply: func(body map[string]any) { edit(body["Table"].(map[string]any)) }}
		})
	}
	replicated := func(table map[string]any) { table["Replicas"] = []any{map[string]any{"RegionName": "eu-west-1"}} }
	for name, tc := range map[string]struct {
		table   func() string
		through *network.Faulty
		options dynamostore.Options
		want    error // nil: Open succeeds
	}{
		"missing, or another region": {table: func() string { return "no-such-table" }, want: dynamostore.ErrNoTable},
		"a KCL lease table":          {table: func() string { return local.OtherTable(t, "leaseKey") }, want: dynamostore.ErrKCL},
		"another key":                {table: func() string { return local.OtherTable(t, "id") }, want: dynamostore.ErrSchema},
		"keys swapped":               {table: func() string { return local.OtherTable(t, "leaseKey", "leaseGroup") }, want: dynamostore.ErrSchema},
		"being created": {
			table:   func() string { return local.Table(t) },
			through: describe(func(table map[string]any) { table["TableStatus"] = "CREATING" }), want: dynamostore.ErrNotActive,
		},
		"replicated, last writer wins": {
			table: func() string { return local.Table(t) }, through: describe(replicated), want: dynamostore.ErrReplicated,
		},
		"replicated, with AllowReplicated": {
			table: func() string { return local.Table(t) }, through: describe(replicated), options: dynamostore.Options{AllowReplicated: true},
		},
		"replicated, strongly consistent": {
			table: func() string { return local.Table(t) }, through: describe(func(table map[string]any) {
				replicated(table)
				table["MultiRegionConsistency"] = "STRONG"
			}),
		},
		"a lease table": {table: func() string { return local.Table(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			local.Endpoint(t)
			var through func(next http.RoundTripper) http.RoundTripper
			if tc.through != nil {
				through = tc.through.Over
			}
			table := tc.table()
			_, err := dynamostore.Open(t.Context(), local.Client(t, through), table, tc.options)
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if err != nil && (!strings.Contains(err.Error(), table) || !strings.Contains(err.Error(), "eu-central-1")) {
				t.Errorf("%v does not name table and region", err)
			}
			_, err = dynamostore.OpenReader(t.Context(), local.Client(t, through), table, tc.options)
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Fatalf("OpenReader: got %v, want %v", err, tc.want)
			}
			if table != "no-such-table" && items(t, table) != 0 {
				t.Error("Open wrote something")
			}
		})
	}
}

// TestOpenNamesTheActionThatIsDenied: Open names each action that is denied, and the partition, also if
// the policy allows it in another.
func TestOpenNamesTheActionThatIsDenied(t *testing.T) {
	local.Endpoint(t)
	table := local.Table(t)
	for _, denied := range []string{"DescribeTable", "GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"} {
		for _, partition := range []string{"orders/seat", "orders/target"} {
			f := network.NewFaulty(func(action string, body []byte) network.Fault {
				if action == denied && (action == "DescribeTable" || bytes.Contains(body, []byte(partition))) {
					return network.Fault{Code: "AccessDeniedException"}
				}
				return network.Fault{}
			})
			named := partition + ", " + denied
			if denied == "DescribeTable" {
				named = denied
			}
			_, err := dynamostore.Open(t.Context(), local.Client(t, f.Over), table, dynamostore.Options{Group: "orders"})
			if !errors.Is(err, dynamostore.ErrDenied) || strings.Count(err.Error(), named+": ") != 1 || strings.Count(err.Error(), dynamostore.ErrDenied.Error()) != 1 {
				t.Errorf("%s denied: got %v", named, err)
			}
		}
	}
	if items(t, table) != 0 {
		t.Error("Open wrote something")
	}
}

// TestManyCreators: any number of processes may create the table at once.
func TestManyCreators(t *testing.T) {
	client := local.Client(t, nil)
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
		t.Errorf("point-in-time recovery is not supported here, and the log has %d lines about it:\n%s", lines, log.String())
	}
	local.Open(t, client, table)
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestCreateTableLeavesOthersAlone: CreateTable refuses a table of that name with another schema.
func TestCreateTableLeavesOthersAlone(t *testing.T) {
	local.Endpoint(t)
	for keys, want := range map[string]error{"leaseKey": dynamostore.ErrKCL, "id": dynamostore.ErrSchema} {
		table := local.OtherTable(t, keys)
		err := dynamostore.CreateTable(t.Context(), local.Client(t, nil), table, dynamostore.TableOptions{})
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// TestCreateTableGivesUp: CreateTable returns an error if the table does not become active, whether
// the deadline passes between two requests or during one.
func TestCreateTableGivesUp(t *testing.T) {
	local.Beside(t)
	for _, unanswered := range []bool{false, true} {
		looks, deadline := 0, 3*time.Second
		f := network.NewFaulty(func(action string, _ []byte) network.Fault {
			if action != "DescribeTable" {
				return network.Fault{}
			}
			if looks++; looks > 1 && unanswered {
				<-time.After(deadline)
			}
			return network.Fault{EditReply: func(body map[string]any) { body["Table"].(map[string]any)["TableStatus"] = "CREATING" }}
		})
		err := dynamostore.CreateTable(t.Context(), local.Client(t, f.Over), "leases-"+rand.Text(), dynamostore.TableOptions{Deadline: deadline})
		if !errors.Is(err, dynamostore.ErrNotActive) || !errors.Is(err, context.DeadlineExceeded) || looks < 2 {
			t.Errorf("after %d looks, the last unanswered %v: got %v", looks, unanswered, err)
		}
	}
}
