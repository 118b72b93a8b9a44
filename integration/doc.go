// Package integration runs the library against Amazon's own DynamoDB Local. It is a module
// of its own, so that nobody who imports the library gets what these tests need.
//
// Its rooms are folders:
//
//   - store: dynamostore on the real service, with faults injected into single HTTP requests;
//   - histories: what concurrent clients did, checked for linearizability;
//   - workers: workers in real time, and under load;
//   - processes: worker processes that are killed, frozen and cut off;
//   - kcl: leases that move from the KCL's table, and back;
//   - report: what requests and units are counted, and docs/measurements.md;
//   - guides: what the guides offer to be copied, and examples that need a server.
//
// One room at a time has a server, also where go test runs packages side by side.
//
// The tests look for a server in this order: DYNAMODB_ENDPOINT, if set; a
// container of the official image, if Docker can be reached; otherwise they skip
// with one sentence. SHARDLEASE_REQUIRE_DYNAMODB=1 turns the skip into a failure.
// Where no registry can be reached, provide-image builds the image.
package integration
