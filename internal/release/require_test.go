package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRequire: each module for users requires the newest commit against which it compiles, and the other nested modules
// require the newest of those. A module that compiles against no commit is an error, and then nothing is written.
func TestRequire(t *testing.T) {
	r := history(t)
	r.write(t, "go.mod", "module "+root+"\n\ngo 1.26\n")
	// Commits are named by what the root module has at them.
	commits := map[string]string{}
	for _, exports := range []string{"A", "A B", "B"} {
		r.write(t, "lease/lease.go", source("lease", exports))
		commits[exports] = r.must(t, "rev-parse", "HEAD")
	}
	uses := map[string]string{
		"shardlease/cmd/shardlease": "A", "shardlease/fencegrpc": "A", "shardlease/fences3": "B", "shardlease/kinesis": "A",
		"shardlease/otelshardlease": "A", "examples/e": "C",
	}
	for dir, name := range uses {
		r.module(t, dir, name)
	}
	r.write(t, "alone/go.mod", "module example.com/alone\n")

	r.requires(t, commits["B"], map[string]string{
		"shardlease/cmd/shardlease": commits["A B"], "shardlease/fencegrpc": commits["A B"],
		"shardlease/fences3": commits["B"], "shardlease/kinesis": commits["A B"], "examples/e": commits["B"], "alone": "",
	})
	r.module(t, "shardlease/fences3", "A")
	r.requires(t, commits["A"], map[string]string{"shardlease/fencegrpc": commits["A"], "shardlease/fences3": commits["A"], "examples/e": commits["A"]})
	r.module(t, "shardlease/fences3", "C")
	if err := require(io.Discard, r, commits["B"]); err == nil || !strings.Contains(err.Error(), "shardlease/fences3 compiles against none of the last 4 commits of main") {
		t.Error(err)
	}
	if version, _ := r.required("shardlease/fencegrpc"); !strings.HasSuffix(version, commits["A"][:12]) {
		t.Errorf("an error, and %s was written", version)
	}
}

// source returns a package that exports names.
func source(pkg, names string) string {
	var text strings.Builder
	text.WriteString("package " + pkg + "\n")
	for name := range strings.FieldsSeq(names) {
		text.WriteString("\nconst " + name + " = 1\n")
	}
	return text.String()
}

// module commits a nested module that uses one name of the root module.
func (r repository) module(t *testing.T, dir, name string) {
	t.Helper()
	up, err := filepath.Rel(dir, ".")
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, dir+"/go.mod", fmt.Sprintf("module %s/%s\n\ngo 1.26\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", root, dir, root, root, up))
	r.write(t, dir+"/p.go", "package p\n\nimport \""+root+"/lease\"\n\nconst c = lease."+name+"\n")
	if err := os.WriteFile(filepath.Join(r.dir, dir, "go.sum"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// requires writes the requirements, and checks them: the nested modules in these folders require these commits.
func (r repository) requires(t *testing.T, from string, want map[string]string) {
	t.Helper()
	if err := require(io.Discard, r, from); err != nil {
		t.Fatal(err)
	}
	for dir, commit := range want {
		version, err := r.required(dir)
		if err != nil || commit == "" && version != "" || commit != "" && !strings.HasSuffix(version, "-"+commit[:12]) {
			t.Errorf("%s requires %s (%v), not %s", dir, version, err, commit)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"v0.1.0"}, {"require", "a", "b"}} {
		if err := release(args); err == nil || !strings.HasPrefix(err.Error(), "usage") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
