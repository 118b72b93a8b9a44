// Package integration runs the library against Amazon's DynamoDB Local. It is a module of its
// own, so that programs which import the library do not get the dependencies of these tests.
//
// Its packages are:
//
//   - store: dynamostore on the real service, with faults injected into single HTTP requests;
//   - histories: operations of concurrent clients, checked for linearizability;
//   - workers: workers in real time, and under load;
//   - processes: worker processes that are killed, frozen and cut off;
//   - kcl: leases that move from the KCL's table to the library, and back;
//   - report: counted requests and units, and the measurements in docs/measurements.md;
//   - telemetry: metrics, alerts and the dashboard, on a real SDK of OpenTelemetry and a real Prometheus;
//   - guides: code that the guides offer to copy, and examples that need a server.
//
// The tests use the server at DYNAMODB_ENDPOINT if it is set, or else a container of the
// official image. The packages of a working copy share the container, even if go test runs
// them side by side, and the last one that uses the container ends it.
// Without a Docker engine the tests skip with one sentence; SHARDLEASE_REQUIRE_DYNAMODB=1
// turns the skip into a failure. A container that does not start is a failure.
// If no registry can be reached, provide-image builds the image.
//
// With SHARDLEASE_LONG=1 tests also check bounds in real time. A package that has such bounds
// then waits until no other package runs, and other packages wait for it.
//
// The tests of telemetry need prometheus and promtool, which provide-prometheus installs. Without them the tests skip, or fail
// if SHARDLEASE_REQUIRE_PROMETHEUS is 1.
//
// start-dynalite runs tests of store on dynalite, an independent server.
package integration
