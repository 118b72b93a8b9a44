package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// root is the path of the root module.
const root = "github.com/shardlease/shardlease-go"

// forUsers are the folders of the nested modules that users import or install. Nobody fetches the other nested modules.
var forUsers = []string{"shardlease/cmd/shardlease", "shardlease/fencegrpc", "shardlease/fences3", "shardlease/kinesis", "shardlease/otelshardlease"}

// depth is how many commits are tried. A module that compiles against none of them needs a change of the root module
// that is not on main yet.
const depth = 20

// require writes into the nested modules which version of the root module they require: a module for users requires
// the newest commit, from the given one backwards, against which it compiles. The other nested modules require the
// newest of these versions, because some of them import modules for users, and would not be tidy with a lower one.
func require(out io.Writer, r repository, from string) error {
	list, err := r.git("rev-list", fmt.Sprint("--max-count=", depth), from)
	if err != nil {
		return err
	}
	commits := strings.Fields(list)
	nested, err := r.nested()
	if err != nil {
		return err
	}
	chosen, newest, err := r.choose(commits)
	if err != nil {
		return err
	}
	for _, dir := range nested {
		i, ok := chosen[dir]
		if !ok {
			i = newest
		}
		if err := r.set(out, dir, commits[i]); err != nil {
			return err
		}
	}
	return nil
}

// choose returns which of the commits each module for users should require, and the newest of these.
func (r repository) choose(commits []string) (chosen map[string]int, newest int, err error) {
	trees, err := os.MkdirTemp("", "shardlease-release")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(trees)
	chosen, newest = map[string]int{}, len(commits)
	for _, dir := range forUsers {
		if chosen[dir], err = r.newest(dir, commits, trees); err != nil {
			return nil, 0, err
		}
		newest = min(newest, chosen[dir])
	}
	return chosen, newest, nil
}

// nested returns the folders of the nested modules that require the root module.
func (r repository) nested() (dirs []string, err error) {
	list, err := r.git("ls-files", "--", "*/go.mod")
	if err != nil {
		return nil, err
	}
	for file := range strings.FieldsSeq(list) {
		dir := path.Dir(file)
		if version, err := r.required(dir); err != nil {
			return nil, err
		} else if version != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// required returns the version of the root module that a nested module requires; empty: it requires none.
func (r repository) required(dir string) (version string, err error) {
	text, err := r.inModule(dir, "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	for _, module := range file.Require {
		if module.Path == root {
			version = module.Version
		}
	}
	return version, nil
}

// set writes which version of the root module a nested module requires.
func (r repository) set(out io.Writer, dir, commit string) error {
	version, err := r.version(commit)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s requires %s\n", dir, version)
	_, err = r.inModule(dir, "mod", "edit", "-require="+root+"@"+version)
	return err
}

// newest returns the index of the newest commit against which a nested module compiles. The commits that it tries
// are unpacked into trees.
func (r repository) newest(dir string, commits []string, trees string) (int, error) {
	var first error
	for i, commit := range commits {
		tree := filepath.Join(trees, commit)
		if _, err := os.Stat(tree); err != nil {
			if err := r.unpack(commit, tree); err != nil {
				return 0, err
			}
		}
		err := r.compiles(dir, tree)
		if err == nil {
			return i, nil
		}
		if first == nil {
			first = err
		}
	}
	return 0, fmt.Errorf("%s compiles against none of the last %d commits of main: let the change of the root module land first\n%w",
		dir, len(commits), first)
}

// compiles returns an error unless the packages of a nested module compile against the root module in the folder tree.
// Their tests are left out, because users do not run them, and because they may use internal packages.
func (r repository) compiles(dir, tree string) error {
	scratch, err := os.MkdirTemp("", "shardlease-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(r.dir, dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(scratch, name), content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	file := filepath.Join(scratch, "go.mod")
	if _, err := r.inModule(dir, "mod", "edit", "-replace="+root+"="+tree, file); err != nil {
		return err
	}
	_, err = r.inModule(dir, "build", "-mod=mod", "-modfile="+file, "-o", os.DevNull, "./...")
	return err
}

// inModule runs the go command in a module, without the workspace.
func (r repository) inModule(dir string, args ...string) (string, error) {
	return goCommand(filepath.Join(r.dir, dir), append(os.Environ(), "GOWORK=off"), args...)
}

// goCommand runs the go command in a folder. Its error has what the command says about it.
func goCommand(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, env
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: go %s: %w\n%s", dir, strings.Join(args, " "), err, &problems)
	}
	return string(out), err
}
