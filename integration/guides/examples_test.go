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

// TestExamplesOnDynamoDB runs the tests of the examples that need a DynamoDB Local.
func TestExamplesOnDynamoDB(t *testing.T) {
	for _, example := range []string{"sinks/dynamodb", "leader", "workitems", "lock", "endpoint"} {
		t.Run(example, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "./examples/"+example)
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "DYNAMODB_ENDPOINT="+local.Endpoint(t))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestOrdersLogsNoChecksums: the log of the first program that a reader runs has no warnings of the SDK about DynamoDB
// Local, which refuses without a checksum.
func TestOrdersLogsNoChecksums(t *testing.T) {
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
