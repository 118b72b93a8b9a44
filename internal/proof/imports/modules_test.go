package imports

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRootModuleRequires: users get everything that the root module requires, whichever of
// its packages they import.
func TestRootModuleRequires(t *testing.T) {
	var file struct{ Require []struct{ Path string } }
	if err := json.Unmarshal([]byte(run(t, root, os.Environ(), "mod", "edit", "-json")), &file); err != nil {
		t.Fatal(err)
	}
	may := []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go", "go.uber.org/goleak"}
	for _, module := range file.Require {
		if !allows(may, module.Path) {
			t.Errorf("go.mod requires %s: a requirement of tests or tools alone belongs into a module of its own", module.Path)
		}
	}
}

// TestModulesHaveALicense: a module is published without the files above it, so it needs a
// license of its own.
func TestModulesHaveALicense(t *testing.T) {
	license, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(run(t, root, append(os.Environ(), "GOWORK="), "list", "-m", "-f", "{{.Dir}}"))
	for _, dir := range modules {
		if got, err := os.ReadFile(filepath.Join(dir, "LICENSE")); err != nil || string(got) != string(license) {
			t.Errorf("%s: LICENSE differs from that of the root module (%v)", dir, err)
		}
	}
	if len(modules) < 5 {
		t.Errorf("go.work lists only %d modules", len(modules))
	}
}

func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, env
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, problems.String())
	}
	return string(out)
}
