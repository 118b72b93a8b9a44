// Package imports checks that imports between the packages point in one direction only, and
// what each module makes its users depend on.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/shardlease/shardlease-go/"
	root   = "../../.."
)

// A rule states what a package may import, in addition to the standard library.
type rule struct {
	may    []string // packages of this module; or other packages, where a final / includes all below
	reason string
}

// A rule whose name ends in /... holds for all packages below that have no rule of their own.
var rules = map[string]rule{
	"checkpoint":          {nil, "a leaf: a sink or a tool may need positions and stale errors without any store"},
	"rebalance":           {nil, "a leaf: the planner is a pure function and must stay one"},
	"internal/attr":       {nil, "a leaf: names and formats of what is stored"},
	"internal/generation": {[]string{"checkpoint"}, "a leaf: arithmetic of fencing tokens"},
	"shardlease/lease": {[]string{"checkpoint", "rebalance", "internal/attr", "internal/generation"},
		"rows, stores and what a write may change: no clock, no I/O, and nothing that a reader must know first"},
	"shardlease/event": {[]string{"rebalance", "shardlease/lease"},
		"what a worker reports: the engine, the shell and users share one set of kinds and causes"},
	"internal/protocol": {[]string{"checkpoint", "internal/attr", "internal/generation", "rebalance", "shardlease/lease"},
		"every transition of a row, and the meaning of an answer: pure functions, which no user calls"},
	"internal/handoff":    {[]string{"rebalance"}, "a leaf: both sides of a move are pure functions of the terms and of what a side knows"},
	"internal/digest":     {nil, "a leaf: it hashes values of any package"},
	"internal/deathwatch": {nil, "a leaf: it holds sockets and reports what they show, and decides nothing"},
	"internal/layout": {[]string{"rebalance", "shardlease/lease"},
		"where shards should be: the engine and the command plan by the same pure functions, and see a group in their own ways"},
	"internal/engine": {[]string{"checkpoint", "rebalance", "internal/digest", "internal/handoff", "internal/layout", "internal/protocol", "shardlease/event", "shardlease/lease"},
		"every decision of a worker: a simulator drives thousands of them, without a clock, a store or a goroutine"},
	"shardlease/fence": {[]string{"checkpoint", "shardlease/lease"},
		"what a token is and how it is sent: a service that compares tokens links no worker"},
	"shardlease/fencehttp": {[]string{"checkpoint", "shardlease/fence"},
		"tokens over HTTP: a service that compares tokens links no worker"},
	"shardlease/fencegrpc": {[]string{"checkpoint", "shardlease/fence", "google.golang.org/grpc", "google.golang.org/grpc/", "google.golang.org/genproto/googleapis/rpc/errdetails"},
		"tokens over gRPC: a module of its own, so that users of the library do not get its requirements"},
	"shardlease/fences3": {[]string{"shardlease/lease", "github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/aws/transport/http", "github.com/aws/aws-sdk-go-v2/service/s3", "github.com/aws/aws-sdk-go-v2/service/s3/types"},
		"a register in S3: a module of its own, so that users of the library do not get its requirements"},
	"shardlease/otelshardlease": {[]string{"rebalance", "shardlease", "shardlease/event", "shardlease/inspect", "shardlease/lease",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace"},
		"metrics and traces: a module of its own, so that users of the library do not get its requirements; the program chooses the SDK"},
	"shardlease/kinesis": {[]string{"checkpoint", "rebalance", "shardlease", "shardlease/event", "shardlease/lease", "shardlease/kinesis/internal/",
		"github.com/aws/aws-sdk-go-v2/service/kinesis", "github.com/aws/aws-sdk-go-v2/service/kinesis/types", "github.com/aws/smithy-go", "github.com/aws/smithy-go/"},
		"the consumer of Kinesis: a module of its own, so that users of the library do not get its requirements; it accepts any store"},
	"shardlease/kinesis/internal/orders": {[]string{"dynamostore", "rebalance", "shardlease/kinesis",
		"github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/service/dynamodb", "github.com/aws/aws-sdk-go-v2/service/kinesis"},
		"the program of docs/kinesis.md: it imports what a user imports"},
	"shardlease/kinesis/...": {[]string{"checkpoint", "shardlease", "shardlease/lease", "shardlease/kinesis/internal/",
		"github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go", "github.com/aws/smithy-go/", "google.golang.org/protobuf/encoding/protowire"},
		"the parts of the consumer of Kinesis: none of them imports the consumer"},
	"shardlease/fencesql": {[]string{"shardlease/fence"},
		"a recipe over database/sql: it imports no driver, so that a user chooses it"},
	"shardlease": {[]string{"checkpoint", "rebalance", "shardlease/event", "shardlease/fence", "shardlease/lease", "internal/deathwatch", "internal/engine", "internal/protocol"},
		"the thin shell that users embed: it accepts any store, and depends on none"},
	"memstore": {[]string{"shardlease/lease"}, "users' tests link it: it must have no other dependency"},
	"shardlease/inspect": {[]string{"checkpoint", "rebalance", "internal/handoff", "internal/protocol", "shardlease/lease"},
		"it looks at a fleet from outside: a dashboard or an exporter links it without the worker"},
	"shardlease/storetest": {[]string{"checkpoint", "rebalance", "internal/protocol", "internal/proof/storm", "shardlease/lease"},
		"the contract as tests: a third party's store is tested with the standard library alone"},
	"shardlease/fencetest": {nil, "a leaf: it proves any sink, also of a program that uses another library for its leases"},
	"shardlease/tenuretest": {[]string{"checkpoint", "internal/protocol", "memstore", "rebalance", "shardlease", "shardlease/event", "shardlease/lease"},
		"users' tests link it: a real worker on the embedded store, and nothing else"},
	"dynamostore": {[]string{"checkpoint", "internal/attr", "internal/protocol", "shardlease/lease", "github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/dynamodb", "github.com/aws/aws-sdk-go-v2/service/dynamodb/", "github.com/aws/smithy-go", "github.com/aws/smithy-go/"},
		"it accepts a client that the user has configured, so it never imports the SDK's config"},
	"dynamostore/kcl": {[]string{"checkpoint", "internal/protocol", "shardlease", "shardlease/lease", "github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/dynamodb", "github.com/aws/aws-sdk-go-v2/service/dynamodb/"},
		"it reads another library's table: only programs that migrate from or to that library link it; it creates rows through any store, as an operator does"},
	"shardlease/cmd/shardlease": {[]string{"checkpoint", "dynamostore", "dynamostore/kcl", "internal/layout", "internal/proof/story", "rebalance", "shardlease", "shardlease/inspect", "shardlease/lease",
		"charm.land/bubbletea/v2", "charm.land/lipgloss/v2", "github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go/logging", "github.com/goccy/go-yaml", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"},
		"the operators' command: a module of its own, so that users of the library do not get its requirements"},
	"shardlease/kinesis/kinesistest": {[]string{"github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go", "github.com/aws/smithy-go/eventstream"},
		"a Kinesis in memory, for the tests of users too: it imports no other package of this repository"},
	"shardlease/kinesis/internal/fanout": {[]string{"shardlease/kinesis/internal/stream", "github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go", "github.com/aws/smithy-go/"},
		"it subscribes to one shard; its caller holds the lease of the shard"},
	"examples/...": {forExamples("github.com/aws/aws-sdk-go-v2/"),
		"they are written like a user's program: from outside, and without the engine"},
	"examples/lock":             {leaseExamples, "a user's program"},
	"examples/endpoint":         {forExamples("shardlease/fence", "shardlease/fencehttp"), "a user's service that compares tokens"},
	"examples/leader":           {leaseExamples, "a user's program"},
	"examples/workitems":        {leaseExamples, "a user's program"},
	"examples/internal/table":   {forExamples("github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go/logging", "examples/filestore"), "it opens the table of examples that run as processes of one machine"},
	"examples/internal/ledger":  {[]string{"shardlease/fence", "shardlease/fencehttp"}, "a user's sink"},
	"examples/internal/effects": {forExamples("github.com/aws/aws-sdk-go-v2/"), "a user's sink"},
	"examples/internal/process": {[]string{"shardlease", "shardlease/fence", "shardlease/lease"}, "a test library of the examples: it starts processes, whatever they do"},
	"examples/quickstart":       {[]string{"rebalance", "internal/proof/story"}, "it tells a story that the command shardlease tells too"},
	"examples/sinks/sql":        {forExamples("modernc.org/sqlite"), "a user's program with a database"},
	"examples/sinks/operations": {forExamples("shardlease/fence"), "a user's program that makes operation ids"},
	"examples/sinks/outbox": {forExamples("github.com/aws/aws-sdk-go-v2/", "modernc.org/sqlite", "shardlease/fence", "shardlease/fencesql"),
		"a user's program with a database"},
	"examples/kinesis": {forExamples("github.com/aws/aws-sdk-go-v2/", "examples/internal/effects", "shardlease/kinesis"), "a user's consumer of Kinesis"},
	"examples/kinesis/internal/outcome": {[]string{"github.com/aws/aws-sdk-go-v2/"},
		"it judges the consumer, and shares no code with it"},
	"examples/dynamodbstreams": {forExamples("github.com/aws/aws-sdk-go-v2/", "examples/internal/effects"), "a user's consumer of DynamoDB Streams"},
	"integration/...": {[]string{"checkpoint", "internal/attr", "internal/proof/fixture", "internal/protocol", "shardlease/lease", "dynamostore", "github.com/aws/aws-sdk-go-v2/", "github.com/moby/moby/client", "github.com/testcontainers/testcontainers-go", "github.com/testcontainers/testcontainers-go/", "go.uber.org/goleak"},
		"its tests need containers and clients"},
	"integration/internal/fleet": {[]string{"checkpoint", "dynamostore", "integration/internal/local", "integration/internal/network", "internal/proof/fixture", "shardlease", "shardlease/event", "github.com/aws/aws-sdk-go-v2/"},
		"workers in the process of a test, and what their handlers did: it judges nothing"},
	"internal/proof/story": {[]string{"checkpoint", "rebalance", "shardlease", "shardlease/event", "shardlease/lease", "memstore"},
		"a program that explains the library links it: no test library, and no store but the embedded one"},
	"internal/proof/judge": {[]string{"checkpoint", "shardlease/event", "shardlease/lease"},
		"what may happen to rows, seats and tenures: it knows neither transitions nor engines, so that it can judge both"},
	"internal/proof/virtual": {[]string{"internal/engine", "memstore", "shardlease/event", "shardlease/lease"},
		"a world for whatever has the methods of an engine: its users choose a store, and judge"},
	"internal/proof/fixture": {[]string{"checkpoint", "internal/protocol", "rebalance", "shardlease/lease"}, "what the tests of many packages share"},
	"internal/proof/zombie": {[]string{"checkpoint", "memstore", "rebalance", "shardlease", "shardlease/fence", "shardlease/fencehttp", "shardlease/storetest"},
		"real workers and the sink of a test: modules with sinks of their own use it too"},
	"internal/proof/storm": {[]string{"checkpoint", "internal/protocol", "shardlease/lease"},
		"the transitions alone, without a worker: its results do not depend on a worker's decisions"},
	"internal/proof/explore": {[]string{"checkpoint", "rebalance", "shardlease/event", "shardlease/lease", "internal/digest", "internal/engine", "internal/proof/judge", "internal/protocol", "internal/proof/virtual"},
		"real engines in every interleaving: the order of events is the only fault that it causes"},
	"internal/proof/sim": {[]string{"checkpoint", "rebalance", "shardlease/event", "shardlease/lease", "internal/engine", "internal/proof/judge", "internal/protocol", "internal/proof/virtual"},
		"real engines with faults, in virtual time"},
	"internal/proof/transcript": {[]string{"checkpoint", "rebalance", "shardlease/event", "shardlease/lease", "internal/engine", "internal/protocol", "internal/proof/virtual"},
		"scripts for real engines, and words for what they do"},
	"internal/proof/scale":   {nil, "real engines and a table that only measures: all of it is tests"},
	"internal/proof/ci":      {nil, "it runs commands and reads source, and imports none"},
	"internal/release":       {nil, "it runs git and the go command, and imports none"},
	"internal/proof/mutants": {nil, "it edits and runs other packages, and imports none"},
	"internal/proof/docs":    {nil, "it reads files, and imports none"},
	"internal/proof/board":   {nil, "a leaf: alerts and a dashboard as data"},
	"internal/proof/draw":    {[]string{"internal/proof/board"}, "it draws fixed pictures and imports none of the packages; its test compares them with the packages"},
	"internal/proof":         {nil, "it only says what the packages below are"},
	"internal/proof/imports": {nil, "it reads the imports of other packages, and imports none"},
}

// forExamples returns what every example may import, and more.
func forExamples(more ...string) []string {
	return append(more, "checkpoint", "rebalance", "shardlease", "shardlease/event", "shardlease/lease", "memstore", "dynamostore", "shardlease/storetest", "examples/internal/takeover")
}

// leaseExamples is what the examples of leases by name may import: each runs as several processes.
var leaseExamples = forExamples("examples/internal/ledger", "examples/internal/table", "shardlease/fence", "shardlease/fencehttp")

// ruleOf returns the rule of a package, or else the rule of the nearest folder above it.
func ruleOf(name string) (rule, bool) {
	r, ok := rules[name]
	for above := name; !ok && above != "."; above = path.Dir(above) {
		r, ok = rules[above+"/..."]
	}
	return r, ok
}

// testLibraries must not be linked into a program because it imports one of these modules.
var testLibraries = []string{"testing", "net/http/httptest", "github.com/anishathalye/porcupine", "go.uber.org/goleak", "github.com/testcontainers/"}

// forTests lists the packages of these modules that are test libraries themselves.
var forTests = []string{"shardlease/storetest", "shardlease/tenuretest", "shardlease/fencetest", "internal/proof/fixture", "internal/proof/zombie", "integration/", "examples/internal/process"}

// storeTest, with its imports, may be linked by an example that simulates a crash, because
// no program imports an example.
const storeTest = module + "shardlease/storetest"

func TestImportsPointOneWay(t *testing.T) {
	for _, pkg := range list(t) {
		name := strings.TrimPrefix(pkg.ImportPath, module)
		r, ok := ruleOf(name)
		if !ok {
			t.Errorf("%s: there is no rule for its imports; add one, with its reason", name)
			continue
		}
		for _, path := range pkg.Imports {
			if standard(path) || allows(r.may, strings.TrimPrefix(path, module)) {
				continue
			}
			t.Errorf("%s imports %s: %s", name, path, r.reason)
		}
	}
}

// mayProve lists what may import internal/proof outside of tests: the test kit of stores, the two programs that tell a story,
// and the servers of the integration tests.
var mayProve = []string{"internal/proof/", "shardlease/storetest", "shardlease/cmd/shardlease", "examples/quickstart", "integration/"}

// TestWhatIsShippedImportsNoProof: what a user's program links imports nothing that only proves it.
func TestWhatIsShippedImportsNoProof(t *testing.T) {
	for _, pkg := range list(t) {
		if allows(mayProve, strings.TrimPrefix(pkg.ImportPath, module)) {
			continue
		}
		for _, path := range pkg.Imports {
			if strings.HasPrefix(path, module+"internal/proof/") {
				t.Errorf("%s imports %s, which is there to prove it", pkg.ImportPath, path)
			}
		}
	}
}

// TestExamplesAreWrittenFromOutside: the tests of the examples import nothing that users
// cannot import. One of the examples is a store, which shows that a store can be written
// outside of this module. The tests of three sinks are an exception: those in DynamoDB write rows as
// only a worker can, and those in SQL and of the outbox play the takeover of an idle shard like all other sinks.
func TestExamplesAreWrittenFromOutside(t *testing.T) {
	for _, pkg := range list(t) {
		name := strings.TrimPrefix(pkg.ImportPath, module)
		if !strings.HasPrefix(name, "examples/") || slices.Contains([]string{"examples/sinks/dynamodb", "examples/sinks/outbox", "examples/sinks/sql"}, name) {
			continue
		}
		for _, path := range slices.Concat(pkg.TestImports, pkg.XTestImports) {
			if strings.HasPrefix(path, module+"internal/") {
				t.Errorf("a test of %s imports %s: %s", name, path, rules["examples/..."].reason)
			}
		}
	}
}

func TestNoTestLibraryIsLinkedIn(t *testing.T) {
	for _, pkg := range list(t) {
		name := strings.TrimPrefix(pkg.ImportPath, module)
		if allows(forTests, name) {
			continue
		}
		simulates := strings.HasPrefix(name, "examples/") && slices.Contains(pkg.Deps, storeTest)
		for _, path := range pkg.Deps {
			if simulates && (path == storeTest || path == "testing") {
				continue
			}
			if allows(testLibraries, path) || path == storeTest {
				t.Errorf("%s depends on %s: a program that imports it would link a test library", pkg.ImportPath, path)
			}
		}
	}
}

func allows(list []string, path string) bool {
	return slices.ContainsFunc(list, func(allowed string) bool {
		return path == allowed || strings.HasSuffix(allowed, "/") && strings.HasPrefix(path, allowed)
	})
}

// standard reports whether path belongs to the standard library: no dot in its first
// element.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

type listed struct {
	ImportPath                string
	Imports, Deps             []string
	TestImports, XTestImports []string
}

// list lists the packages of all modules of go.work.
func list(t *testing.T) []listed {
	t.Helper()
	pkgs, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return pkgs
}

// packages asks the go command once, because all tests need the same list. It also works where GOWORK is off.
var packages = sync.OnceValues(func() (pkgs []listed, err error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports", "work")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})
