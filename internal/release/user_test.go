package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// raised matches the modules whose versions the library may raise in a user's program.
var raised = regexp.MustCompile(`^github.com/aws/(aws-sdk-go-v2(/.*)?|smithy-go)$`)

// freshUser returns the environment of a user who fetches the root module, in its present state, as v0.0.1.
func freshUser(t *testing.T) []string {
	t.Helper()
	p := proxy{repository{"../.."}, filepath.Join(t.TempDir(), "proxy")}
	p.add(t, root, "v0.0.1", withoutNested(p.present(t, ".")))
	return append(os.Environ(), p.environment(t, t.TempDir())...)
}

// must runs the go command of a user, which must succeed.
func must(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := goCommand(dir, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAFreshUserGetsFourLines: a module that imports shardlease and memstore requires the
// library and goleak, which the library's tests import, and nothing else.
func TestAFreshUserGetsFourLines(t *testing.T) {
	env, dir := freshUser(t), t.TempDir()
	put(t, filepath.Join(dir, "go.mod"), "module example.com/fresh\n\ngo 1.26\n\nrequire github.com/shardlease/shardlease-go v0.0.1\n")
	put(t, filepath.Join(dir, "main.go"), `package main

import (
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

func main() { _, _ = shardlease.New(new(memstore.Store), shardlease.Static("a"), shardlease.Config{}) }
`)
	must(t, dir, env, "mod", "tidy")
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
	must(t, dir, readonly, "list", "-deps", ".") // finds every package, and its sum
	if fixture.Long() {
		must(t, dir, readonly, "build", "-o", os.DevNull, ".") // compiles the library again, from the folder of the module
	}
}

// TestUsersKeepTheirVersions: a program that requires versions of OpenTelemetry,
// golang.org/x/sys and the AWS SDK that are a year old keeps them, except for the AWS SDK
// packages that dynamostore needs.
func TestUsersKeepTheirVersions(t *testing.T) {
	env, dir := freshUser(t), t.TempDir()
	file, err := os.ReadFile("testdata/user.mod")
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "go.mod"), string(file))
	list := []string{"list", "-m", "-f", "{{.Path}} {{.Version}}", "all"}
	if _, err := goCommand(dir, env, list...); err != nil && unreachable(err.Error()) {
		t.Skipf("the modules of testdata/user.mod are not in the module cache, and there is no network: %v", err)
	}
	before := versions(must(t, dir, env, list...))
	must(t, dir, env, "mod", "edit", "-require="+root+"@v0.0.1")
	after := versions(must(t, dir, env, list...))
	for module, version := range before {
		if after[module] != version && !raised.MatchString(module) {
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
