package imports

import (
	"archive/zip"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// raised lists the modules whose versions the library may raise in a user's program; a
// final / includes all modules below.
var raised = []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go"}

// TestRootModuleRequires: users get everything that the root module requires, whichever of
// its packages they import.
func TestRootModuleRequires(t *testing.T) {
	var file struct{ Require []struct{ Path string } }
	if err := json.Unmarshal([]byte(run(t, root, os.Environ(), "mod", "edit", "-json")), &file); err != nil {
		t.Fatal(err)
	}
	may := append(slices.Clone(raised), "go.uber.org/goleak")
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

// TestAFreshUserGetsFourLines: a module that imports shardlease and memstore requires the
// library and goleak, which the library's tests import, and nothing else.
func TestAFreshUserGetsFourLines(t *testing.T) {
	env := proxy(t)
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/fresh\n\ngo 1.26\n\nrequire github.com/shardlease/shardlease-go v0.0.1\n")
	write(t, dir, "main.go", `package main

import (
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

func main() { _, _ = shardlease.New(new(memstore.Store), shardlease.Static("a"), shardlease.Config{}) }
`)
	run(t, dir, env, "mod", "tidy")
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for line := range strings.Lines(string(sums)) {
		module, _, _ := strings.Cut(line, " ")
		of = append(of, strings.TrimPrefix(module, "github.com/shardlease/"))
	}
	if want := []string{"shardlease-go", "shardlease-go", "go.uber.org/goleak", "go.uber.org/goleak"}; !slices.Equal(of, want) {
		t.Errorf("go.sum is\n%s", sums)
	}
	readonly := append(env, "GOFLAGS=-mod=readonly -modcacherw")
	run(t, dir, readonly, "list", "-deps", ".") // finds every package, and its sum
	if fixture.Long() {
		run(t, dir, readonly, "build", "-o", os.DevNull, ".") // compiles the library again, from the folder of the module
	}
}

// TestUsersKeepTheirVersions: a program that requires versions of OpenTelemetry,
// golang.org/x/sys and the AWS SDK that are a year old keeps them, except for the AWS SDK
// packages that dynamostore needs.
func TestUsersKeepTheirVersions(t *testing.T) {
	env := proxy(t)
	dir := t.TempDir()
	file, err := os.ReadFile("testdata/user.mod")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "go.mod", string(file))
	list := []string{"list", "-m", "-f", "{{.Path}} {{.Version}}", "all"}
	if out, err := command(dir, env, list...).CombinedOutput(); err != nil && unreachable(string(out)) {
		t.Skipf("the modules of testdata/user.mod are not in the module cache, and there is no network: %v\n%s", err, out)
	}
	before := versions(run(t, dir, env, list...))
	run(t, dir, env, "mod", "edit", "-require=github.com/shardlease/shardlease-go@v0.0.1")
	after := versions(run(t, dir, env, list...))
	for module, version := range before {
		if after[module] != version && !allows(raised, module) {
			t.Errorf("a user of %s %s gets %s", module, version, after[module])
		}
	}
	if after["github.com/shardlease/shardlease-go"] != "v0.0.1" || before["go.opentelemetry.io/otel"] != "v1.30.0" {
		t.Errorf("the test compares the wrong modules: %v", after)
	}
}

// unreachable reports whether the go command could not reach a server of modules. Other errors are no reason to skip a test.
func unreachable(out string) bool {
	return regexp.MustCompile(`dial tcp|no such host|i/o timeout|network is unreachable|TLS handshake timeout`).MatchString(out)
}

// TestOnlyAMissingNetworkSkips: what else the go command complains about fails the test.
func TestOnlyAMissingNetworkSkips(t *testing.T) {
	for out, want := range map[string]bool{
		`go: m@v1.0.0: Get "https://proxy.golang.org/m/@v/v1.0.0.mod": dial tcp: lookup proxy.golang.org: no such host`:    true,
		`go: m@v1.0.0: Get "https://proxy.golang.org/m/@v/v1.0.0.mod": dial tcp 10.0.0.1:443: connect: connection refused`: true,
		"go: m@v1.0.0: reading https://proxy.golang.org/m/@v/v1.0.0.mod: 404 Not Found":                                    false,
		"go: m@v1.0.0: invalid version: unknown revision v1.0.0":                                                           false,
		"go: errors parsing go.mod": false,
		"":                          false,
	} {
		if unreachable(out) != want {
			t.Errorf("no network: %v: %s", !want, out)
		}
	}
}

// versions reads a list of modules with their versions.
func versions(list string) map[string]string {
	of := map[string]string{}
	for line := range strings.Lines(list) {
		module, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		of[module] = version
	}
	return of
}

// proxy publishes the root module, in its present state and as v0.0.1, in a folder. It
// returns the environment of a user who fetches modules from that folder, then from the
// module cache of this machine, then from the proxy of this machine.
func proxy(t *testing.T) []string {
	t.Helper()
	const published = "github.com/shardlease/shardlease-go"
	dir := t.TempDir()
	at := filepath.Join(dir, "proxy", published, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, at, "v0.0.1.mod", string(file))
	write(t, at, "v0.0.1.info", `{"Version":"v0.0.1"}`)
	archive, err := os.Create(filepath.Join(at, "v0.0.1.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if err := pack(archive, published+"@v0.0.1/"); err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(run(t, root, os.Environ(), "env", "GOMODCACHE", "GOPROXY"))
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(dir, "cache"),
		"GOPROXY=file://"+filepath.Join(dir, "proxy")+",file://"+filepath.Join(known[0], "cache/download")+","+known[1])
}

// pack writes the root module's files as a module archive: without hidden folders, and
// without the modules below.
func pack(to *os.File, prefix string) error {
	z := zip.NewWriter(to)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(root, name)
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(name, "go.mod"))
			if relative != "." && (nested == nil || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		w, err := z.Create(prefix + filepath.ToSlash(relative))
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	return z.Close()
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func command(dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, env
	return cmd
}

func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := command(dir, env, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, problems.String())
	}
	return string(out)
}
