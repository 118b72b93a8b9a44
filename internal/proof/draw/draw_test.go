package main

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// TestPicturesAreDrawn: each picture in docs/pictures is the output of this command, and
// the folder contains no other files.
func TestPicturesAreDrawn(t *testing.T) {
	files, err := os.ReadDir(filepath.Join(root, "docs", "pictures"))
	if err != nil || len(files) != len(pictures) {
		t.Errorf("docs/pictures has %d files, want %d (%v)", len(files), len(pictures), err)
	}
	for name, draw := range pictures {
		stored, err := os.ReadFile(filepath.Join(root, "docs", "pictures", name))
		if err != nil || string(stored) != draw() {
			t.Errorf("%s is not what `go run ./internal/proof/draw` draws (%v)", name, err)
		}
	}
}

// TestMonitoringIsWritten: the dashboard and the alerts in docs/deploy are the output of this command.
func TestMonitoringIsWritten(t *testing.T) {
	for name, write := range monitoring {
		stored, err := os.ReadFile(filepath.Join(root, "docs", "deploy", name))
		if err != nil || string(stored) != write() {
			t.Errorf("%s is not what `go run ./internal/proof/draw` writes (%v)", name, err)
		}
	}
}

// TestPicturesAreAccessible: a picture is well-formed, and has a title, a description and
// colours for a dark page.
func TestPicturesAreAccessible(t *testing.T) {
	for name, draw := range pictures {
		picture := draw()
		for _, part := range []string{`role="img"`, "<title id=", "<desc id=", "prefers-color-scheme:dark"} {
			if !strings.Contains(picture, part) {
				t.Errorf("%s has no %s", name, part)
			}
		}
		d := xml.NewDecoder(strings.NewReader(picture))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// TestPackagesAreAsDrawn: every arrow is an import, and every import of a package in the picture
// follows the arrows. Arrows point down, so imports have no cycle.
func TestPackagesAreAsDrawn(t *testing.T) {
	drawn := map[string]node{}
	for _, n := range nodes {
		drawn[n.name] = n
	}
	all := imported(t)
	for _, n := range nodes {
		imports := all[n.name]
		reached := reach(drawn, n)
		for _, name := range n.imports {
			if drawn[name].y <= n.y {
				t.Errorf("the arrow from %s to %s does not point down", n.name, name)
			}
			if !imports[name] {
				t.Errorf("the picture shows that %s imports %s, but it does not", n.name, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(imports)) {
			if _, ok := drawn[name]; ok && !reached[name] {
				t.Errorf("%s imports %s, but no arrow of the picture leads there", n.name, name)
			}
		}
	}
}

// reach returns the packages that the arrows of n lead to.
func reach(drawn map[string]node, n node) map[string]bool {
	reached := map[string]bool{}
	for _, name := range n.imports {
		reached[name] = true
		maps.Copy(reached, reach(drawn, drawn[name]))
	}
	return reached
}

// imported returns which packages of this module each package imports, without its tests.
func imported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	args := []string{"list", "-f", `{{.ImportPath}} {{join .Imports " "}}`}
	for _, n := range nodes {
		args = append(args, "./"+n.name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]map[string]bool{}
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(strings.ReplaceAll(line, "github.com/shardlease/shardlease-go/", ""))
		imports := map[string]bool{}
		for _, path := range paths[1:] {
			imports[path] = true
		}
		all[paths[0]] = imports
	}
	return all
}
