// Package integration runs the library against Amazon's DynamoDB Local. It is a module of its
// own, so that programs which import the library do not get the dependencies of these tests.
//
// Its rooms are folders:
//
//   - store: dynamostore on the real service, with faults injected into single HTTP requests;
//   - histories: operations of concurrent clients, checked for linearizability;
//   - workers: workers in real time, and under load;
//   - processes: worker processes that are killed, frozen and cut off;
//   - kcl: leases that move from the KCL's table to the library, and back;
//   - report: counted requests and units, and the measurements in docs/measurements.md;
//   - guides: code that the guides offer to copy, and examples that need a server.
//
// One room at a time uses a server, even if go test runs packages side by side.
//
// The tests use the server at DYNAMODB_ENDPOINT if it is set, or else a container of the
// official image if Docker is available; otherwise they skip with one sentence.
// SHARDLEASE_REQUIRE_DYNAMODB=1 turns the skip into a failure.
// If no registry can be reached, provide-image builds the image.
package integration
