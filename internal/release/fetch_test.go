package main

import (
	"archive/zip"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// TestRequiredCommitsAreOnMain: nested modules require the root module at commits that everybody can fetch. The
// pseudo-versions are right: the go command refuses a wrong time or number.
func TestRequiredCommitsAreOnMain(t *testing.T) {
	r := repository{"../.."}
	main := r.main(t)
	nested, err := r.nested()
	if err != nil || len(nested) < len(forUsers) {
		t.Fatal(nested, err)
	}
	for _, dir := range nested {
		// The cache of go test knows only what the test itself reads.
		if _, err := os.ReadFile(filepath.Join(r.dir, dir, "go.mod")); err != nil {
			t.Fatal(err)
		}
		version, err := r.required(dir)
		if err != nil {
			t.Fatal(err)
		}
		commit, err := r.git("rev-parse", "--verify", r.revision(version)+"^{commit}")
		if err != nil {
			t.Errorf("%s requires %s, which names no commit: run go run ./internal/release require", dir, version)
			continue
		}
		if _, err := r.git("merge-base", "--is-ancestor", commit, main); err != nil {
			t.Errorf("%s requires %s, which is not on main as this clone knows it", dir, version)
		}
		if named, err := r.version(commit); err != nil || named != version {
			t.Errorf("%s requires %s, which should be %s (%v)", dir, version, named, err)
		}
	}
}

// TestNestedModulesCanBeFetched: a program outside of this repository fetches each module for users, with the commit
// of the root module that it requires, and compiles: without a workspace, and without a replace.
func TestNestedModulesCanBeFetched(t *testing.T) {
	if !fixture.Long() {
		t.Skip("ten seconds, or minutes if everything has to be compiled: set SHARDLEASE_LONG=1")
	}
	r := repository{"../.."}
	main := r.main(t)
	p := proxy{r, filepath.Join(t.TempDir(), "proxy")}
	env := append(os.Environ(), p.environment(t, t.TempDir())...)
	for _, dir := range forUsers {
		t.Run(path.Base(dir), func(t *testing.T) {
			version, err := r.required(dir)
			if err != nil {
				t.Fatal(err)
			}
			p.addRoot(t, version)
			p.add(t, path.Join(root, dir), "v0.0.1", r.present(t, dir))
			switch err := outsider(t, dir, env); {
			case err == nil:
			case r.waits(t, dir, main):
				t.Skipf("%s uses what the root module does not have on main yet; when it has: go run ./internal/release require", dir)
			default:
				t.Errorf("a program cannot fetch %s, which requires %s: go run ./internal/release require\n%v", dir, version, err)
			}
		})
	}
}

// main returns the newest commit on main. In a clone without a history the test is skipped, except in CI, where it
// fails.
func (r repository) main(t *testing.T) string {
	t.Helper()
	main, err := r.published()
	switch {
	case err != nil && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return main
}

// revision returns git's name for a version: a tag, or the abbreviated commit of a pseudo-version.
func (r repository) revision(version string) string {
	if _, err := r.git("rev-parse", "--verify", "--quiet", "refs/tags/"+version); err == nil {
		return version
	}
	return version[strings.LastIndex(version, "-")+1:]
}

// outsider builds a program in a module that requires only the nested module. The program imports the nested module; if
// that is a command, the command itself is the program.
func outsider(t *testing.T, dir string, env []string) error {
	t.Helper()
	module, here := path.Join(root, dir), t.TempDir()
	put(t, filepath.Join(here, "go.mod"), "module example.com/outsider\n\ngo 1.26.7\n\nrequire "+module+" v0.0.1\n")
	target := module
	if !strings.Contains(dir, "/cmd/") {
		put(t, filepath.Join(here, "main.go"), "package main\n\nimport _ \""+module+"\"\n\nfunc main() {}\n")
		target = "."
	}
	_, err := goCommand(here, env, "build", "-o", os.DevNull, target)
	return err
}

// waits reports whether a nested module does not compile against the newest commit of main either.
func (r repository) waits(t *testing.T, dir, main string) bool {
	t.Helper()
	tree := t.TempDir()
	if err := r.unpack(main, tree); err != nil {
		t.Fatal(err)
	}
	return r.compiles(dir, tree) != nil
}

// present returns the files of a folder as they are in the working tree.
func (r repository) present(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for name := range strings.Lines(r.must(t, "ls-files", "--cached", "--others", "--exclude-standard", "--", dir)) {
		name = strings.TrimSpace(name)
		content, err := os.ReadFile(filepath.Join(r.dir, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(name, dir+"/")] = content
	}
	return files
}

// A proxy publishes modules of a repository in a folder.
type proxy struct {
	repository
	dir string
}

// environment returns the environment variables of a user who fetches from the proxy. Other modules come from the
// module cache of this machine or, if they are not in it, from the machine's own proxy. Without -trimpath the build
// cache would not recognize the packages when the next run of the test unpacks them in another folder.
func (p proxy) environment(t *testing.T, cache string) []string {
	t.Helper()
	text, err := p.inModule(".", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(text)
	return []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=", "GOMODCACHE=" + cache,
		"GOPROXY=file://" + p.dir + ",file://" + known[0] + "/cache/download," + known[1],
	}
}

// addRoot publishes the root module at a version.
func (p proxy) addRoot(t *testing.T, version string) {
	t.Helper()
	files, err := p.files(p.revision(version))
	if err != nil {
		t.Fatal(err)
	}
	p.add(t, root, version, withoutNested(files))
}

// withoutNested returns the files that are in no nested module.
func withoutNested(files map[string][]byte) map[string][]byte {
	own := maps.Clone(files)
	maps.DeleteFunc(own, func(name string, _ []byte) bool {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if files[dir+"/go.mod"] != nil {
				return true
			}
		}
		return false
	})
	return own
}

// add publishes a module with these files.
func (p proxy) add(t *testing.T, module, version string, files map[string][]byte) {
	t.Helper()
	base := filepath.Join(p.dir, module, "@v", version)
	put(t, base+".mod", string(files["go.mod"]))
	put(t, base+".info", `{"Version":"`+version+`"}`)
	var archive strings.Builder
	z := zip.NewWriter(&archive)
	for name, content := range files {
		w, err := z.Create(module + "@" + version + "/" + name)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, base+".zip", archive.String())
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
