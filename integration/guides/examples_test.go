package guides

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

// onDynamoDB lists the tests of examples that use a DynamoDB Local if there is one.
var onDynamoDB = map[string][]string{
	"sinks/dynamodb": {"TestLateTransactionIsRefused", "TestTransactionsAreFenced"},
	"leader":         {"TestPausedLeaderIsReplaced"},
	"workitems":      {"TestHangingWorkerIsReplaced"},
	"lock":           {"TestPausedLockIsReplaced", "TestHeld", "TestLostLease", "TestKilledLock"},
}

// TestExamplesOnDynamoDB runs the tests of the examples that need a DynamoDB Local. One go test builds all of them.
func TestExamplesOnDynamoDB(t *testing.T) {
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
