package guides

import (
	"os"
	"os/exec"
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
