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

// TestExamplesOnDynamoDB runs these tests on a DynamoDB Local. A single go test builds the examples side by side.
func TestExamplesOnDynamoDB(t *testing.T) {
	local.Beside(t)
	endpoint := local.Endpoint(t)
	args, names := []string{"test", "-count=1", "-v"}, []string{}
	for example, tests := range onDynamoDB {
		args, names = append(args, "./examples/"+example), append(names, tests...)
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "-run", "^("+strings.Join(names, "|")+")$")...)
	cmd.Dir = "../.."
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
