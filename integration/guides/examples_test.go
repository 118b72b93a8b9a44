package integration

import (
	"os"
	"os/exec"
	"testing"
)

// TestExamplesOnDynamoDB gives the examples that need one a DynamoDB Local.
func TestExamplesOnDynamoDB(t *testing.T) {
	for _, example := range []string{"sinks/dynamodb", "kcl"} {
		t.Run(example, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "../examples/"+example)
			cmd.Env = append(os.Environ(), "DYNAMODB_ENDPOINT="+endpoint(t))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
