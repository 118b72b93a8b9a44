package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardlease/shardlease-go/dynamostore"
)

// image is the one that the tests of the module integration use.
const image = "amazon/dynamodb-local:3.3.1"

// quickStart lets Java run without its optimizing compiler, as the module integration does: the server lives for seconds.
const quickStart = "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// A container is the DynamoDB Local that the tests of this package share. Each test has a table of its own.
type container struct {
	once   sync.Once
	id, at string
	why    error // why it is not there
}

var shared container

// besideOthers lets a test use a DynamoDB Local: the one at DYNAMODB_ENDPOINT or, if SHARDLEASE_REQUIRE_DYNAMODB is 1, that
// of a container. Otherwise it skips the test. The test runs beside others, because it mostly waits.
func besideOthers(t *testing.T) {
	t.Helper()
	if os.Getenv("DYNAMODB_ENDPOINT") == "" && os.Getenv("SHARDLEASE_REQUIRE_DYNAMODB") != "1" {
		t.Skip("DYNAMODB_ENDPOINT is not set: set it to the URL of a DynamoDB Local")
	}
	t.Parallel()
	shared.once.Do(func() {
		if shared.at = os.Getenv("DYNAMODB_ENDPOINT"); shared.at == "" {
			shared.why = shared.start()
		}
		for name, value := range settings(shared.at) { // for good, because parallel tests cannot call t.Setenv
			_ = os.Setenv(name, value)
		}
	})
	if shared.why != nil {
		t.Fatalf("DYNAMODB_ENDPOINT is not set, and %v", shared.why)
	}
}

// start starts the container, and waits until it answers.
func (c *container) start() error {
	id, err := docker("run", "--detach", "--rm", "--env", quickStart, "--publish", "127.0.0.1::8000", image)
	if err != nil {
		return err
	}
	c.id = id
	ports, err := docker("port", id, "8000/tcp")
	if err != nil {
		return err
	}
	port, _, _ := strings.Cut(ports, "\n")
	c.at = "http://" + port
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for !answers(ctx, c.at) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer", c.at)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// stop ends the container, if there is one.
func (c *container) stop() {
	if c.id == "" {
		return
	}
	if _, err := docker("stop", "--time", "0", c.id); err != nil {
		fmt.Fprintln(os.Stderr, "the container stays behind:", err)
	}
}

func docker(args ...string) (string, error) {
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// answers reports whether a server answers at an address. DynamoDB Local answers a bare GET with 400.
func answers(ctx context.Context, at string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil
}

// settings returns the variables of the AWS SDK for the server at an address.
func settings(endpoint string) map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": endpoint, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	}
}

// A recorder notes the actions of requests.
type recorder struct {
	http.RoundTripper
	mu      sync.Mutex
	actions []string
	taken   int // how many requests the last call of take was about
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	r.mu.Lock()
	r.actions = append(r.actions, action)
	r.mu.Unlock()
	return r.RoundTripper.RoundTrip(request)
}

// take returns the actions since the last call, sorted, each of them once.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = len(r.actions)
	slices.Sort(r.actions)
	actions := slices.Compact(r.actions)
	r.actions = nil
	return actions
}

// observers returns the actions that each policy of an observer in docs/iam.md allows.
func observers() ([]string, error) {
	page, err := os.ReadFile("../../../docs/iam.md")
	if err != nil {
		return nil, err
	}
	_, part, _ := strings.Cut(string(page), "\n## Observer\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var actions []string
	for _, policy := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(part, -1) {
		var allowed []string
		for _, found := range regexp.MustCompile(`"dynamodb:(\w+)"[],]`).FindAllStringSubmatch(policy[1], -1) {
			allowed = append(allowed, found[1])
		}
		slices.Sort(allowed)
		if actions != nil && !slices.Equal(actions, allowed) {
			return nil, fmt.Errorf("one policy allows %v, the other %v", actions, allowed)
		}
		actions = allowed
	}
	return actions, nil
}

// TestOnDynamoDB runs the transcripts in testdata/dynamodb on a DynamoDB Local. Besides the commands of
// testscript they have shardlease, code and seed as in TestTranscripts, and
//
//	requests ACTION…    the commands since then have sent requests with these actions and no others; the word
//	                    observer stands for the actions of the observer's policy in docs/iam.md
//	atmost N            the commands before the last requests have sent at most so many
//	interrupt DURATION  the next command is interrupted after that time
//	kcltable NAME       creates a lease table of the KCL
//	restore FROM TO     creates the table TO with the items of FROM
func TestOnDynamoDB(t *testing.T) {
	besideOthers(t)
	t.Run("settings", programReadsTheSettings)
	testscript.RunT(shim{t}, testscript.Params{
		Dir: "testdata/dynamodb", UpdateScripts: os.Getenv("UPDATE_TRANSCRIPTS") != "", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			w, err := newOnDynamoDB(t.Context())
			if err != nil {
				return err
			}
			env.Values["on"] = w
			id := strings.ToLower(rand.Text()[:8])
			env.Setenv("TABLE", "leases-"+id)
			env.Setenv("KCL", "kcl-"+id)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"shardlease": func(ts *testscript.TestScript, neg bool, args []string) {
				w := ts.Value("on").(*onDynamoDB)
				w.run(ts, args)
				if neg != (w.code != 0) {
					ts.Fatalf("exit code %d", w.code)
				}
			},
			"code": on(func(ts *script, w *onDynamoDB, args []string) { exited(ts, w.code, args[0]) }),
			"requests": on(func(ts *script, w *onDynamoDB, args []string) {
				got := w.requests.take()
				if len(args) == 1 && args[0] == "observer" {
					var err error
					args, err = observers()
					ts.Check(err)
				}
				if slices.Sort(args); !slices.Equal(got, args) {
					ts.Fatalf("requests %v, want %v", got, args)
				}
			}),
			"atmost": on(func(ts *script, w *onDynamoDB, args []string) {
				most, err := strconv.Atoi(args[0])
				ts.Check(err)
				if n := w.requests.taken; n > most {
					ts.Fatalf("%d requests, want at most %d", n, most)
				}
			}),
			"interrupt": on(func(ts *script, w *onDynamoDB, args []string) { w.stop = length(ts, args[0]) }),
			"seed": on(func(ts *script, w *onDynamoDB, args []string) {
				store, err := w.tables.Store(t.Context(), place{ts.Getenv("TABLE"), "orders"}, 0)
				ts.Check(err)
				ts.Check(store.Verify(t.Context(), "orders")) // as a worker does
				s := seeder{store: store, group: "orders", now: time.Now()}
				ts.Check(s.run(ts.ReadFile(args[0])))
				w.requests.take()
			}),
			"kcltable": on(func(ts *script, w *onDynamoDB, args []string) { ts.Check(w.kclTable(t.Context(), args[0])) }),
			"restore": on(func(ts *script, w *onDynamoDB, args []string) {
				ts.Check(w.restore(t.Context(), args[0], args[1]))
			}),
		},
	})
}

// An onDynamoDB is what a transcript on DynamoDB Local runs in.
type onDynamoDB struct {
	tables   *dynamo
	requests *recorder
	code     int
	stop     time.Duration // when the next command is interrupted; 0: not
}

func newOnDynamoDB(ctx context.Context) (*onDynamoDB, error) {
	w := &onDynamoDB{tables: new(dynamo), requests: &recorder{RoundTripper: http.DefaultTransport}}
	client, err := w.tables.Client(ctx)
	if err != nil {
		return nil, err
	}
	options := client.Options()
	options.HTTPClient = &http.Client{Transport: w.requests}
	w.tables.client = dynamodb.New(options)
	return w, nil
}

func (w *onDynamoDB) run(ts *testscript.TestScript, args []string) {
	for i, arg := range args { // files are relative to the folder of the transcript
		if strings.HasSuffix(arg, ".json") {
			args[i] = ts.MkAbs(arg)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if w.stop > 0 {
		defer time.AfterFunc(w.stop, cancel).Stop()
		w.stop = 0
	}
	w.code = w.types(ctx, ts.Getenv("TABLE"), ts.Stdout(), ts.Stderr(), args)
}

// types types a command about the group orders of a table.
func (w *onDynamoDB) types(ctx context.Context, table string, out, problems io.Writer, args []string) (code int) {
	env := map[string]string{"SHARDLEASE_TABLE": table, "SHARDLEASE_GROUP": "orders", "SHARDLEASE_WHY": "test"}
	return operatedBy(strings.NewReader(""), out, problems, w.tables, env).run(ctx, args)
}

// kclTable creates a lease table of the KCL, with a lease at a record that the KPL has packed with others.
func (w *onDynamoDB) kclTable(ctx context.Context, table string) error {
	client := w.tables.client
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("leaseKey"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("leaseKey"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		return err
	}
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	number := func(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
	for _, item := range []map[string]types.AttributeValue{
		{"leaseKey": text("shard-1"), "leaseOwner": text("host-1"), "leaseCounter": number("5"), "checkpoint": text("495917"), "checkpointSubSequenceNumber": number("3"), "pendingCheckpoint": text("495919"), "pendingCheckpointState": &types.AttributeValueMemberB{Value: []byte("canary")}},
		{"leaseKey": text("shard-2"), "leaseCounter": number("0"), "checkpoint": text("TRIM_HORIZON"), "checkpointSubSequenceNumber": number("0")},
	} {
		if _, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item}); err != nil {
			return err
		}
	}
	return nil
}

// restore makes a table as a restore from a backup does: with the same items, and another identity.
func (w *onDynamoDB) restore(ctx context.Context, from, to string) error {
	client := w.tables.client
	options := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	if err := dynamostore.CreateTable(ctx, client, to, options); err != nil {
		return err
	}
	all, err := client.Scan(ctx, &dynamodb.ScanInput{TableName: &from})
	if err != nil {
		return err
	}
	for _, item := range all.Items {
		if _, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &to, Item: item}); err != nil {
			return err
		}
	}
	w.requests.take()
	return nil
}

// programReadsTheSettings: the program itself finds the DynamoDB Local by the variables of the AWS SDK.
func programReadsTheSettings(t *testing.T) {
	table := "leases-" + strings.ToLower(rand.Text()[:8])
	env := func(name string) (string, bool) { return table, name == "SHARDLEASE_TABLE" }
	var out, problems bytes.Buffer
	args := []string{"table", "create", "--no-deletion-protection", "--no-point-in-time-recovery"}
	if code := run(t.Context(), args, strings.NewReader(""), &out, &problems, env); code != 0 || out.String() != fmt.Sprintf("table %q is active\n", table) {
		t.Errorf("exit code %d: %s%s", code, out.String(), problems.String())
	}
}

// TestWithoutAnswer: a table that cannot be reached is an error, and never an empty list.
func TestWithoutAnswer(t *testing.T) {
	for name, value := range settings("http://127.0.0.1:1") {
		t.Setenv(name, value)
	}
	env := func(string) (string, bool) { return "", false }
	synctest.Test(t, func(t *testing.T) { // between its tries, the store waits
		var out bytes.Buffer
		if code := run(t.Context(), []string{"ls", "--table", "leases", "--group", "orders"}, strings.NewReader(""), &out, io.Discard, env); code != exitError || out.Len() > 0 {
			t.Errorf("exit code %d: %s", code, out.String())
		}
	})
}
