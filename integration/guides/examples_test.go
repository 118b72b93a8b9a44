package guides

import (
	"bufio"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

// onDynamoDB lists the tests of examples that use a DynamoDB Local if there is one.
var onDynamoDB = map[string][]string{
	"sinks/dynamodb": {"TestLateTransactionIsRefused", "TestTransactionsAreFenced"},
	"sinks/outbox":   {"TestOutboxInDynamoDB", "TestRelayOnDynamoDB"},
	"leader":         {"TestPausedLeaderIsReplaced"},
	"workitems":      {"TestHangingWorkerIsReplaced", "TestHangingCallLosesItsItem", "TestFailingItemIsQuarantined", "TestItemThatKillsItsWorkers"},
	"lock":           {"TestPausedLockIsReplaced", "TestHeld", "TestLostLease", "TestKilledLock", "TestLocksThatOnlyAskReplaceTheDead"},
}

// TestExamplesOnDynamoDB runs these tests on a DynamoDB Local, and those of the outbox on PostgreSQL if there is one. A single go test builds the examples of the root module side by
// side.
func TestExamplesOnDynamoDB(t *testing.T) {
	local.Beside(t)
	endpoint := local.Endpoint(t)
	args, names := []string{}, []string{}
	for example, tests := range onDynamoDB {
		if _, err := os.Stat(filepath.Join("../../examples", example, "go.mod")); err == nil {
			if example == "sinks/outbox" && os.Getenv("SHARDLEASE_POSTGRES") != "" {
				tests = append(tests[:len(tests):len(tests)], "TestOutboxInPostgreSQL", "TestRelayOnPostgreSQL")
			}
			testExamples(t, filepath.Join("../../examples", example), endpoint, []string{"."}, tests) // a module of its own
			continue
		}
		args, names = append(args, "./examples/"+example), append(names, tests...)
	}
	testExamples(t, "../..", endpoint, args, names)
}

// testExamples runs these tests of packages in a folder, and requires that they pass.
func testExamples(t *testing.T, dir, endpoint string, packages, names []string) {
	t.Helper()
	args := append([]string{"test", "-count=1", "-v", "-run", "^(" + strings.Join(names, "|") + ")$"}, packages...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DYNAMODB_ENDPOINT="+endpoint)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	for _, name := range names {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s has not passed\n%s", name, out)
		}
	}
}

// TestOrdersLogsNoChecksums: the log of the first program that a reader runs has no warnings of the SDK about the
// errors of DynamoDB Local, which have no checksum.
func TestOrdersLogsNoChecksums(t *testing.T) {
	local.Beside(t)
	program := filepath.Join(t.TempDir(), "orders")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/orders")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	orders := exec.CommandContext(t.Context(), program, "-table", "leases-"+rand.Text())
	orders.Env = append(os.Environ(), "AWS_ENDPOINT_URL_DYNAMODB="+local.Endpoint(t),
		"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local")
	var log strings.Builder
	orders.Stderr = &log
	records, err := orders.StdoutPipe()
	if err == nil {
		err = orders.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	first := bufio.NewScanner(records).Scan()
	if err := orders.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := orders.Wait(); err != nil || !first || strings.Contains(log.String(), "SDK ") || !strings.Contains(log.String(), " INFO ") {
		t.Errorf("a record: %v; %v\n%s", first, err, &log)
	}
}
