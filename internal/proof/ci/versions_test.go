package main

import (
	"encoding/json"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// TestModulesShareVersions: two modules that need the same dependency, directly or not, require the same version of it.
// The workspace builds every module with the highest of all required versions. So if versions differed, the tests here
// would use another version of a dependency than the users of a module, and nobody would notice.
//
// It is enough to compare the requirements, because a tidy go.mod lists every module whose packages are imported. The
// versions of the library's own modules may differ: internal/release chooses them for each module.
func TestModulesShareVersions(t *testing.T) {
	dirs, err := modules("../../..")
	if err != nil {
		t.Fatal(err)
	}
	type use struct{ dir, version string }
	first, shared := map[string]use{}, 0
	for _, dir := range dirs {
		for _, r := range requirements(t, path.Join("../../..", dir)) {
			before, known := first[r.Path]
			switch {
			case strings.HasPrefix(r.Path, root):
			case !known:
				first[r.Path] = use{dir, r.Version}
			case before.version != r.Version:
				t.Errorf("%s: %s requires %s, and %s requires %s", r.Path, before.dir, before.version, dir, r.Version)
			default:
				shared++
			}
		}
	}
	if shared < 10 {
		t.Errorf("the test compares only %d requirements", shared)
	}
}

type requirement struct{ Path, Version string }

// requirements returns what the go.mod in a folder requires.
func requirements(t *testing.T, dir string) []requirement {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var file struct{ Require []requirement }
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return file.Require
}
