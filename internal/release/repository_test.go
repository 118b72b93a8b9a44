package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// TestVersionIsThatOfTheGoCommand: version returns the version of a commit before the first tag and after tags of every
// kind. At full size, the test also asks the go command for each version.
func TestVersionIsThatOfTheGoCommand(t *testing.T) {
	const module = "example.com/x.git"
	r, cache := history(t), t.TempDir()
	r.write(t, "go.mod", "module "+module+"\n\ngo 1.26\n")
	for _, c := range []struct{ tag, want string }{
		{"", "v0.0.0-2026010203"},
		{"shardlease/fences3/v0.9.0", "v0.0.0-2026010203"}, // the tag of a nested module
		{"v0.1.0-rc.2", "v0.1.0-rc.2.0.2026010203"},
		{"v0.1.0-rc.10", "v0.1.0-rc.10.0.2026010203"},
		{"v0.1.0", "v0.1.1-0.2026010203"},
		{"v0.9.9", "v0.9.10-0.2026010203"},
		{"v0.10.0", "v0.10.1-0.2026010203"},
		{"vague", "v0.10.1-0.2026010203"},
		{"v0.2.0", "v0.10.1-0.2026010203"}, // a patch of an old version
	} {
		if c.tag != "" {
			r.must(t, "tag", c.tag)
		}
		r.write(t, "file", "after "+c.tag)
		head := r.must(t, "rev-parse", "HEAD")
		got, err := r.version(head)
		if err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("after %q: %s (%v), not %s", c.tag, got, err, c.want)
		}
		if !fixture.Long() {
			continue
		}
		if named := r.named(t, cache, module, head); got != named {
			t.Errorf("after %q: %s; the go command names it %s", c.tag, got, named)
		}
	}
	r.must(t, "tag", "v0.11.0")
	if got, err := r.version(r.must(t, "rev-parse", "HEAD")); err != nil || got != "v0.11.0" {
		t.Errorf("a commit with a tag: %s, %v", got, err)
	}
}

// TestPublished: a commit that is only on this branch, or on a local main that was not pushed, is not published.
func TestPublished(t *testing.T) {
	r := history(t)
	r.write(t, "file", "1")
	pushed := r.must(t, "rev-parse", "HEAD")
	r.is(t, "a main without a remote", pushed)
	r.must(t, "switch", "-c", "branch")
	r.write(t, "file", "2")
	r.is(t, "a branch", pushed)
	r.must(t, "switch", "-C", "main")
	r.is(t, "a local main", r.must(t, "rev-parse", "HEAD"))
	r.must(t, "update-ref", "refs/remotes/origin/main", pushed)
	r.is(t, "a local main that was not pushed", pushed)

	shallow := repository{filepath.Join(t.TempDir(), "shallow")}
	r.must(t, "clone", "--quiet", "--depth=1", "file://"+r.dir, shallow.dir)
	if got, err := shallow.published(); err == nil || !strings.Contains(err.Error(), "has no history") {
		t.Errorf("a shallow clone: %s, %v", got, err)
	}
}

// history returns a repository without commits.
func history(t *testing.T) repository {
	t.Helper()
	r := repository{filepath.Join(t.TempDir(), "x")}
	for name, value := range map[string]string{
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
		"GIT_COMMITTER_DATE": "2026-01-02T05:04:05+02:00", // 3 o'clock in UTC
		"GIT_CONFIG_GLOBAL":  os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.must(t, "init", "--quiet", "--initial-branch=main")
	return r
}

// named returns the version of a commit, as the go command names it. The go command uses its own module cache.
func (r repository) named(t *testing.T, cache, module, commit string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-modcacherw", "-f", "{{.Version}}", module+"@"+commit)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=direct", "GOSUMDB=off", "GOMODCACHE="+cache,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+filepath.Dir(r.dir)+"/.insteadOf", "GIT_CONFIG_VALUE_0=https://example.com/")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repository) is(t *testing.T, what, commit string) {
	t.Helper()
	if got, err := r.published(); err != nil || got != commit {
		t.Errorf("%s: %s is published (%v), not %s", what, got, err, commit)
	}
}

// write commits a file.
func (r repository) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	r.must(t, "add", name)
	r.must(t, "commit", "--quiet", "--allow-empty", "--message", name)
}

// must runs git, and ends the test if git fails.
func (r repository) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.git(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
